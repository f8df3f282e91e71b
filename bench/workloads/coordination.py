"""What coordinators do: offset commits at a steady rate, and a group of fifty that rebalances."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.figures import Figure, cpu, latencies
from bench.loads import Topic, refuse
from bench.wire import Connection, body_of, frame
from bench.workloads.target import Target, Workload
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

COMMITS_PER_S: Final = 1000
MEMBERS: Final = 50

_COMMIT_VERSION: Final = 8
_FIND_VERSION: Final = 3
_JOIN_VERSION: Final = 5
_SYNC_VERSION: Final = 3
_LEAVE_VERSION: Final = 3
_GROUPS: Final = 10
_WAIT_S: Final = 60.0
_POLL_S: Final = 0.05
_SESSION_MS: Final = 30_000
_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

_names = itertools.count(1)


def find_coordinator(connection: Connection, key: str, key_type: int = 0) -> None:
    """Wait until somebody looks after this name; with one node, the one we are connected to."""
    request = FindCoordinatorRequest(key=key, key_type=key_type)
    deadline = time.monotonic() + _WAIT_S
    while True:
        answer = connection.call(request, FindCoordinatorResponse, _FIND_VERSION)
        if answer.error_code not in _NOT_YET or time.monotonic() > deadline:
            refuse(answer.error_code)
            return
        time.sleep(_POLL_S)


# ---- commits


def _commit(group: str, topic: Topic, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=offset % topic.partitions, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic.name, partitions=[partition])],
    )


def _is_committed(answer: OffsetCommitResponse) -> bool:
    """False if the coordinator is not there yet."""
    (partition,) = answer.topics[0].partitions
    if partition.error_code in _NOT_YET:
        return False
    refuse(partition.error_code)
    return True


def _commits(target: Target) -> list[Figure]:
    """One at a time, each when it is due: what a commit costs does not depend on how many come at once."""
    count = target.scaled(10 * COMMITS_PER_S, least=50)
    groups = [f"bench-{next(_names)}" for _ in range(_GROUPS)]
    took: list[float] = []
    with target.topic() as topic, target.connect() as connection:
        for group in groups:
            find_coordinator(connection, group)
            deadline = time.monotonic() + _WAIT_S
            while not _is_committed(
                connection.call(_commit(group, topic, 0), OffsetCommitResponse, _COMMIT_VERSION)
            ):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the coordinator of {group} is not there after {_WAIT_S} s")
                time.sleep(_POLL_S)
        _commit_at_rate(connection, topic, groups, target.scaled(2 * COMMITS_PER_S, least=50))
        with target.measured() as meter:
            took = _commit_at_rate(connection, topic, groups, count)
    return [
        cpu("CPU per commit", meter.cost.broker_cpu_s, per=count / 1e6, unit="µs", goal_ratio=0.5),
        *latencies(took, name="commit"),
    ]


def _commit_at_rate(connection: Connection, topic: Topic, groups: Sequence[str], count: int) -> list[float]:
    took = []
    began = time.perf_counter()
    for index in range(count):
        wait = began + index / COMMITS_PER_S - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        sent = time.perf_counter()
        request = _commit(groups[index % len(groups)], topic, index)
        answer = connection.call(request, OffsetCommitResponse, _COMMIT_VERSION)
        took.append(time.perf_counter() - sent)
        refuse(answer.topics[0].partitions[0].error_code)
    return took


# ---- rebalances


class _Group:
    """Members with a connection each, which all do the same at once."""

    def __init__(self, name: str, connections: Sequence[Connection]) -> None:
        self._name = name
        self._connections = connections
        self._ids = [""] * len(connections)

    def rebalance(self, turn: int) -> None:
        """All join with something new to say, so that a new generation is needed, and wait for their share."""
        joined = self._join(turn)
        if any(one.error_code == ErrorCode.MEMBER_ID_REQUIRED for one in joined):
            self._ids = [one.member_id for one in joined]
            joined = self._join(turn)
        for one in joined:
            refuse(one.error_code)
        self._ids = [one.member_id for one in joined]
        requests = []
        for member_id, one in zip(self._ids, joined, strict=True):
            is_leader = one.leader == member_id
            assignments = [
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=other.member_id, assignment=b"share")
                for other in one.members
                if is_leader
            ]
            requests.append(
                SyncGroupRequest(
                    group_id=self._name,
                    generation_id=one.generation_id,
                    member_id=member_id,
                    assignments=assignments,
                )
            )
        for connection, request in zip(self._connections, requests, strict=True):
            connection.send(frame(request, _SYNC_VERSION))
        for connection in self._connections:
            refuse(body_of(connection.read(), SyncGroupResponse, _SYNC_VERSION).error_code)

    def _join(self, turn: int) -> list[JoinGroupResponse]:
        for connection, member_id in zip(self._connections, self._ids, strict=True):
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(
                name="bench", metadata=turn.to_bytes(4, "big")
            )
            request = JoinGroupRequest(
                group_id=self._name,
                session_timeout_ms=_SESSION_MS,
                rebalance_timeout_ms=_SESSION_MS,
                member_id=member_id,
                protocol_type="bench",
                protocols=[protocol],
            )
            connection.send(frame(request, _JOIN_VERSION))
        return [
            body_of(connection.read(), JoinGroupResponse, _JOIN_VERSION) for connection in self._connections
        ]

    def leave(self) -> None:
        for connection, member_id in zip(self._connections, self._ids, strict=True):
            members = [LeaveGroupRequest.MemberIdentity(member_id=member_id)]
            request = LeaveGroupRequest(group_id=self._name, members=members)
            connection.call(request, LeaveGroupResponse, _LEAVE_VERSION)


@contextmanager
def _members(target: Target) -> Iterator[_Group]:
    name = f"bench-{next(_names)}"
    with ExitStack() as connections:
        opened = [connections.enter_context(target.connect()) for _ in range(MEMBERS)]
        find_coordinator(opened[0], name)
        group = _Group(name, opened)
        yield group
        group.leave()


def _rebalances(target: Target) -> list[Figure]:
    count = target.scaled(100, least=3)
    warm = target.scaled(20, least=2)
    took = []
    with _members(target) as group:
        for turn in range(warm):
            group.rebalance(turn)
        with target.measured() as meter:
            for turn in range(warm, warm + count):
                began = time.perf_counter()
                group.rebalance(turn)
                took.append(time.perf_counter() - began)
    return [
        *latencies(took, name="rebalance", goal_ratios=(1.0, None)),
        cpu("CPU per rebalance", meter.cost.broker_cpu_s, per=count / 1e3, unit="ms"),
    ]


WORKLOADS: Final = (
    Workload("commits", "1,000 offset commits a second, of ten groups in turn", _commits),
    Workload("rebalance", "fifty members join anew and get their shares, raw", _rebalances),
)
