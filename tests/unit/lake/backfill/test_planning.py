"""Which files a backfill rewrites, and how far it has come then (P4)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from flintmq.lake.backfill.planning import filled_up_to, plan_fills
from flintmq.lake.tables.data_file import DataFile, FileName, data_path

RANGES = {"a": {0: (0, 10)}, "b": {0: (5, 20), 1: (0, 5)}}


def file(partition: int, start: int, end: int) -> DataFile:
    name = FileName(
        topic_id="ab", partition=partition, start_offset=start, end_offset=end, digest=f"{start:x}{end:x}"
    )
    return DataFile(
        path=data_path(name, ()),
        size=1,
        rows=end - start,
        topic="t",
        partition=partition,
        start_offset=start,
        end_offset=end,
    )


def test_files_with_open_offsets_are_rewritten_in_their_order() -> None:
    files = [file(1, 0, 5), file(0, 20, 30), file(0, 8, 20), file(0, 0, 8), file(2, 0, 5)]
    fills = plan_fills(files, RANGES, settings=1)
    assert [(one.file.partition, one.file.start_offset, one.columns) for one in fills] == [
        (0, 0, (("a", 0, 8), ("b", 5, 8))),
        (0, 8, (("a", 8, 10), ("b", 8, 20))),
        (1, 0, (("b", 0, 5),)),
    ]
    assert [one.path for one in fills] == [one.path for one in plan_fills(files[::-1], RANGES, settings=1)]
    assert {one.path for one in fills}.isdisjoint(one.path for one in plan_fills(files, RANGES, settings=2))
    for one in fills:
        name = FileName.of(one.path)
        assert name is not None
        assert name.is_merged


def test_a_foreign_file_is_left_alone() -> None:
    foreign = DataFile(
        path="data/theirs.parquet", size=1, rows=1, topic="", partition=0, start_offset=0, end_offset=5
    )
    assert plan_fills([foreign], RANGES, settings=1) == []


def test_a_partition_is_filled_up_to_the_first_file_that_is_left() -> None:
    fills = plan_fills([file(0, 0, 8), file(0, 8, 20), file(1, 0, 5)], RANGES, settings=1)
    assert filled_up_to(fills, RANGES) == {0: 0, 1: 0}
    assert filled_up_to(fills[1:], RANGES) == {0: 8, 1: 0}
    assert filled_up_to(fills[2:], RANGES) == {0: 20, 1: 0}
    assert filled_up_to([], RANGES) == {0: 20, 1: 5}
