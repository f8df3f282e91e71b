"""MaintainTopic, DescribeTopicTask, DescribeTopicHealth: upkeep on demand, and what it says (R3, S5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintmq.broker.apis import ADVERTISED, APIS
from flintmq.broker.handlers.own.describe_topic_task import DAMAGED_MAX, WAIT_MS_MAX
from flintmq.errors import ErrorCode
from flintmq.partitions.maintenance.scheduler import TaskAction, TaskLimits
from flintmq.protocol.header import FIRST_OWN_KEY
from flintmq.protocol.maintenance import MaintenanceAction, MaintenanceState
from flintmq.protocol.messages import (
    DescribeTopicHealthRequest,
    DescribeTopicHealthResponse,
    DescribeTopicTaskRequest,
    DescribeTopicTaskResponse,
    MaintainTopicRequest,
    MaintainTopicResponse,
)
from flintmq.records.record import build_batch
from flintmq.security.principal import Principal
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.segment import LOG
from support.broker.single_broker import SingleBroker

COMPACT, RETAIN, VERIFY = MaintenanceAction
NOW = 1_700_000_000_000
DAY_MS = 86_400_000


def start(
    broker: SingleBroker, topic: str, action: int, partitions: list[int] | None = None
) -> MaintainTopicResponse:
    request = MaintainTopicRequest(name=topic, action=action, partition_indexes=partitions)
    return broker.ask(request, MaintainTopicResponse, 0)


def ask(broker: SingleBroker, task_id: int, max_wait_ms: int = 0) -> DescribeTopicTaskResponse:
    request = DescribeTopicTaskRequest(task_id=task_id, max_wait_ms=max_wait_ms)
    return broker.ask(request, DescribeTopicTaskResponse, 0)


def carry_out(
    broker: SingleBroker, topic: str, action: int, partitions: list[int] | None = None
) -> DescribeTopicTaskResponse:
    started = start(broker, topic, action, partitions)
    assert started.error_code == 0, started
    answer = ask(broker, started.task_id, 1)
    for _ in range(100):
        if answer.is_over:
            return answer
        answer = ask(broker, started.task_id, WAIT_MS_MAX)
    raise AssertionError(answer)


def health(broker: SingleBroker, topic: str) -> DescribeTopicHealthResponse:
    return broker.ask(DescribeTopicHealthRequest(name=topic), DescribeTopicHealthResponse, 0)


def append_keys(broker: SingleBroker, topic: str, *keys: bytes) -> None:
    """One batch for each key, to partition 0."""
    partition, now_ms = broker.partition(topic), broker.loop.clock.now_ms()
    for key in keys:
        batch = memoryview(bytearray(build_batch([(key, b"value of some length", now_ms, ())])))
        partition.append(batch, partition.check(batch, now_ms), now_ms)
    broker.loop.run_until_idle()


def damage(broker: SingleBroker, topic: str) -> None:
    """A byte of the first batch's records is another one from now on."""
    path = f"{broker.partition(topic).log.directory}/{0:020d}{LOG}"
    file = broker.disk.open(path)
    (byte,) = file.pread(1, 70)
    file.pwrite(bytes([byte ^ 1]), 70)
    file.close()


def test_own_requests_have_keys_of_their_own_and_are_not_advertised() -> None:
    own = [api for api in APIS if api.is_own]
    assert [api.key for api in own] == [FIRST_OWN_KEY + at for at in range(len(own))]
    assert len(own) == 5
    assert not set(own) & set(ADVERTISED)


def test_compaction_on_demand_leaves_the_last_record_of_each_key(broker: SingleBroker) -> None:
    broker.create("t", cleanup_policy="compact")
    append_keys(broker, "t", b"a", b"b", b"a", b"a", b"b")
    answer = carry_out(broker, "t", COMPACT)
    (part,) = answer.partitions
    assert (answer.name, answer.action, part.state) == ("t", COMPACT, MaintenanceState.DONE)
    assert (part.records_before, part.records_after) == (5, 2)
    assert part.bytes_before > part.bytes_after == broker.partition("t").log.size > 0
    assert part.failure is None


