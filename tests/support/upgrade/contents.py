"""Everything a broker stores, as a real client (librdkafka) reads it, in a form that JSON holds.

    contents(address, groups=["readers"])

Topics by name, with their configs and partitions; group offsets; the broker's dynamic configs. Keys, values and
headers of records are text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

TIMEOUT_S = 30.0
Read = tuple[int, int, list[list[Any]]]
_SET_BY_USERS = {
    int(ConfigSource.DYNAMIC_TOPIC_CONFIG.value),
    int(ConfigSource.DYNAMIC_BROKER_CONFIG.value),
    int(ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value),
}
_DEFAULT_BROKER = "<default>"


def contents(address: str, groups: Iterable[str] = ()) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": address})
    metadata = admin.list_topics(timeout=TIMEOUT_S)
    (broker_id,) = metadata.brokers
    topics = sorted(name for name in metadata.topics if not name.startswith("__"))
    configs = set_configs(
        admin,
        *(ConfigResource(ResourceType.TOPIC, name) for name in topics),
        ConfigResource(ResourceType.BROKER, str(broker_id)),
    )
    read = read_topics(address, {name: len(metadata.topics[name].partitions) for name in topics})
    return {
        "topics": {name: {"configs": configs[name], "partitions": read[name]} for name in topics},
        "groups": {group: group_offsets(admin, group) for group in groups},
        "broker configs": configs[str(broker_id)],
    }


def set_configs(admin: AdminClient, *resources: Any) -> dict[str, dict[str, str]]:
    """What was set by users, by the resource's name."""
    found: dict[str, dict[str, str]] = {}
    for resource, future in admin.describe_configs(list(resources)).items():
        entries = future.result(TIMEOUT_S).values()
        found[resource.name] = {one.name: one.value for one in entries if one.source in _SET_BY_USERS}
    return found


def group_offsets(admin: AdminClient, group: str) -> dict[str, list[Any]]:
    """Offset and metadata by topic and partition."""
    request = confluent_kafka.ConsumerGroupTopicPartitions(group)
    (future,) = admin.list_consumer_group_offsets([request]).values()
    found = future.result(TIMEOUT_S).topic_partitions
    return {f"{one.topic}-{one.partition}": [one.offset, one.metadata or ""] for one in found}


def read_topics(address: str, counts: Mapping[str, int]) -> dict[str, Any]:
    """By topic and partition: log start, log end, last stable offset, all records, and offsets of committed ones.

    `counts` are the numbers of partitions.
    """
    everything = read_records(address, counts, isolation="read_uncommitted")
    committed = read_records(address, counts, isolation="read_committed")
    found: dict[str, Any] = {topic: {} for topic in counts}
    for (topic, index), (start, end, records) in everything.items():
        _, stable, visible = committed[topic, index]
        found[topic][str(index)] = {
            "start": start,
            "end": end,
            "stable": stable,
            "records": records,
            "committed": [one[0] for one in visible],
        }
    return found


def read_records(address: str, counts: Mapping[str, int], *, isolation: str) -> dict[tuple[str, int], Read]:
    """Log start, the end for this isolation level, and the records of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
            "check.crcs": True,
        }
    )
    wanted = [(topic, index) for topic, count in counts.items() for index in range(count)]
    records: dict[tuple[str, int], list[list[Any]]] = {one: [] for one in wanted}
    ends: dict[tuple[str, int], int] = {}
    try:
        starts = {
            one: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*one), TIMEOUT_S)[0]
            for one in wanted
        }
        consumer.assign([confluent_kafka.TopicPartition(*one, starts[one]) for one in wanted])
        while len(ends) < len(wanted):
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    records[message.topic(), message.partition()].append(_as_list(message))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ends[message.topic(), message.partition()] = message.offset()
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()
    return {one: (starts[one], ends[one], records[one]) for one in wanted}


def _as_list(message: Any) -> list[Any]:
    headers = [[name, _text(value)] for name, value in message.headers() or ()]
    return [message.offset(), message.timestamp()[1], _text(message.key()), _text(message.value()), headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
