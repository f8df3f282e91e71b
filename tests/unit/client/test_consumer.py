from __future__ import annotations

from typing import Any

import pytest

from flintmq.client.consumer import Consumer
from flintmq.client.fetched_records import read_batches
from flintmq.client.retries import ATTEMPTS
from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
)
from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord, build_batch
from support.broker.scripted_broker import TOPIC_ID, ScriptedBroker, TestClock, metadata, scripted_client


def batch(base_offset: int, count: int, **options: Any) -> bytes:
    records: list[NewRecord] = [(None, b"%d" % (base_offset + at), 0, ()) for at in range(count)]
    return build_batch(records, base_offset=base_offset, **options)


def fetched(records: bytes = b"", error: ErrorCode = ErrorCode.NONE) -> FetchResponse:
    partition = FetchResponse.PartitionData(partition_index=0, error_code=error, records=records)
    topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic])


def consuming(answers: list[Any], position: int = 0, starts: int = 0, **options: Any) -> Consumer:
    def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=starts)
        return ListOffsetsResponse(
            topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[found])]
        )

    broker = ScriptedBroker(
        {
            MetadataRequest: metadata(),
            FetchRequest: lambda _: answers.pop(0),
            ListOffsetsRequest: list_offsets,
        }
    )
    client = scripted_client(broker, TestClock())
    return Consumer(client, client.topic("t"), {0: position}, **options)


# ---- what is in the bytes


def test_reading_begins_inside_a_batch_and_ends_before_one_that_is_cut_off() -> None:
    data = batch(0, 5, codec=Codec.ZSTD) + batch(5, 2) + batch(7, 3)[:-1]
    found = read_batches(data, 3)
    assert [record.offset for record in found.records] == [3, 4, 5, 6]
    assert found.next_offset == 7


def test_markers_of_transactions_are_passed_over_but_move_the_offset() -> None:
    marker = build_batch(
        [(b"\0\0\0\1", b"\0\0\0\0\0\0", 0, ())], base_offset=2, producer_id=1, producer_epoch=0,
        is_transactional=True, is_control=True,
    )  # fmt: skip
    found = read_batches(batch(0, 2) + marker, 0)
    assert [record.value for record in found.records] == [b"0", b"1"]
    assert found.next_offset == 3


def test_a_batch_that_fails_its_crc_is_never_shown() -> None:
    damaged = bytearray(batch(4, 1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptionError, match="offset 4 fails its CRC"):
        read_batches(bytes(damaged), 0)


def test_bytes_that_are_no_batch_are_refused() -> None:
    with pytest.raises(CorruptionError, match="not a record batch"):
        read_batches(bytes(100), 9)


# ---- polling


def test_positions_move_past_what_was_returned() -> None:
    consumer = consuming([fetched(batch(0, 3)), fetched(), fetched(batch(3, 1))])
    assert [record.value for _, record in consumer.poll()] == [b"0", b"1", b"2"]
    assert consumer.positions == {0: 3}
    assert consumer.poll() == []
    assert [(partition, record.offset) for partition, record in consumer.poll()] == [(0, 3)]


def test_deleted_records_are_told_and_reading_goes_on_at_the_start() -> None:
    gaps: list[tuple[int, int, int]] = []
    consumer = consuming(
        [fetched(error=ErrorCode.OFFSET_OUT_OF_RANGE), fetched(batch(10, 1))],
        position=2,
        starts=10,
        on_gap=lambda *gap: gaps.append(gap),
    )
    assert consumer.poll() == []
    assert gaps == [(0, 2, 10)]
    assert [record.offset for _, record in consumer.poll()] == [10]


def test_a_lost_connection_is_waited_out() -> None:
    consumer = consuming([ConnectionResetError(104, "reset"), fetched(batch(0, 1))])
    assert consumer.poll() == []
    assert [record.value for _, record in consumer.poll()] == [b"0"]


def test_an_error_that_will_not_pass_is_raised() -> None:
    consumer = consuming([fetched(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(RequestError, match="t-0"):
        consumer.poll()


def test_failures_without_end_are_given_up() -> None:
    consumer = consuming([fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 20)
    for _ in range(ATTEMPTS - 1):
        assert consumer.poll() == []
    with pytest.raises(RequestError, match="t-0"):
        consumer.poll()
