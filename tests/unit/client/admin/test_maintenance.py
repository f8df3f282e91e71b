"""Upkeep on demand as a client sees it: every leader is asked, once to begin and then until it is done (R3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flintmq.client.admin.maintenance import PartitionMaintenance, maintain_topic, topic_health
from flintmq.client.errors import ConnectionLost, NotFlintMQ
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.maintenance import MaintenanceAction, MaintenanceState
from flintmq.protocol.messages import (
    DescribeTopicHealthRequest,
    DescribeTopicHealthResponse,
    DescribeTopicTaskRequest,
    DescribeTopicTaskResponse,
    MaintainTopicRequest,
    MaintainTopicResponse,
    MetadataRequest,
)
from support.broker.scripted_broker import ScriptedBroker, TestClock, metadata, scripted_client

VERIFY = MaintenanceAction.VERIFY
DONE, RUNNING = MaintenanceState.DONE, MaintenanceState.RUNNING
CLOSED = ConnectionResetError(104, "Connection reset by peer")

TaskPartition = DescribeTopicTaskResponse.TaskPartition


def task(*states: tuple[int, MaintenanceState], is_over: bool) -> DescribeTopicTaskResponse:
    return DescribeTopicTaskResponse(
        name="t",
        action=VERIFY,
        is_over=is_over,
        partitions=[TaskPartition(partition_index=index, state=state) for index, state in states],
    )


def in_turn(*answers: Any) -> Callable[[Any], Any]:
    rest = list(answers)
    return lambda request: rest.pop(0)


def begun(request: MaintainTopicRequest) -> MaintainTopicResponse:
    """The task is named after its first partition."""
    assert request.partition_indexes
    return MaintainTopicResponse(task_id=100 + request.partition_indexes[0])


def asked(broker: ScriptedBroker, kind: type[Any]) -> list[Any]:
    return [request for request in broker.requests if isinstance(request, kind)]


def test_each_leader_is_given_its_partitions_and_asked_until_its_task_is_over() -> None:
    over = {
        100: in_turn(task((0, RUNNING), is_over=False), task((0, DONE), is_over=True)),
        101: in_turn(task((1, DONE), (2, DONE), is_over=True)),
    }
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(3, leaders={0: 0, 1: 1, 2: 1}, brokers=2),
            MaintainTopicRequest: begun,
            DescribeTopicTaskRequest: lambda request: over[request.task_id](request),
        }
    )
    seen: list[list[MaintenanceState]] = []
    found = maintain_topic(
        scripted_client(broker), "t", VERIFY, watcher=lambda parts: seen.append([one.state for one in parts])
    )
    assert [one.partition for one in found] == [0, 1, 2]
    assert seen == [[RUNNING, DONE, DONE], [DONE, DONE, DONE]]
    assert [one.partition_indexes for one in asked(broker, MaintainTopicRequest)] == [[0], [1, 2]]
    assert [one.task_id for one in asked(broker, DescribeTopicTaskRequest)] == [100, 101, 100]


def test_partitions_can_be_chosen() -> None:
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(3),
            MaintainTopicRequest: begun,
            DescribeTopicTaskRequest: in_turn(task((2, DONE), is_over=True)),
        }
    )
    (found,) = maintain_topic(scripted_client(broker), "t", VERIFY, partitions=[2, 2])
    assert isinstance(found, PartitionMaintenance)
    assert asked(broker, MaintainTopicRequest)[0].partition_indexes == [2]
    with pytest.raises(RequestError, match="t-9"):
        maintain_topic(scripted_client(broker), "t", VERIFY, partitions=[9])


def test_a_broker_that_closes_the_connection_is_not_flintmq() -> None:
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(),
            MaintainTopicRequest: lambda _: CLOSED,
            DescribeTopicHealthRequest: lambda _: CLOSED,
        }
    )
    clock = TestClock()
    with pytest.raises(NotFlintMQ, match="n0:9092 is not a FlintMQ broker, or an older one"):
        maintain_topic(scripted_client(broker, clock), "t", VERIFY)
    client = scripted_client(broker, clock)
    client.topic("t")
    with pytest.raises(NotFlintMQ):
        topic_health(client, "t")
    assert clock.slept == [], "to ask again would not help"
    assert len(asked(broker, MaintainTopicRequest)) == len(asked(broker, DescribeTopicHealthRequest)) == 1


def test_a_broker_that_falls_silent_is_not_taken_for_another_kind() -> None:
    broker = ScriptedBroker({MetadataRequest: metadata(), MaintainTopicRequest: lambda _: None})
    with pytest.raises(ConnectionLost, match="no answer"):
        maintain_topic(scripted_client(broker), "t", VERIFY)


def test_a_connection_lost_while_the_task_runs_is_made_anew() -> None:
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(),
            MaintainTopicRequest: begun,
            DescribeTopicTaskRequest: in_turn(CLOSED, task((0, DONE), is_over=True)),
        }
    )
    (found,) = maintain_topic(scripted_client(broker), "t", VERIFY)
    assert found.state is DONE
    assert len(asked(broker, MaintainTopicRequest)) == 1


def test_a_task_that_went_with_its_broker_s_process_is_told() -> None:
    gone = DescribeTopicTaskResponse(error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="started anew")
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(),
            MaintainTopicRequest: begun,
            DescribeTopicTaskRequest: in_turn(gone),
        }
    )
    with pytest.raises(RequestError, match="started anew"):
        maintain_topic(scripted_client(broker), "t", VERIFY)


@pytest.mark.parametrize(
    ("code", "times"), [(ErrorCode.POLICY_VIOLATION, 1), (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 2)]
)
def test_what_the_broker_refuses_is_raised_unless_it_may_pass(code: ErrorCode, times: int) -> None:
    refused = MaintainTopicResponse(error_code=code, error_message="no")
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(),
            MaintainTopicRequest: in_turn(*[refused] * times, MaintainTopicResponse(task_id=1)),
            DescribeTopicTaskRequest: in_turn(task((0, DONE), is_over=True)),
        }
    )
    if code is ErrorCode.POLICY_VIOLATION:
        with pytest.raises(RequestError, match="no"):
            maintain_topic(scripted_client(broker), "t", VERIFY)
    else:
        assert maintain_topic(scripted_client(broker), "t", VERIFY)[0].state is DONE


def test_health_is_told_by_partition() -> None:
    bad = DescribeTopicHealthResponse.PartitionHealth(
        partition_index=1,
        uncleanable="a batch is damaged",
        damaged_count=200,
        damaged=[DescribeTopicHealthResponse.OffsetRange(first_offset=3, end_offset=5)],
    )
    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(2),
            DescribeTopicHealthRequest: lambda _: DescribeTopicHealthResponse(partitions=[bad]),
        }
    )
    client = scripted_client(broker)
    client.topic("t")
    health = topic_health(client, "t")
    assert list(health) == [1]
    assert (health[1].uncleanable, health[1].damaged, health[1].damaged_count) == (
        "a batch is damaged", ((3, 5),), 200,
    )  # fmt: skip
