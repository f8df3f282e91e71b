"""A replica copies no damage, and nothing that does not fit what it has (S5)."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.partitions.replication.fetched_batches import whole_batches
from flintmq.records.batch import assign_offsets
from flintmq.records.record import build_batch


def batch_at(offset: int, epoch: int, count: int = 2) -> bytes:
    batch = bytearray(build_batch([(None, b"value", 0, ()) for _ in range(count)]))
    assign_offsets(memoryview(batch), offset, epoch)
    return bytes(batch)


def check(data: bytes, *, end_offset: int = 10, fetch_epoch: int = 5, epoch_before: int = 3) -> bytes:
    return bytes(
        whole_batches(
            memoryview(data), end_offset=end_offset, fetch_epoch=fetch_epoch, epoch_before=epoch_before
        )
    )


def test_whole_batches_pass_and_a_cut_one_is_left_out() -> None:
    first, second = batch_at(10, 3), batch_at(12, 5)
    assert check(first + second) == first + second
    assert check(first + second[:-1]) == first
    assert check(first[:30]) == b""


def test_gaps_of_compaction_pass() -> None:
    data = batch_at(15, 3) + batch_at(40, 3)
    assert check(data) == data


@pytest.mark.parametrize(
    "data",
    [
        batch_at(9, 3),
        batch_at(10, 3) + batch_at(11, 3),
        batch_at(10, 2),
        batch_at(10, 4) + batch_at(12, 3),
        batch_at(10, 6),
        batch_at(10, 3)[:-1] + b"x",
        bytes(100),
    ],
    ids=[
        "before the end",
        "overlap",
        "older epoch",
        "falling epoch",
        "epoch above the fetch",
        "damage",
        "zeros",
    ],
)
def test_what_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        check(data)
