"""A sound segment written from a damaged one and from batches of another replica (S5, KIP-98)."""

from __future__ import annotations

import pytest

from flintmq.effects import read_file
from flintmq.errors import StorageError
from flintmq.storage.aborted_transactions import encode_aborted
from flintmq.storage.compaction.job import GroupResult
from flintmq.storage.compaction.swap import CLEANED
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.repair.segment_repair import SegmentRepair
from flintmq.storage.repair.sound_batches import Gap
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX
from support.log.on_simulated_disk import PLENTY, Bench
from support.log.transactional_log import TransactionalBench

BATCHES = 6


def sealed(bench: Bench) -> list[bytes]:
    """Fill and seal a segment; return the batches as they were written."""
    written = bench.fill(BATCHES)
    bench.log.roll(0)
    bench.fill(1)
    bench.flush()
    return written


def repaired(
    bench: Bench, batches: dict[int, bytes], *, start_offset: int = 0, limit: int = PLENTY
) -> tuple[list[Gap], GroupResult]:
    """Repair the first segment with these batches, by the first offset of the gap that they fill."""
    log = bench.log
    repair = SegmentRepair(
        log, log.segments[0], end_offset=log.segments[1].base_offset, start_offset=start_offset
    )
    while not repair.is_copied:
        gap = repair.advance(limit)
        if gap is not None:
            repair.fill(memoryview(batches[gap.start_offset]))
    return repair.gaps, repair.finish()


def damage(bench: Bench, number: int) -> None:
    position = [position for position, _ in bench.log.segments[0].walk(0)][number]
    bench.disk.flip(bench.path(0, LOG), position + 65)


@pytest.mark.parametrize("limit", [1, PLENTY])
def test_the_new_segment_is_what_the_old_one_was(limit: int) -> None:
    bench = Bench()
    written = sealed(bench)
    before = {suffix: read_file(bench.disk, bench.path(0, suffix)) for suffix in (LOG, INDEX, TIME_INDEX)}
    damage(bench, 1)
    damage(bench, 4)
    gaps, result = repaired(bench, {1: written[1], 4: written[4]}, limit=limit)
    assert gaps == [(1, 2), (4, 5)]
    assert (result.bases, result.size, result.last_offset) == ((0,), len(before[LOG]), BATCHES - 1)
    for suffix, data in before.items():
        assert read_file(bench.disk, bench.path(0, suffix) + CLEANED) == data
    assert read_file(bench.disk, bench.path(0, LOG)) != before[LOG]


def test_damage_below_the_start_of_the_log_is_left_out() -> None:
    bench = Bench()
    written = sealed(bench)
    damage(bench, 1)
    damage(bench, 4)
    gaps, result = repaired(bench, {4: written[4]}, start_offset=2)
    assert gaps == [(4, 5)]
    assert result.size == sum(map(len, written)) - len(written[1])


def test_a_segment_that_was_opened_without_its_end_is_completed() -> None:
    bench = Bench()
    written = sealed(bench)
    damage(bench, 2)
    bench.disk.remove(bench.path(0, INDEX))
    log = bench.open(recovery_point=BATCHES + 1)
    assert log.corrupt == [CorruptRange(2, BATCHES)]
    gaps, _ = repaired(bench, {2: b"".join(written[2:])})
    assert gaps == [(2, BATCHES)]
    assert read_file(bench.disk, bench.path(0, LOG) + CLEANED) == b"".join(written)


def test_aborted_transactions_are_kept() -> None:
    bench = TransactionalBench()
    bench.send(b"a", producer=7)
    bench.end(7, commit=False)
    bench.log.roll(0)
    bench.send(b"b")
    bench.flush()
    data = read_file(bench.disk, bench.path(0, LOG))
    aborted = read_file(bench.disk, bench.path(0, TXN_INDEX))
    damage(bench, 0)
    size = next(bench.log.segments[0].walk(0))[1].size
    _, result = repaired(bench, {0: data[:size]})
    assert result.has_transaction_index
    assert read_file(bench.disk, bench.path(0, TXN_INDEX) + CLEANED) == aborted


def test_aborted_transactions_are_worked_out_again_where_they_are_not_known() -> None:
    """The transaction begins in an earlier segment than the one that holds its damaged marker."""
    bench = TransactionalBench()
    bench.send(b"a", producer=7)
    bench.log.roll(0)
    bench.send(b"b")
    bench.end(7, commit=False)
    bench.log.roll(0)
    bench.send(b"c")
    bench.flush()
    path = bench.path(1, LOG)
    data, aborted = read_file(bench.disk, path), bench.log.segments[1].aborted
    (_, first), (position, _) = bench.log.segments[1].walk(0)
    bench.disk.flip(path, position + 65)
    bench.disk.remove(bench.path(1, INDEX))
    bench.disk.remove(bench.path(1, TXN_INDEX))
    log = bench.open(recovery_point=4)
    assert log.corrupt == [CorruptRange(2, 3)]
    assert not log.segments[1].aborted
    repair = SegmentRepair(log, log.segments[1], end_offset=3, start_offset=0)
    assert repair.advance(PLENTY) == (2, 3)
    repair.fill(memoryview(data)[first.size :])
    assert repair.advance(PLENTY) is None
    assert repair.finish().has_transaction_index
    assert [one[:3] for one in aborted] == [(7, 0, 2)]
    written = read_file(bench.disk, bench.path(1, TXN_INDEX) + CLEANED)
    assert written == encode_aborted(aborted)


def test_a_log_that_is_gone_gets_no_files() -> None:
    bench = Bench()
    sealed(bench)
    repair = SegmentRepair(bench.log, bench.log.segments[0], end_offset=BATCHES, start_offset=0)
    bench.log.close_guard.close()
    with pytest.raises(StorageError, match="gone"):
        repair.advance(PLENTY)
    assert not [name for name in bench.disk.list(bench.log.directory) if name.endswith(CLEANED)]
