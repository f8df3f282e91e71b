"""ListOffsets: starts, ends, times and the markers of tiering (KIP-734, KIP-405, KIP-1023)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from support.broker.single_broker import SingleBroker

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NOW = 1_700_000_000_000


def question(
    timestamp: int,
    *,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    isolation: int = 0,
    replica: int = -1,
) -> ListOffsetsRequest:
    wanted = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    return ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])],
    )


def ask(broker: SingleBroker, message: ListOffsetsRequest, version: int = 11) -> tuple[int, int, int, int]:
    """Error, timestamp, offset and epoch of the one partition asked for."""
    [topic] = broker.ask(message, ListOffsetsResponse, version).topics
    [partition] = topic.partitions
    return partition.error_code, partition.timestamp, partition.offset, partition.leader_epoch


@pytest.fixture
def filled(broker: SingleBroker) -> SingleBroker:
    """Offsets 0–1 at NOW and NOW+10, 2–3 at NOW+30 and NOW+20."""
    broker.create("t")
    broker.append("t", NOW, NOW + 10)
    broker.append("t", NOW + 30, NOW + 20)
    return broker


@pytest.mark.parametrize("version", range(1, 12))
def test_start_and_end_in_every_version(filled: SingleBroker, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert ask(filled, question(EARLIEST), version) == (0, -1, 0, epoch)
    assert ask(filled, question(LATEST), version) == (0, -1, 4, epoch)


def test_start_and_end_of_an_empty_partition_carry_the_leader_epoch(broker: SingleBroker) -> None:
    broker.create("t")
    assert ask(broker, question(EARLIEST)) == (0, -1, 0, 0)
    assert ask(broker, question(LATEST)) == (0, -1, 0, 0)


def test_start_and_end_are_answered_without_waiting(filled: SingleBroker) -> None:
    """Spark asks twice for every few hundred records: no task, no thread."""
    assert filled.answers_at_once(question(LATEST), 9)
    assert filled.answers_at_once(question(EARLIEST), 9)
    assert not filled.answers_at_once(question(NOW), 9)


def test_the_first_record_of_a_time_is_found_inside_its_batch(filled: SingleBroker) -> None:
    assert ask(filled, question(0)) == (0, NOW, 0, 0)
    assert ask(filled, question(NOW + 1)) == (0, NOW + 10, 1, 0)
    assert ask(filled, question(NOW + 20)) == (0, NOW + 30, 2, 0)


def test_a_time_after_the_last_record_finds_nothing(filled: SingleBroker) -> None:
    assert ask(filled, question(NOW + 31)) == (0, -1, -1, -1)


def test_a_time_is_found_across_segments(broker: SingleBroker) -> None:
    broker.create("t", segment_bytes="200")
    for step in range(20):
        broker.append("t", NOW + 10 * step)
    assert len(broker.partition("t").log.segments) > 3
    assert ask(broker, question(NOW + 101)) == (0, NOW + 110, 11, 0)


def test_deleted_records_are_not_found_by_time(filled: SingleBroker) -> None:
    filled.partition("t").log.advance_start(1)
    assert ask(filled, question(0)) == (0, NOW + 10, 1, 0)
    assert ask(filled, question(EARLIEST)) == (0, -1, 1, 0)


def test_the_record_with_the_largest_timestamp(filled: SingleBroker) -> None:
    assert ask(filled, question(MAX_TIMESTAMP)) == (0, NOW + 30, 2, 0)


def test_the_largest_timestamp_of_an_empty_partition_is_nowhere(broker: SingleBroker) -> None:
    broker.create("t")
    assert ask(broker, question(MAX_TIMESTAMP)) == (0, -1, -1, -1)


def test_read_committed_ends_at_the_first_open_transaction(broker: SingleBroker) -> None:
    broker.create("t")
    broker.append("t", NOW)
    broker.append("t", NOW + 10, producer_id=5, transactional=True)
    assert ask(broker, question(LATEST, isolation=1)) == (0, -1, 1, 0)
    assert ask(broker, question(LATEST, isolation=0)) == (0, -1, 2, 0)
    # What was written but is not stable counts as not found.
    assert ask(broker, question(NOW + 5, isolation=1)) == (0, -1, -1, -1)
    assert ask(broker, question(NOW + 5, isolation=0)) == (0, NOW + 10, 1, 0)


def test_a_replica_sees_the_end_of_the_log(broker: SingleBroker) -> None:
    broker.create("t")
    broker.append("t", NOW)
    broker.append("t", NOW + 10, visible=False)
    assert ask(broker, question(LATEST)) == (0, -1, 1, 0)
    assert ask(broker, question(LATEST, replica=7)) == (0, -1, 2, 0)
    assert ask(broker, question(NOW + 10)) == (0, -1, -1, -1)
    assert ask(broker, question(NOW + 10, replica=7)) == (0, NOW + 10, 1, 0)


def test_without_tiering_all_is_local_and_nothing_tiered(filled: SingleBroker) -> None:
    assert ask(filled, question(EARLIEST_LOCAL)) == (0, -1, 0, 0)
    assert ask(filled, question(LATEST_TIERED)) == (0, -1, -1, -1)
    assert ask(filled, question(PENDING_UPLOAD)) == (0, -1, -1, -1)


@pytest.mark.parametrize(
    ("marker", "first"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING_UPLOAD, 11)]
)
def test_a_marker_is_refused_before_its_version(filled: SingleBroker, marker: int, first: int) -> None:
    assert ask(filled, question(marker), first)[0] == 0
    assert ask(filled, question(marker), first - 1) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


def test_an_unknown_marker_is_refused(filled: SingleBroker) -> None:
    assert ask(filled, question(-7))[0] == ErrorCode.UNSUPPORTED_VERSION


def test_an_unknown_topic_or_partition_is_told(filled: SingleBroker) -> None:
    assert ask(filled, question(LATEST, topic="none"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, question(LATEST, index=1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, question(LATEST, index=-1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_with_another_leader_epoch_is_fenced(filled: SingleBroker) -> None:
    """KIP-320."""
    filled.partition("t").leader_epoch = 2
    assert ask(filled, question(LATEST, epoch=2))[0] == 0
    assert ask(filled, question(LATEST, epoch=1))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(filled, question(LATEST, epoch=3))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_offline_log_is_a_storage_error(filled: SingleBroker) -> None:
    filled.partition("t").log.go_offline("the disk is gone")
    assert ask(filled, question(LATEST))[0] == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failing_disk_is_a_storage_error_of_that_partition(filled: SingleBroker) -> None:
    filled.disk.fail("read")
    assert ask(filled, question(NOW))[0] == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_asked_for_twice_is_refused(filled: SingleBroker) -> None:
    message = question(LATEST)
    message.topics += question(EARLIEST).topics + question(LATEST, topic="none").topics
    topics = filled.ask(message, ListOffsetsResponse, 11).topics
    assert [topic.partitions[0].error_code for topic in topics] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
