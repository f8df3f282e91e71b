"""Everything a broker stores, as a real client (librdkafka) reads it, in a form that JSON holds.

    contents(address, groups=["readers"])

Topics by name, with their configs and partitions; group offsets; the broker's dynamic configs. Keys, values and
headers of records are text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

TIMEOUT_S = 30.0
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
    return {
        "topics": {
            name: {
                "configs": configs[name],
                "partitions": read_topic(address, name, len(metadata.topics[name].partitions)),
            }
            for name in topics
        },
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


def read_topic(address: str, topic: str, count: int) -> dict[str, Any]:
    """By partition: log start, log end, last stable offset, all records, and the offsets of committed ones."""
    everything = read_records(address, topic, count, isolation="read_uncommitted")
    committed = read_records(address, topic, count, isolation="read_committed")
    found = {}
    for index in range(count):
        start, end, records = everything[index]
        _, stable, visible = committed[index]
        found[str(index)] = {
            "start": start,
            "end": end,
            "stable": stable,
            "records": records,
            "committed": [one[0] for one in visible],
        }
    return found


def read_records(
    address: str, topic: str, count: int, *, isolation: str
) -> dict[int, tuple[int, int, list[list[Any]]]]:
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
    records: dict[int, list[list[Any]]] = {index: [] for index in range(count)}
    ends: dict[int, int] = {}
    try:
        bounds = {
            index: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, index), TIMEOUT_S)
            for index in range(count)
        }
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, index, low) for index, (low, _) in bounds.items()]
        )
        while len(ends) < count:
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    records[message.partition()].append(_as_list(message))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ends[message.partition()] = message.offset()
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()
    return {index: (bounds[index][0], ends[index], records[index]) for index in range(count)}


def _as_list(message: Any) -> list[Any]:
    headers = [[name, _text(value)] for name, value in message.headers() or ()]
    return [message.offset(), message.timestamp()[1], _text(message.key()), _text(message.value()), headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