def test_retention_on_demand_lets_go_of_what_is_too_old(broker: SingleBroker) -> None:
    broker.create("t", retention_ms="1000", segment_bytes="180")
    for _ in range(4):
        broker.append("t", broker.loop.clock.now_ms() - DAY_MS)
    size = broker.partition("t").log.size
    (part,) = carry_out(broker, "t", RETAIN).partitions
    assert (part.state, part.records_before, part.records_after) == (MaintenanceState.DONE, 4, 0)
    assert (part.bytes_before, part.bytes_after) == (size, 0)
    assert broker.partition("t").log.start_offset == 4


def test_verification_finds_damage_which_is_told_from_then_on(broker: SingleBroker) -> None:
    broker.create("t", segment_bytes="180")
    for _ in range(4):
        broker.append("t", NOW)
    assert carry_out(broker, "t", VERIFY).partitions[0].damaged_count == 0
    assert health(broker, "t").partitions == []
    damage(broker, "t")
    (part,) = carry_out(broker, "t", VERIFY).partitions
    assert part.state == MaintenanceState.DONE
    assert [(one.first_offset, one.end_offset) for one in part.damaged] == [(0, 1)]
    (told,) = health(broker, "t").partitions
    assert (told.partition_index, told.offline, told.uncleanable, told.damaged_count) == (0, None, None, 1)
    assert [(one.first_offset, one.end_offset) for one in told.damaged] == [(0, 1)]


def test_compaction_of_a_damaged_log_fails_with_words_and_is_given_up(broker: SingleBroker) -> None:
    broker.create("t", cleanup_policy="compact")
    append_keys(broker, "t", b"a", b"b", b"a")
    damage(broker, "t")
    (part,) = carry_out(broker, "t", COMPACT).partitions
    assert part.state == MaintenanceState.FAILED
    assert "cannot be compacted" in str(part.failure)
    (told,) = health(broker, "t").partitions
    assert told.uncleanable
    assert told.damaged_count == 1


def test_a_partition_that_fails_does_not_keep_the_others(broker: SingleBroker) -> None:
    broker.create("t", 3, cleanup_policy="compact")
    append_keys(broker, "t", b"a", b"a")
    damage(broker, "t")
    parts = carry_out(broker, "t", COMPACT).partitions
    assert [part.state for part in parts] == [
        MaintenanceState.FAILED, MaintenanceState.DONE, MaintenanceState.DONE,
    ]  # fmt: skip


def test_partitions_can_be_chosen_and_count_once(broker: SingleBroker) -> None:
    broker.create("t", 4)
    parts = carry_out(broker, "t", VERIFY, [3, 1, 3, 3]).partitions
    assert [part.partition_index for part in parts] == [3, 1]
    assert [part.partition_index for part in carry_out(broker, "t", VERIFY).partitions] == [0, 1, 2, 3]
    assert carry_out(broker, "t", VERIFY, []).partitions == []


@pytest.mark.parametrize("action", MaintenanceAction)
def test_an_unknown_topic_or_partition_is_refused(broker: SingleBroker, action: MaintenanceAction) -> None:
    broker.create("t", cleanup_policy="compact,delete")
    refused = start(broker, "nowhere", action)
    assert (refused.error_code, refused.task_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert "nowhere" in str(refused.error_message)
    for index in (1, -1, 2**31 - 1):
        assert start(broker, "t", action, [0, index]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert health(broker, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("policy", "action", "word"), [("delete", COMPACT, "compact"), ("compact", RETAIN, "delete")]
)
def test_what_the_cleanup_policy_does_not_allow_is_refused_with_words(
    broker: SingleBroker, policy: str, action: MaintenanceAction, word: str
) -> None:
    broker.create("t", cleanup_policy=policy)
    refused = start(broker, "t", action)
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert f"cleanup.policy of t is {policy}; this needs {word}" in str(refused.error_message)


@pytest.mark.parametrize("action", [-1, 3, 127])
def test_an_unknown_action_is_refused(broker: SingleBroker, action: int) -> None:
    broker.create("t")
    assert start(broker, "t", action).error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_task_is_refused(broker: SingleBroker) -> None:
    for task_id in (-1, 0, 1, 2**63 - 1):
        answer = ask(broker, task_id, 5000)
        assert answer.error_code == ErrorCode.RESOURCE_NOT_FOUND
        assert str(task_id) in str(answer.error_message)


def test_a_task_does_not_disclose_the_topic_to_a_client_that_may_not_describe_it(
    start_broker: Callable[..., SingleBroker],
) -> None:
    """Tasks are numbered: anybody can guess one."""
    broker = start_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        }
    )
    broker.principal = Principal("User", "admin")
    broker.create("hidden", cleanup_policy="compact")
    task_id = start(broker, "hidden", COMPACT).task_id
    broker.principal = Principal("User", "mallory")
    answer = ask(broker, task_id)
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "hidden" not in repr(answer)


