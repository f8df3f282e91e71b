"""Idempotent producers: sequences, epochs, repetitions, snapshots (KIP-98, KIP-360)."""

from __future__ import annotations

import struct

import pytest

from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.records.batch import MAX_INT32, BatchHeader, read_header
from flintmq.records.markers import Marker
from flintmq.storage.producer_state import ProducerState
from support.log.on_simulated_disk import Bench
from support.wire.batches import append, produced


def batch(sequence: int, *, count: int = 1, epoch: int = 0, time: int = 0, txn: bool = False) -> BatchHeader:
    return read_header(
        produced(
            *[b"x"] * count,
            producer_id=9,
            epoch=epoch,
            sequence=sequence,
            timestamp=time,
            is_transactional=txn,
        )
    )


def refused(producers: ProducerState, header: BatchHeader) -> ErrorCode:
    with pytest.raises(RequestError) as error:
        producers.check(header)
    return error.value.code


def with_batches(*batches: BatchHeader) -> ProducerState:
    producers, offset = ProducerState(), 100
    for header in batches:
        assert producers.check(header) is None
        producers.record(header, offset)
        offset += header.record_count
    return producers


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    producers = with_batches(batch(0, count=3))
    assert producers.check(batch(3)) is None
    assert refused(producers, batch(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, batch(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_known_when_it_is_sent_again() -> None:
    producers = with_batches(*(batch(n * 2, count=2) for n in range(8)))
    for n in range(3, 8):
        known = producers.check(batch(n * 2, count=2))
        assert known is not None
        assert (known.first_offset, known.last_offset) == (100 + n * 2, 101 + n * 2)
    assert refused(producers, batch(4, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, batch(14, count=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero() -> None:
    producers = with_batches(batch(MAX_INT32 - 2, count=2), batch(MAX_INT32, count=3))
    assert producers.check(batch(2)) is None
    assert refused(producers, batch(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    known = producers.check(batch(MAX_INT32, count=3))
    assert known is not None
    assert (known.first_sequence, known.last_sequence) == (MAX_INT32, 1)
    again = ProducerState.decode(producers.encode())
    assert again.check(batch(MAX_INT32, count=3)) == known


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerState().check(batch(77)) is None


def test_a_newer_epoch_starts_at_zero_and_fences_the_older() -> None:
    producers = with_batches(batch(0), batch(1))
    assert refused(producers, batch(2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(batch(0, epoch=1)) is None
    producers.record(batch(0, epoch=1), 200)
    assert refused(producers, batch(2, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(producers, batch(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(producers, batch(1, count=2, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    known = producers.check(batch(0, epoch=1))
    assert known is not None
    assert known.first_offset == 200


def test_an_idle_producer_is_forgotten_but_never_within_a_transaction() -> None:
    producers = with_batches(batch(0, time=1000))
    producers.expire(1000)
    assert len(producers) == 1
    producers.expire(1001)
    assert len(producers) == 0
    producers = with_batches(batch(0, time=1000, txn=True))
    producers.expire(5000)
    assert len(producers) == 1


def test_a_snapshot_gives_back_every_remembered_batch() -> None:
    producers = with_batches(*(batch(n, time=1000 + n) for n in range(7)))
    again = ProducerState.decode(producers.encode())
    assert [p.batches for p in again] == [p.batches for p in producers]
    assert [p.last_timestamp for p in again] == [1006]
    assert again.encode() == producers.encode()


def test_a_snapshot_keeps_open_transactions_and_producers_that_only_have_a_marker() -> None:
    producers = with_batches(batch(0, txn=True), batch(1, txn=True))
    producers.end_transaction(Marker(50, 3, 2, committed=True), timestamp=77)
    again = ProducerState.decode(producers.encode())
    assert again.first_unstable_offset == 100
    assert [p.producer_id for p in again] == [9, 50]
    assert again.end_transaction(Marker(9, 0, 2, committed=True), 0) == 100
    assert again.first_unstable_offset is None
    assert again.encode() != producers.encode()


def test_the_snapshot_has_kafkas_layout_and_the_last_entry_of_a_producer_is_the_one_kafka_would_write() -> (
    None
):
    data = with_batches(batch(0, count=2, time=5), batch(2, count=3, time=6)).encode()
    version, _, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 2)
    entries = list(struct.iter_unpack(">qhiqiqiq", data[10:]))
    assert entries[-1] == (9, 0, 4, 104, 2, 6, -1, -1)


def test_a_damaged_snapshot_is_refused() -> None:
    data = with_batches(batch(0), batch(1)).encode()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptionError):
            ProducerState.decode(bytes(damaged))
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            ProducerState.decode(data[:size])


# -- in a log


def test_a_repetition_is_answered_with_its_original_offset_and_not_written() -> None:
    bench = Bench()
    for sequence in range(6):
        append(bench.log, produced(b"x", producer_id=9, epoch=0, sequence=sequence))
    size = bench.log.size
    for sequence in range(1, 6):
        again = append(bench.log, produced(b"x", producer_id=9, epoch=0, sequence=sequence))
        assert (again.base_offset, again.last_offset) == (sequence, sequence)
    assert (bench.log.end_offset, bench.log.size) == (6, size)


def test_a_repetition_in_a_topic_with_append_time_is_told_the_original_time() -> None:
    bench = Bench()
    append(bench.log, produced(b"x", producer_id=9, epoch=0, sequence=0, append_time=1000))
    again = append(bench.log, produced(b"x", producer_id=9, epoch=0, sequence=0, append_time=2000))
    assert (again.base_offset, again.last_offset, again.append_time_ms) == (0, 0, 1000)


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_a_repetition_is_still_known(clean: bool) -> None:
    bench = Bench(segment_bytes=400)
    for sequence in range(12):
        append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=sequence))
    if clean:
        bench.close()
    bench.open(clean=clean)
    for sequence in range(7, 12):
        again = append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=sequence))
        assert again.base_offset == sequence
    assert append(bench.log, produced(bytes(60), producer_id=9, epoch=0, sequence=12)).base_offset == 12
