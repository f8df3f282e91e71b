"""One batch in, and what becomes of it (KIP-58, KIP-98, KIP-534)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from flintmq.errors import CorruptionError
from flintmq.records.batch import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    BatchHeader,
    assign_offsets,
    crc_is_right,
    read_header,
)
from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord, Record, build_batch, records_of
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.compaction.batch_filter import BatchFilter, BatchOutcome, FilteredBatch
from flintmq.storage.compaction.offset_map import OffsetMap
from flintmq.storage.compaction.transactions import CleanedTransactions

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
BASE = 100
LIMIT = 1 << 20
COMMIT_KEY, ABORT_KEY = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"


def batch_filter(
    newest: Iterable[tuple[bytes, int]] = (),
    *,
    latest_offset: int = 999,
    end_offset: int = 1000,
    aborted: Iterable[AbortedTransaction] = (),
    producers: dict[int, tuple[int, int]] | None = None,
    now_ms: int = NOW_MS,
) -> BatchFilter:
    keys = OffsetMap(LIMIT, 0.9, first_offset=500, end_offset=1000)
    for key, offset in newest:
        keys.put_all([key], [offset])
    return BatchFilter(
        keys=keys,
        latest_offset=latest_offset,
        end_offset=end_offset,
        transactions=CleanedTransactions(aborted, 0),
        producers=producers or {},
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
    )


def record(key: bytes | None, value: bytes | None = b"v", time: int = NOW_MS) -> NewRecord:
    return key, value, time, [("h", b"1")]


def apply(made: BatchFilter, batch: bytes, base: int = BASE) -> FilteredBatch:
    placed = bytearray(batch)
    assign_offsets(memoryview(placed), base, 5)
    # Behind something else, as within a chunk of a file.
    return made.apply(b"before" + bytes(placed), 6, read_header(placed))


def contents(filtered: FilteredBatch) -> list[Record]:
    header = header_of(filtered)
    assert crc_is_right(memoryview(filtered.batch), header.crc)
    assert header.record_count == filtered.records
    return list(records_of(filtered.batch, limit=LIMIT))


def header_of(filtered: FilteredBatch) -> BatchHeader:
    return read_header(filtered.batch)


def test_batch_of_which_all_stays_is_copied_byte_for_byte() -> None:
    batch = bytearray(build_batch([record(b"a"), record(b"b")], codec=Codec.GZIP))
    assign_offsets(memoryview(batch), BASE, 5)
    filtered = batch_filter().apply(bytes(batch), 0, read_header(batch))
    assert filtered == (BatchOutcome.UNCHANGED, bytes(batch), 2, NOW_MS)


@pytest.mark.parametrize("codec", list(Codec))
def test_superseded_records_go_and_the_others_keep_everything(codec: Codec) -> None:
    times = (NOW_MS + 7, NOW_MS, NOW_MS + 3)
    records = [record(key, time=time) for key, time in zip((b"a", b"b", b"c"), times, strict=True)]
    batch = build_batch(records, codec=codec, producer_id=4, producer_epoch=1, base_sequence=9)
    filtered = apply(batch_filter([(b"a", 700)]), batch)
    assert filtered.outcome is BatchOutcome.REWRITTEN
    assert contents(filtered) == [
        Record(BASE + 1, NOW_MS, b"b", b"v", (("h", b"1"),)),
        Record(BASE + 2, NOW_MS + 3, b"c", b"v", (("h", b"1"),)),
    ]
    header = header_of(filtered)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (BASE, BASE + 2, 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 1, 9)
    assert header.codec == codec
    assert header.max_timestamp == filtered.max_timestamp == NOW_MS + 3


def test_batch_with_nothing_left_goes() -> None:
    filtered = apply(batch_filter([(b"a", 700)]), build_batch([record(b"a"), record(b"a")]))
    assert filtered.outcome is BatchOutcome.DROPPED
    assert filtered.batch == b""


def test_records_without_a_key_go_and_are_counted() -> None:
    made = batch_filter()
    filtered = apply(made, build_batch([record(None), record(b"a"), record(None)]))
    assert [found.key for found in contents(filtered)] == [b"a"]
    assert made.keyless == 2


def test_records_that_the_keys_do_not_speak_for_stay() -> None:
    made = batch_filter([(b"a", 700)], latest_offset=BASE)
    batch = build_batch([record(b"a"), record(b"a"), record(None), record(b"b")])
    assert [found.offset for found in contents(apply(made, batch))] == [BASE + 1, BASE + 2, BASE + 3]


def test_tombstone_met_for_the_first_time_gets_a_horizon_and_keeps_its_time() -> None:
    batch = build_batch([record(b"a", None, NOW_MS - 9), record(b"b", b"v", NOW_MS + 4)])
    filtered = apply(batch_filter(), batch)
    header = header_of(filtered)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert header.max_timestamp == NOW_MS + 4
    assert [found.timestamp for found in contents(filtered)] == [NOW_MS - 9, NOW_MS + 4]


def test_tombstone_stays_until_its_horizon_and_goes_with_it() -> None:
    batch = apply(batch_filter(), build_batch([record(b"a", None), record(b"b")])).batch
    horizon = NOW_MS + RETENTION_MS
    early = apply(batch_filter(now_ms=horizon - 1), bytes(batch))
    assert early.outcome is BatchOutcome.UNCHANGED
    late = apply(batch_filter(now_ms=horizon), bytes(batch))
    assert [found.key for found in contents(late)] == [b"b"]
    # The horizon is the batch's: it is not taken back, nor set anew.
    assert header_of(late).base_timestamp == horizon
    assert header_of(late).attributes & DELETE_HORIZON


def test_superseded_tombstone_sets_no_horizon() -> None:
    filtered = apply(batch_filter([(b"a", 700)]), build_batch([record(b"a", None), record(b"b")]))
    assert not header_of(filtered).attributes & DELETE_HORIZON


def test_the_brokers_time_stays_when_a_horizon_is_set() -> None:
    batch = build_batch([record(b"a", None, 5), record(b"b", b"v", 900)], append_time=NOW_MS + 77)
    filtered = apply(batch_filter(), batch)
    header = header_of(filtered)
    assert header.attributes & LOG_APPEND_TIME
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert header.max_timestamp == NOW_MS + 77
    assert [found.timestamp for found in contents(filtered)] == [NOW_MS + 77] * 2


def data_of_producer() -> bytes:
    return build_batch([record(b"a"), record(b"a")], producer_id=3, producer_epoch=2, base_sequence=11)


def test_last_batch_of_a_producer_stays_without_records() -> None:
    made = batch_filter([(b"a", 700)], producers={3: (2, BASE + 1)})
    filtered = apply(made, data_of_producer())
    assert filtered.outcome is BatchOutcome.EMPTIED
    assert contents(filtered) == []
    header = header_of(filtered)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 2, 11)
    assert (header.base_offset, header.last_offset, header.last_sequence) == (BASE, BASE + 1, 12)
    assert (header.base_timestamp, header.max_timestamp) == (-1, NOW_MS)


def test_earlier_batches_of_a_producer_go() -> None:
    made = batch_filter([(b"a", 700)], producers={3: (2, 800)})
    assert apply(made, data_of_producer()).outcome is BatchOutcome.DROPPED


def test_last_batch_of_the_pass_stays_without_records() -> None:
    made = batch_filter([(b"a", 700)], end_offset=BASE + 1)
    filtered = apply(made, build_batch([record(b"a")], codec=Codec.ZSTD))
    assert filtered.outcome is BatchOutcome.EMPTIED
    assert header_of(filtered).codec == Codec.NONE
    again = apply(batch_filter([(b"a", 700)], end_offset=BASE + 1), bytes(filtered.batch))
    assert again.batch == filtered.batch
    assert apply(batch_filter(), bytes(filtered.batch)).outcome is BatchOutcome.DROPPED


def test_nothing_at_or_beyond_the_end_is_touched() -> None:
    made = batch_filter([(b"a", 700)], end_offset=BASE)
    assert apply(made, build_batch([record(b"a", None), record(None)])).outcome is BatchOutcome.UNCHANGED


def transactional(key: bytes = b"a") -> bytes:
    return build_batch([record(key)], producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)


def end_marker(key: bytes) -> bytes:
    return build_batch(
        [(key, bytes(6), NOW_MS, ())],
        producer_id=3,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def test_aborted_data_goes_and_its_marker_waits() -> None:
    made = batch_filter(aborted=[AbortedTransaction(3, BASE, BASE + 1, BASE + 2)])
    assert apply(made, transactional()).outcome is BatchOutcome.DROPPED
    assert apply(made, end_marker(ABORT_KEY), BASE + 1).outcome is BatchOutcome.UNCHANGED


def test_aborted_data_that_ends_a_producers_sequence_stays_without_records() -> None:
    made = batch_filter(aborted=[AbortedTransaction(3, BASE, BASE + 1, BASE + 2)], producers={3: (0, BASE)})
    assert apply(made, transactional()).outcome is BatchOutcome.EMPTIED


@pytest.mark.parametrize("key", [ABORT_KEY, COMMIT_KEY])
def test_spent_marker_gets_a_horizon_and_goes_when_it_has_passed(key: bytes) -> None:
    first = apply(batch_filter(), end_marker(key))
    assert header_of(first).base_timestamp == NOW_MS + RETENTION_MS
    assert [found.timestamp for found in contents(first)] == [NOW_MS]
    horizon = NOW_MS + RETENTION_MS
    assert apply(batch_filter(now_ms=horizon - 1), bytes(first.batch)).outcome is BatchOutcome.UNCHANGED
    assert apply(batch_filter(now_ms=horizon), bytes(first.batch)).outcome is BatchOutcome.DROPPED


def test_marker_with_data_does_not_go_whatever_its_horizon() -> None:
    spent = apply(batch_filter(), end_marker(COMMIT_KEY)).batch
    made = batch_filter(now_ms=NOW_MS + 10 * RETENTION_MS)
    assert apply(made, transactional()).outcome is BatchOutcome.UNCHANGED
    assert apply(made, bytes(spent), BASE + 1).outcome is BatchOutcome.UNCHANGED


def test_marker_that_is_all_that_is_known_of_a_producer_stays_without_records() -> None:
    spent = apply(batch_filter(), end_marker(COMMIT_KEY)).batch
    late = NOW_MS + RETENTION_MS
    kept = apply(batch_filter(producers={3: (0, -1)}, now_ms=late), bytes(spent))
    assert kept.outcome is BatchOutcome.EMPTIED
    assert header_of(kept).is_control
    fenced = batch_filter(producers={3: (1, -1)}, now_ms=late)
    assert apply(fenced, bytes(spent)).outcome is BatchOutcome.DROPPED


def test_batch_whose_records_make_no_sense_is_refused() -> None:
    batch = bytearray(build_batch([record(b"a")]))
    batch[61] = 0x7F
    with pytest.raises(CorruptionError):
        apply(batch_filter(), bytes(batch))
    batch = bytearray(build_batch([record(b"a")], codec=Codec.ZSTD))
    batch[70] ^= 0xFF
    with pytest.raises(CorruptionError):
        apply(batch_filter(), bytes(batch))


# ---- batches that the keys were taken from


def marking_filter(
    keys: list[bytes | None], newer: list[bytes | None], *, tombstones: Iterable[int] = ()
) -> BatchFilter:
    """One that has seen a batch of these keys at 500, and later some others."""
    made = batch_filter()
    made._keys.put_run(keys, 500)
    for number in tombstones:
        made._keys.mark_special(500 + number)
    made._keys.put_run(newer, 700)
    return made


@pytest.mark.parametrize("codec", Codec)
def test_marked_records_go_and_the_others_stay_as_they_are(codec: Codec) -> None:
    keys: list[bytes | None] = [b"a", b"b", b"c", b"d"]
    batch = build_batch([record(key, time=NOW_MS + at) for at, key in enumerate(keys)], codec=codec)
    found = apply(marking_filter(keys, [b"b", b"d"]), batch, 500)
    assert found.outcome is BatchOutcome.REWRITTEN
    assert [(one.offset, one.key, one.timestamp) for one in contents(found)] == [
        (500, b"a", NOW_MS),
        (502, b"c", NOW_MS + 2),
    ]
    assert found.max_timestamp == header_of(found).max_timestamp == NOW_MS + 2


def test_a_batch_without_marks_is_not_even_read() -> None:
    batch = bytearray(build_batch([record(b"a"), record(b"b")]))
    batch[-3:] = b"\xff\xff\xff"
    found = apply(marking_filter([b"a", b"b"], [b"c"]), bytes(batch), 500)
    assert found.outcome is BatchOutcome.UNCHANGED


def test_a_batch_of_marked_records_goes_unless_it_must_stay() -> None:
    batch = build_batch([record(b"a"), record(b"b")], producer_id=7, producer_epoch=0, base_sequence=3)
    assert apply(marking_filter([b"a", b"b"], [b"b", b"a"]), batch, 500).outcome is BatchOutcome.DROPPED
    keeping = marking_filter([b"a", b"b"], [b"b", b"a"])
    keeping._producers = {7: (0, 501)}
    found = apply(keeping, batch, 500)
    assert found.outcome is BatchOutcome.EMPTIED
    assert header_of(found).base_sequence == 3


def test_a_tombstone_among_marked_records_gets_its_horizon() -> None:
    keys: list[bytes | None] = [b"a", b"b", b"c"]
    batch = build_batch([record(b"a"), record(b"b", None), record(b"c")])
    found = apply(marking_filter(keys, [b"a"], tombstones=[1]), batch, 500)
    assert [one.key for one in contents(found)] == [b"b", b"c"]
    assert header_of(found).attributes & DELETE_HORIZON
    assert header_of(found).base_timestamp == NOW_MS + RETENTION_MS


def test_a_record_without_a_key_among_marked_ones_goes_and_is_counted() -> None:
    made = marking_filter([b"a", None], [b"c"])
    found = apply(made, build_batch([record(b"a"), record(None)]), 500)
    assert [one.key for one in contents(found)] == [b"a"]
    assert made.keyless == 1


def test_a_batch_that_reaches_beyond_the_known_keys_is_read() -> None:
    made = batch_filter(latest_offset=500)
    made._keys.put_run([b"a"], 500)
    found = apply(made, build_batch([record(b"a"), record(b"b", None)]), 500)
    assert [one.key for one in contents(found)] == [b"a", b"b"]
    assert header_of(found).attributes & DELETE_HORIZON
