"""Which files are merged: neighbours of one place, up to a size, the same ones whoever plans."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from flintmq.lake.compact.planning import LARGE_ENOUGH, plan_merges
from flintmq.lake.tables.data_file import DataFile, FileName, PartitionValues, data_path

TARGET = 1000


def file(
    start: int,
    end: int,
    size: int,
    *,
    partition: int = 0,
    values: PartitionValues = (),
    topic_id: str = "ab",
    digest: str = "00",
) -> DataFile:
    name = FileName(topic_id=topic_id, partition=partition, start_offset=start, end_offset=end, digest=digest)
    return DataFile(
        path=data_path(name, values),
        size=size,
        rows=end - start,
        topic="t",
        partition=partition,
        start_offset=start,
        end_offset=end,
        partition_values=values,
    )


def ranges(files: list[DataFile], *, files_min: int = 2) -> list[list[tuple[int, int]]]:
    merges = plan_merges(files, target_bytes=TARGET, files_min=files_min, settings="s")
    return [[(one.start_offset, one.end_offset) for one in merge.inputs] for merge in merges]


def test_neighbours_are_merged_up_to_the_target() -> None:
    files = [file(start, start + 10, 300) for start in range(0, 50, 10)]
    random.shuffle(files)
    assert ranges(files) == [[(0, 10), (10, 20), (20, 30)], [(30, 40), (40, 50)]]


def test_a_large_file_stays_and_what_is_around_it_is_not_joined() -> None:
    files = [file(0, 10, 10), file(10, 20, 800), file(20, 30, 10), file(30, 40, 10)]
    assert ranges(files) == [[(20, 30), (30, 40)]]


def test_places_are_kept_apart() -> None:
    files = [
        file(0, 10, 1),
        file(10, 20, 1, partition=1),
        file(10, 20, 1, topic_id="cd"),
        file(10, 20, 1, values=(("day", "x"),)),
        file(20, 30, 1, values=(("day", None),)),
        file(30, 40, 1, values=(("day", ""),)),
    ]
    assert ranges(files) == []


def test_files_of_the_same_offsets_stay_together() -> None:
    files = [file(0, 10, 600), *(file(10, 20, 300, digest=f"0{at}") for at in range(3)), file(20, 30, 600)]
    assert ranges(files) == [[(10, 20), (10, 20), (10, 20)]]


def test_files_of_others_are_left_alone() -> None:
    other = DataFile(
        path="data/part-0.parquet", size=1, rows=1, topic="", partition=-1, start_offset=0, end_offset=0
    )
    assert ranges([other, other]) == []


def test_the_name_follows_from_the_inputs_and_the_settings() -> None:
    files = [file(0, 10, 1), file(10, 20, 1)]
    (one,) = plan_merges(files, target_bytes=TARGET, files_min=2, settings="s")
    (same,) = plan_merges(files[::-1], target_bytes=TARGET, files_min=2, settings="s")
    (other,) = plan_merges(files, target_bytes=TARGET, files_min=2, settings="t")
    assert one.path == same.path != other.path
    name = FileName.of(one.path)
    assert name is not None
    assert (name.is_merged, name.start_offset, name.end_offset, name.partition) == (True, 0, 20, 0)


@given(st.lists(st.integers(1, 1200), max_size=40), st.integers(0, 10))
def test_what_comes_behind_changes_only_the_last_merge(sizes: list[int], more: int) -> None:
    files = [file(at * 10, at * 10 + 10, size) for at, size in enumerate(sizes)]
    before = ranges(files, files_min=1)
    later = [file((len(sizes) + at) * 10, (len(sizes) + at) * 10 + 10, 100) for at in range(more)]
    after = ranges(files + later, files_min=1)
    assert after[: max(0, len(before) - 1)] == before[:-1]
    merged = [one for merge in after for one in merge]
    assert len(merged) == len(set(merged)), "no file is merged twice"
    kept = [one for one in files + later if one.size < TARGET * LARGE_ENOUGH]
    assert len(merged) == len(kept)
