"""DeleteRecords: a later start, durable before the answer (KIP-107)."""

from __future__ import annotations

from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from support.broker.single_broker import SingleBroker

NOW = 1_700_000_000_000


def request_for(topic: str, offset: int, *, index: int = 0) -> DeleteRecordsRequest:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1000
    )


def delete(
    broker: SingleBroker, topic: str, offset: int, *, index: int = 0, version: int = 2
) -> tuple[int, int]:
    """Error and low watermark."""
    [answer] = broker.ask(request_for(topic, offset, index=index), DeleteRecordsResponse, version).topics
    [partition] = answer.partitions
    assert (answer.name, partition.partition_index) == (topic, index)
    return partition.error_code, partition.low_watermark


@pytest.fixture
def filled(broker: SingleBroker) -> SingleBroker:
    """Ten records, two to a segment."""
    broker.create("t", segment_bytes="180")
    for step in range(10):
        broker.append("t", NOW + step)
    assert len(broker.partition("t").log.segments) == 5
    return broker


@pytest.mark.parametrize("version", range(3))
def test_the_partition_begins_at_the_offset(filled: SingleBroker, version: int) -> None:
    assert delete(filled, "t", 5, version=version) == (0, 5)
    assert filled.partition("t").log.start_offset == 5


def test_minus_one_deletes_all_that_is_visible(filled: SingleBroker) -> None:
    filled.append("t", NOW, visible=False)
    assert delete(filled, "t", -1) == (0, 10)


def test_an_offset_that_is_gone_changes_nothing(filled: SingleBroker) -> None:
    assert delete(filled, "t", 5) == (0, 5)
    assert delete(filled, "t", 3) == (0, 5)


def test_an_offset_beyond_the_high_watermark_or_below_zero_is_out_of_range(filled: SingleBroker) -> None:
    filled.append("t", NOW, visible=False)
    assert delete(filled, "t", 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(filled, "t", -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert filled.partition("t").log.start_offset == 0


def test_whole_segments_below_the_start_lose_their_files(filled: SingleBroker) -> None:
    log = filled.partition("t").log
    assert delete(filled, "t", 5) == (0, 5)
    names = [name for name in filled.disk.list(log.directory) if name.endswith(".log")]
    assert names == [f"{base:020d}.log" for base in (4, 6, 8)]


def test_the_new_start_survives_a_power_loss_after_the_answer(
    filled: SingleBroker, start_broker: Any
) -> None:
    filled.loop.run_until_complete(
        filled.services.executor.run(filled.partition("t").log.prepare_flush().run)
    )
    assert delete(filled, "t", 5) == (0, 5)
    for _ in range(5):
        found = start_broker(disk=filled.disk.crash())
        log = found.partition("t").log
        assert log.start_offset == 5
        assert log.end_offset == 10


def test_without_a_durable_start_no_file_goes(filled: SingleBroker) -> None:
    log = filled.partition("t").log
    filled.disk.fail("sync")
    assert delete(filled, "t", 5) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert len([name for name in filled.disk.list(log.directory) if name.endswith(".log")]) == 5


def test_records_that_only_compaction_may_remove_stay(broker: SingleBroker) -> None:
    broker.create("compacted", cleanup_policy="compact")
    broker.create("both", cleanup_policy="compact,delete")
    broker.create("__consumer_offsets")
    assert delete(broker, "compacted", -1) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(broker, "both", -1) == (0, 0)
    assert delete(broker, "__consumer_offsets", -1) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


def test_an_unknown_partition_is_told(filled: SingleBroker) -> None:
    assert delete(filled, "none", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(filled, "t", 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_an_offline_log_is_a_storage_error(filled: SingleBroker) -> None:
    filled.partition("t").log.go_offline("the disk is gone")
    assert delete(filled, "t", 5) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def test_deletions_at_once_all_become_durable(filled: SingleBroker) -> None:
    requests = [request_for("t", offset) for offset in (2, 6, 4)]
    answers = filled.ask_together(requests, DeleteRecordsResponse, 2)
    assert [answer.topics[0].partitions[0].error_code for answer in answers] == [0, 0, 0]
    assert filled.partition("t").log.start_offset == 6


def test_a_deletion_while_a_flush_runs_leaves_later_segments_to_the_next(filled: SingleBroker) -> None:
    """The index files of a segment sealed meanwhile are still to be written."""
    log = filled.partition("t").log
    flush = log.prepare_flush()
    assert delete(filled, "t", 5) == (0, 5)
    filled.append("t", NOW)
    flush.run()
    log.flushed(flush, NOW)
    log.prepare_flush().run()
    assert f"{8:020d}.index" in filled.disk.list(log.directory)
