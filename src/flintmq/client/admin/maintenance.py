"""The upkeep of topics on demand, over the wire, by requests that only FlintMQ has.

A task is started once at each broker that leads partitions of the topic, and then asked about until it is over.
NotFlintMQ is raised where another broker answers. Whoever loses the connection while a task runs asks again; a task
ends with its broker's process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ConnectionLost, NotFlintMQ, check
from flintmq.errors import FlintError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.maintenance import MaintenanceAction, MaintenanceState
from flintmq.protocol.messages import (
    DescribeTopicHealthRequest,
    DescribeTopicHealthResponse,
    DescribeTopicTaskRequest,
    DescribeTopicTaskResponse,
    MaintainTopicRequest,
    MaintainTopicResponse,
)

M = TypeVar("M", bound=Message)

_WAIT_MS: Final = 500

OffsetRange = tuple[int, int]
"""The first offset, and the one after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMaintenance:
    """How far a task is with one partition, or how it ended."""

    partition: int
    state: MaintenanceState
    phase: str
    bytes_done: int
    bytes_total: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    damaged: tuple[OffsetRange, ...]
    damaged_count: int
    """There may be more than are told."""
    failure: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """What is wrong with a partition."""

    partition: int
    offline: str | None
    uncleanable: str | None
    """Why compaction has given it up."""
    damaged: tuple[OffsetRange, ...]
    damaged_count: int
    retention_risk: str | None = None
    """What retention is about to delete, or holds back, that a lake table does not have."""


Watcher = Callable[[Sequence[PartitionMaintenance]], object]


def maintain_topic(
    client: ClusterClient,
    name: str,
    action: MaintenanceAction,
    *,
    partitions: Sequence[int] | None = None,
    watcher: Watcher = lambda _: None,
) -> list[PartitionMaintenance]:
    """Start it and wait for its end; the watcher is told now and then how far it is. By partition, in order."""
    tasks = _start(client, name, action, partitions)
    found: dict[int, PartitionMaintenance] = {}
    running = dict(tasks)
    while running:
        for node, response in _ask(client, running).items():
            found |= {one.partition_index: _maintained(one) for one in response.partitions}
            if response.is_over:
                del running[node]
        watcher(_in_order(found))
    return _in_order(found)


def topic_health(client: ClusterClient, name: str) -> dict[int, PartitionHealth]:
    """By partition; those that are not here are well. The topic must be known to the client."""

    def ask() -> dict[int, PartitionHealth]:
        client.freshen()
        nodes = {
            one.leader for one in client.metadata.topics[name].partitions.values()
        } & client.metadata.brokers.keys()
        requests = {node: DescribeTopicHealthRequest(name=name) for node in sorted(nodes)}
        responses = exchange_own(client, requests, DescribeTopicHealthResponse)
        for response in responses.values():
            check(response.error_code, response.error_message)
        return {
            one.partition_index: PartitionHealth(
                partition=one.partition_index,
                offline=one.offline,
                uncleanable=one.uncleanable,
                damaged=tuple((bad.first_offset, bad.end_offset) for bad in one.damaged),
                damaged_count=one.damaged_count,
                retention_risk=one.retention_risk,
            )
            for response in responses.values()
            for one in response.partitions
        }

    # Not again and again at a broker that does not know the question.
    return client.attempt(ask, repeatable=False)


def _start(
    client: ClusterClient, name: str, action: MaintenanceAction, partitions: Sequence[int] | None
) -> dict[int, int]:
    """The tasks by broker."""
    known = client.topic(name).partitions
    wanted = known if partitions is None else set(partitions)

    def ask() -> dict[int, int]:
        client.freshen()
        by_leader: dict[int, list[int]] = {}
        for index in sorted(wanted):
            by_leader.setdefault(client.leader(name, index), []).append(index)
        requests = {
            node: MaintainTopicRequest(name=name, action=action, partition_indexes=indexes)
            for node, indexes in by_leader.items()
        }
        responses = exchange_own(client, requests, MaintainTopicResponse)
        for response in responses.values():
            check(response.error_code, response.error_message)
        return {node: response.task_id for node, response in responses.items()}

    return client.attempt(ask, repeatable=False)


def _ask(client: ClusterClient, tasks: Mapping[int, int]) -> dict[int, DescribeTopicTaskResponse]:
    def ask() -> dict[int, DescribeTopicTaskResponse]:
        requests = {
            node: DescribeTopicTaskRequest(task_id=task, max_wait_ms=_WAIT_MS) for node, task in tasks.items()
        }
        responses = client.exchange(requests, DescribeTopicTaskResponse, timeout_s=client.request_timeout_s)
        progress: dict[int, DescribeTopicTaskResponse] = {}
        for node, response in responses.items():
            if isinstance(response, FlintError):
                raise response
            check(response.error_code, response.error_message)
            progress[node] = response
        return progress

    return client.attempt(ask)


def exchange_own(
    client: ClusterClient, requests: Mapping[int, Message], response_type: type[M]
) -> dict[int, M]:
    """For the first request of its kind: a broker that closes the connection at it does not know it."""
    responses: dict[int, M] = {}
    for node, one in client.exchange(requests, response_type, timeout_s=client.request_timeout_s).items():
        if isinstance(one, ConnectionLost) and one.by_broker:
            raise NotFlintMQ(one.address) from one
        if isinstance(one, FlintError):
            raise one
        responses[node] = one
    return responses


def _maintained(one: DescribeTopicTaskResponse.TaskPartition) -> PartitionMaintenance:
    return PartitionMaintenance(
        partition=one.partition_index,
        state=MaintenanceState(one.state),
        phase=one.phase,
        bytes_done=one.bytes_done,
        bytes_total=one.bytes_total,
        bytes_before=one.bytes_before,
        bytes_after=one.bytes_after,
        records_before=one.records_before,
        records_after=one.records_after,
        damaged=tuple((bad.first_offset, bad.end_offset) for bad in one.damaged),
        damaged_count=one.damaged_count,
        failure=one.failure,
    )


def _in_order(found: Mapping[int, PartitionMaintenance]) -> list[PartitionMaintenance]:
    return [found[index] for index in sorted(found)]