def test_tasks_at_once_are_bounded_and_a_finished_one_makes_room(
    start_broker: Callable[..., SingleBroker],
) -> None:
    broker = start_broker(task_limits=TaskLimits(running_max=2))
    broker.create("t")
    requests = [MaintainTopicRequest(name="t", action=VERIFY) for _ in range(3)]
    answers = broker.ask_together(requests, MaintainTopicResponse, 0)
    assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    for answer in answers[:2]:
        assert ask(broker, answer.task_id, WAIT_MS_MAX).is_over
    assert start(broker, "t", VERIFY).error_code == 0


@pytest.mark.parametrize("limits", [TaskLimits(kept_max=2), TaskLimits(partitions_kept_max=4)])
def test_finished_tasks_are_forgotten_when_there_are_too_many(
    start_broker: Callable[..., SingleBroker], limits: TaskLimits
) -> None:
    broker = start_broker(task_limits=limits)
    broker.create("t", 2)
    tasks = []
    for _ in range(3):
        tasks.append(start(broker, "t", VERIFY).task_id)
        assert ask(broker, tasks[-1], WAIT_MS_MAX).is_over
    assert [ask(broker, task).error_code for task in tasks] == [ErrorCode.RESOURCE_NOT_FOUND, 0, 0]


def test_a_patient_question_is_answered_when_the_task_is_over_or_its_time_is_up(broker: SingleBroker) -> None:
    """A second is the longest wait, whatever the client asks for."""
    broker.create("t")
    broker.append("t", NOW)
    clock = broker.loop.clock

    async def scenario() -> tuple[DescribeTopicTaskResponse, float, DescribeTopicTaskResponse]:
        turn = broker.services.maintenance._verifying
        await turn.acquire()
        task = broker.services.maintenance.start(TaskAction.VERIFY, "t", [broker.partition("t")])
        question = DescribeTopicTaskRequest(task_id=task.id, max_wait_ms=2**31 - 1)
        began = clock.monotonic()
        early = await broker.exchange(question, DescribeTopicTaskResponse, 0)
        waited = clock.monotonic() - began
        turn.release()
        await task.over.wait()
        return early, waited, await broker.exchange(question, DescribeTopicTaskResponse, 0)

    early, waited, late = broker.loop.run_until_complete(scenario())
    assert not early.is_over
    assert early.partitions[0].state == MaintenanceState.RUNNING
    assert waited == pytest.approx(WAIT_MS_MAX / 1000, abs=0.01)
    assert late.is_over


def test_a_large_topic_is_told_in_turns(broker: SingleBroker) -> None:
    broker.create("t", 1100)
    parts = carry_out(broker, "t", VERIFY).partitions
    assert [part.partition_index for part in parts] == list(range(1100))
    assert {part.state for part in parts} == {MaintenanceState.DONE}


def test_a_bounded_number_of_damaged_ranges_is_told_neighbours_as_one(broker: SingleBroker) -> None:
    broker.create("t")
    log = broker.partition("t").log
    for offset in range(0, 2 * DAMAGED_MAX + 10, 2):
        log.add_corrupt(CorruptRange(offset, offset + 1))
    log.add_corrupt(CorruptRange(1, 2))
    (told,) = health(broker, "t").partitions
    assert told.damaged_count == DAMAGED_MAX + 4
    assert len(told.damaged) == DAMAGED_MAX
    assert (told.damaged[0].first_offset, told.damaged[0].end_offset) == (0, 3)


def test_an_offline_log_is_told_and_not_worked_on(broker: SingleBroker) -> None:
    broker.create("t")
    broker.partition("t").log.go_offline("the disk is gone")
    (told,) = health(broker, "t").partitions
    assert told.offline == "the disk is gone"
    assert start(broker, "t", VERIFY, [0]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (part,) = carry_out(broker, "t", RETAIN).partitions
    assert (part.state, part.failure) == (MaintenanceState.FAILED, "the disk is gone")
