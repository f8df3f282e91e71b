"""A follower takes over batches of its leader's log as they are (KIP-101, KIP-98)."""

from __future__ import annotations

import errno

import pytest

from flintmq.errors import CorruptionError, LogOffline, StorageError
from flintmq.records.batch import read_header
from flintmq.records.markers import Marker, marker_batch
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.visibility import Isolation
from support.log.model import placed
from support.log.on_simulated_disk import NOW_MS, Bench, contents
from support.wire.batches import produced

A = 11


def batch(
    base: int, *values: bytes, epoch: int = 0, size: int = 100, producer: int = -1, sequence: int = -1
) -> bytes:
    made = produced(
        *(value + bytes(size) for value in values or (b"v",)),
        timestamp=NOW_MS + base,
        producer_id=producer,
        epoch=0 if producer >= 0 else -1,
        sequence=sequence,
        is_transactional=producer == A,
    )
    return placed(made, base, epoch).data


def marker(base: int, *, commit: bool) -> bytes:
    return placed(marker_batch(Marker(A, 1, 0, commit), NOW_MS + base), base, 0).data


def take(bench: Bench, *batches: bytes) -> int:
    return bench.log.append_replicated(memoryview(b"".join(batches)), NOW_MS)


def test_batches_are_written_as_they_are_with_one_write_for_each_segment() -> None:
    bench = Bench(segment_bytes=500)
    batches = [batch(n) for n in range(10)]
    writes: list[str] = []
    bench.disk.observer = lambda op, path: (
        writes.append(path) if op == "write" and path.endswith(".log") else None
    )
    assert take(bench, *batches) == 10
    bases = bench.bases()
    assert len(bases) > 2
    assert writes == [bench.path(base, ".log") for base in bases]
    assert contents(bench.log) == batches
    bench.flush()
    assert contents(bench.open()) == batches


def test_none_of_them_is_visible_until_the_leader_says_so() -> None:
    bench = Bench()
    batches = [batch(n) for n in range(4)]
    take(bench, *batches)
    assert bench.log.high_watermark == 0
    assert bench.log.advance(2)
    assert contents(bench.log, Isolation.READ_UNCOMMITTED) == batches[:2]


def test_gaps_are_kept_within_a_segment_and_between_two() -> None:
    bench = Bench(segment_bytes=400)
    batches = [batch(5), batch(9), batch(30), batch(31), batch(70)]
    assert take(bench, *batches) == 71
    assert bench.bases() == [0, 10, 32]
    assert contents(bench.log) == batches
    assert contents(bench.open(high_watermark=71)) == batches


def test_a_batch_that_is_larger_than_a_segment_has_one_of_its_own() -> None:
    bench = Bench(segment_bytes=400)
    batches = [batch(0), batch(1, size=900), batch(2)]
    take(bench, *batches)
    assert bench.bases() == [0, 1, 2]
    assert contents(bench.log) == batches


def test_what_does_not_fit_is_refused_and_nothing_is_written() -> None:
    bench = Bench()
    take(bench, batch(0, epoch=3), batch(1, epoch=3))
    size = bench.log.size
    short = batch(2, epoch=3)[:-1]
    wrong_magic = bytearray(batch(2, epoch=3))
    wrong_magic[16] = 1
    for data in (
        batch(1, epoch=3),
        batch(2, epoch=3) + batch(2, epoch=3),
        batch(2, epoch=3) + batch(3, epoch=2),
        batch(2, epoch=2),
        batch(2, epoch=3) + short,
        batch(2, epoch=3) + short[:30],
        bytes(wrong_magic),
    ):
        with pytest.raises(CorruptionError):
            take(bench, data)
        assert (bench.log.end_offset, bench.log.size, bench.log.epochs.latest) == (2, size, 3)


def test_an_epoch_begins_where_the_batch_before_it_ended() -> None:
    """Whatever was compacted away in between was of one of both; a follower that has it truncates rather too much."""
    bench = Bench()
    take(bench, batch(0, epoch=1), batch(20, epoch=4))
    assert bench.log.epochs.end_offset_of(1, 21) == (1, 1)
    assert bench.log.epochs.end_offset_of(4, 21) == (4, 21)
    bench.flush()
    assert bench.open(high_watermark=21).epochs.encode() == bench.log.epochs.encode()


def test_producers_and_their_transactions_are_followed() -> None:
    bench = Bench()
    take(bench, batch(0, producer=A, sequence=0), batch(1, producer=7, sequence=4), batch(2))
    assert bench.log.producers.first_unstable_offset == 0
    known = bench.log.producers.check(read_header(batch(1, producer=7, sequence=4)))
    assert known is not None
    assert known.first_offset == 1
    take(bench, marker(3, commit=False))
    assert bench.log.producers.first_unstable_offset is None
    assert bench.log.active.aborted == [AbortedTransaction(A, 0, 3, 4)]
    # The marker is not visible yet.
    bench.log.advance(3)
    assert bench.log.last_stable_offset == 0
    bench.log.advance(4)
    assert bench.log.last_stable_offset == 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_after_a_failed_write_whole_batches_are_there(code: int) -> None:
    bench = Bench(segment_bytes=300)
    batches = [batch(n) for n in range(6)]
    # The first segment and its snapshot are written, the second segment is not.
    bench.disk.fail("write", nth=3, code=code)
    with pytest.raises(StorageError):
        take(bench, *batches)
    written = bench.log.end_offset
    assert 0 < written < 6
    assert (bench.log.offline is None) == (code == errno.ENOSPC)
    if code == errno.ENOSPC:
        assert contents(bench.log) == batches[:written]
        take(bench, *batches[written:])
        assert contents(bench.log) == batches
    else:
        with pytest.raises(LogOffline):
            take(bench, *batches[written:])
        assert contents(bench.open())[:written] == batches[:written]
