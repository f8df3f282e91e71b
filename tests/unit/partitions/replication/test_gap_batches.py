"""A damaged replica takes over no damage, and nothing that does not fit what it has (S5)."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.partitions.replication.gap_batches import GapBatches, gap_batches
from flintmq.records.batch import assign_offsets
from flintmq.records.record import build_batch


def batch_at(offset: int, epoch: int, count: int = 2) -> bytes:
    batch = bytearray(build_batch([(None, b"value", 0, ()) for _ in range(count)]))
    assign_offsets(memoryview(batch), offset, epoch)
    return bytes(batch)


def fill(
    data: bytes, *, offset: int = 10, first_offset: int = 10, has_holes: bool = False
) -> tuple[bytes, int]:
    """Check batches for a gap from 10 to 15 in a log whose epoch 3 ends at 12."""
    found: GapBatches = gap_batches(
        memoryview(data),
        offset=offset,
        first_offset=first_offset,
        end_offset=15,
        has_holes=has_holes,
        epoch_of=lambda at: 3 if at < 12 else 5,
    )
    return bytes(found.data), found.next_offset


def test_a_gap_is_filled_by_whole_batches_up_to_its_end() -> None:
    first, second, third, after = batch_at(10, 3), batch_at(12, 5), batch_at(14, 5, 1), batch_at(15, 5)
    assert fill(first + second[:-1]) == (first, 12)
    assert fill(first + second + third + after) == (first + second + third, 15)
    assert fill(first[:30]) == (b"", 10)
    assert fill(b"") == (b"", 10)


def test_the_first_batch_may_hold_the_start_of_the_log() -> None:
    """It begins before the first offset that exists, and after the last batch that is sound."""
    assert fill(batch_at(10, 3), offset=11)[1] == 12
    with pytest.raises(CorruptionError):
        fill(batch_at(9, 3), offset=10)


def test_holes_are_taken_for_compaction_where_a_log_has_holes() -> None:
    batch = batch_at(12, 5)
    assert fill(batch + batch_at(40, 5), has_holes=True) == (batch, 15)
    assert fill(batch_at(40, 5), has_holes=True) == (b"", 15)
    for data in (batch, batch_at(10, 3) + batch_at(13, 5), batch_at(10, 3) + batch_at(40, 5)):
        with pytest.raises(CorruptionError, match="lacks"):
            fill(data)


@pytest.mark.parametrize(
    "data",
    [
        batch_at(8, 3, 1),
        batch_at(10, 3) + batch_at(11, 3),
        batch_at(10, 2),
        batch_at(10, 3) + batch_at(12, 3),
        batch_at(10, 3, 6),
        batch_at(10, 3)[:-1] + b"x",
        bytes(100),
    ],
    ids=["before the gap", "overlap", "older epoch", "later epoch", "beyond the gap", "damage", "zeros"],
)
def test_what_does_not_fit_a_gap_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        fill(data)
