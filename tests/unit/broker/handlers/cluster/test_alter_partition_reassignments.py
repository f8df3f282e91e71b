"""AlterPartitionReassignments and ListPartitionReassignments on one broker (KIP-455, KIP-860)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from support.broker.single_broker import NODE_ID, SingleBroker


def reassign(
    broker: SingleBroker,
    replicas: list[int] | None,
    *,
    topic: str = "t",
    index: int = 0,
    version: int = 1,
    factor_may_change: bool = True,
) -> ErrorCode:
    wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=index, replicas=replicas
    )
    message = AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        allow_replication_factor_change=factor_may_change,
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[wanted])],
    )
    answer = broker.ask(message, AlterPartitionReassignmentsResponse, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    [result] = answer.responses[0].partitions
    assert (result.error_message is None) == (result.error_code == 0)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_may_stay_where_it_is(broker: SingleBroker, version: int) -> None:
    broker.create("t")
    assert reassign(broker, [NODE_ID], version=version) is ErrorCode.NONE


def test_there_is_nothing_to_cancel(broker: SingleBroker) -> None:
    broker.create("t")
    assert reassign(broker, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("replicas", [[], [99], [NODE_ID, 99], [NODE_ID, NODE_ID]])
def test_other_brokers_are_refused(broker: SingleBroker, replicas: list[int]) -> None:
    broker.create("t")
    assert reassign(broker, replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_unknown_partition_is_told(broker: SingleBroker) -> None:
    broker.create("t")
    assert reassign(broker, [NODE_ID], index=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(broker, [NODE_ID], topic="none") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_forbidden_change_of_the_replication_factor_is_refused(broker: SingleBroker) -> None:
    """KIP-860."""
    broker.create("t")
    broker.services.metadata.image.topics["t"].partitions[0].value.replicas.append(99)
    assert reassign(broker, [NODE_ID], factor_may_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(broker, [NODE_ID], factor_may_change=True) is ErrorCode.NONE


@pytest.mark.parametrize("names", [None, ["t", "none"]])
def test_no_reassignment_is_ever_in_progress(broker: SingleBroker, names: list[str] | None) -> None:
    broker.create("t")
    wanted = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    topics = None if names is None else [wanted(name=name, partition_indexes=[0]) for name in names]
    answer = broker.ask(
        ListPartitionReassignmentsRequest(topics=topics), ListPartitionReassignmentsResponse, 0
    )
    assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])
