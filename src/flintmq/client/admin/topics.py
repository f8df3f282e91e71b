"""Topics, their settings, their offsets and their sizes, over the wire.

Each function is one question or one change; RequestError carries what the broker says. Changes are never
sent twice: whoever loses the connection in the middle of one is told so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.errors import FlintError, ProtocolError
from flintmq.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from flintmq.records.topic_partition import TopicPartition
from flintmq.records.uuids import encode_uuid
from flintmq.settings import ConfigSource

EARLIEST, LATEST = -2, -1
"""Stand for a timestamp when offsets are asked for."""
BROKER_DEFAULT = -1
"""Stands for a partition count or replication factor that the broker is to choose."""

_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1


class CreatedTopic(NamedTuple):
    name: str
    id: str
    partitions: int
    """-1 where the broker does not tell."""
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicSetting:
    name: str
    value: str | None
    source: ConfigSource | None
    read_only: bool

    @property
    def is_own(self) -> bool:
        """Set on the topic itself."""
        return self.source is ConfigSource.DYNAMIC_TOPIC_CONFIG

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def create_topic(
    client: ClusterClient,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> CreatedTopic:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_timeout_ms(client))

    def judge(response: CreateTopicsResponse) -> None:
        for one in response.topics:
            check(one.error_code, one.error_message)

    result = client.call_controller(request, CreateTopicsResponse, judge).topics[0]
    return CreatedTopic(name, encode_uuid(result.topic_id), result.num_partitions, result.replication_factor)


def delete_topic(client: ClusterClient, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_timeout_ms(client))

    def judge(response: DeleteTopicsResponse) -> None:
        for one in response.responses:
            check(one.error_code, one.error_message)

    # Version 6 only adds topic ids; by name, every broker understands version 5.
    client.call_controller(request, DeleteTopicsResponse, judge, highest=5)


def add_partitions(client: ClusterClient, name: str, count: int) -> None:
    """Let the topic have `count` partitions, more than it has."""
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=_timeout_ms(client))

    def judge(response: CreatePartitionsResponse) -> None:
        for one in response.results:
            check(one.error_code, one.error_message)

    client.call_controller(request, CreatePartitionsResponse, judge)


def alter_topic(
    client: ClusterClient, name: str, *, settings: Mapping[str, str], resets: Iterable[str] = ()
) -> None:
    """Change some settings of a topic, and let others go back to the default; all or none."""
    changes = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in settings.items()
    ]
    changes += [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=_DELETE, value=None)
        for key in resets
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configs=changes
    )

    def judge(response: IncrementalAlterConfigsResponse) -> None:
        for one in response.responses:
            check(one.error_code, one.error_message)

    client.call_controller(
        IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, judge
    )


def describe_topic_settings(client: ClusterClient, name: str) -> list[TopicSetting]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )

    def judge(response: DescribeConfigsResponse) -> None:
        for one in response.results:
            check(one.error_code, one.error_message, what=f"topic {name}")

    response = client.call(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, judge)
    return [
        TopicSetting(one.name, one.value, _source(one.config_source), one.read_only)
        for result in response.results
        for one in result.configs
    ]


def offsets(
    client: ClusterClient,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, int]:
    """For each partition the first offset at or after a time, or its start or end; -1 if there is none.

    With `read_committed` the end is the last stable offset. The topics must be known to the client.
    """
    found: dict[TopicPartition, int] = {}

    def ask() -> None:
        client.freshen()
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic, partition in partitions:
            if (topic, partition) not in found:
                node = client.leader(topic, partition)
                by_leader.setdefault(node, {}).setdefault(topic, []).append(partition)
        requests = {
            node: _list_offsets(topics, timestamp, read_committed=read_committed)
            for node, topics in by_leader.items()
        }
        responses = client.exchange(requests, ListOffsetsResponse, timeout_s=client.request_timeout_s)
        failure: FlintError | None = None
        for response in responses.values():
            if isinstance(response, FlintError):
                failure = response
                continue
            for topic_response in response.topics:
                for one in topic_response.partitions:
                    check(one.error_code, what=f"{topic_response.name}-{one.partition_index}")
                    found[topic_response.name, one.partition_index] = one.offset
        if failure is not None:
            raise failure
        missing = [
            f"{topic}-{partition}" for topic, partition in partitions if (topic, partition) not in found
        ]
        if missing:
            raise ProtocolError(f"the broker's answer leaves out {', '.join(missing)}")

    client.attempt(ask)
    return found


def _list_offsets(
    topics: Mapping[str, Sequence[int]], timestamp: int, *, read_committed: bool
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )


def sizes(client: ClusterClient, topics: Iterable[str]) -> dict[TopicPartition, int]:
    """Bytes on disk of each partition at its leader. The topics must be known to the client."""
    wanted = {name: sorted(client.metadata.topics[name].partitions) for name in topics}
    if not wanted:
        return {}
    request = DescribeLogDirsRequest(
        topics=[
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=partitions)
            for name, partitions in wanted.items()
        ]
    )

    def ask() -> dict[TopicPartition, int]:
        client.freshen()
        found: dict[TopicPartition, int] = {}
        requests = dict.fromkeys(client.metadata.brokers, request)
        responses = client.exchange(requests, DescribeLogDirsResponse, timeout_s=client.request_timeout_s)
        for node, response in responses.items():
            if isinstance(response, FlintError):
                raise response
            check(response.error_code)
            for folder in response.results:
                for topic in folder.topics:
                    for one in topic.partitions:
                        if client.metadata.leader_of(topic.name, one.partition_index) == node:
                            found[topic.name, one.partition_index] = one.partition_size
        return found

    return client.attempt(ask)


def _timeout_ms(client: ClusterClient) -> int:
    return int(client.request_timeout_s * 1000)


def _source(number: int) -> ConfigSource | None:
    try:
        return ConfigSource(number)
    except ValueError:
        return None
