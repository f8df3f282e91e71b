"""Segments in a plan: what is left of a range, where it is cut, which files a task is told of, and who is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from flintmq.arrow.scan import segment_planner
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import Segments, SourceOptions, parse
from flintmq.arrow.scan.segment_planner import (
    FileTask,
    LocatedSegments,
    SegmentFinder,
    cut_by_bytes,
    recent,
    with_files,
)
from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.segments import AbortedRange, IndexEntry, PartitionFiles, SegmentFile
from flintmq.client.errors import ConnectionLost, NotFlintMQ
from flintmq.errors import ConfigurationError
from flintmq.storage.durability.flush import METADATA_FILE, encode_metadata

TOPIC_ID = bytes(range(16))
(ADDRESS,) = parse_addresses("a:1")


def wanted(start: int, end: int) -> OffsetRange:
    return OffsetRange("t", TOPIC_ID, 0, start, end)


def segment(
    base: int,
    end: int,
    *,
    size: int = 100,
    max_timestamp: int = 0,
    folder: str = "/d/t-0",
    index: tuple[IndexEntry, ...] = (),
) -> SegmentFile:
    return SegmentFile(
        f"{folder}/{base:020d}.log", base, end, size, max_timestamp, is_active=bool(index), index=index
    )


def files(*found: SegmentFile, aborted: tuple[AbortedRange, ...] = ()) -> PartitionFiles:
    return PartitionFiles(TOPIC_ID, "/d/t-0", found, aborted)


def spans(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in ranges]


# ---- what is left


def test_segments_that_are_all_too_old_are_left_out_wherever_they_lie() -> None:
    found = files(
        segment(0, 10, max_timestamp=5),
        segment(10, 20, max_timestamp=50),
        segment(20, 30, max_timestamp=49),
        segment(35, 40, max_timestamp=-1),
    )
    assert spans(recent(wanted(3, 45), found, 50)) == [(10, 20), (30, 35), (40, 45)]
    assert spans(recent(wanted(22, 38), found, 50)) == [(30, 35)]
    assert spans(recent(wanted(22, 28), found, 50)) == []
    assert spans(recent(wanted(3, 45), found, None)) == [(3, 45)]


# ---- where it is cut


def test_pieces_have_equal_bytes_however_offsets_are_spread() -> None:
    # What compaction left of a thousand offsets is as large as ten fresh ones.
    found = files(segment(0, 1000, size=400), segment(1000, 1010, size=400))
    assert spans(cut_by_bytes(wanted(0, 1010), found, task_bytes=200)) == [
        (0, 500), (500, 1000), (1000, 1005), (1005, 1010)
    ]  # fmt: skip
    assert spans(cut_by_bytes(wanted(0, 1010), found, task_bytes=1000)) == [(0, 1010)]
    assert spans(cut_by_bytes(wanted(250, 1000), found, task_bytes=150)) == [(250, 625), (625, 1000)]


def test_what_is_in_no_file_counts_by_its_own_size_or_like_the_files() -> None:
    found = files(segment(0, 10, size=100))
    assert spans(cut_by_bytes(wanted(0, 20), found, task_bytes=100)) == [(0, 10), (10, 20)]
    assert spans(cut_by_bytes(wanted(0, 20), found, task_bytes=100, bytes_per_offset=30.0)) == [
        (0, 10), (10, 13), (13, 16), (16, 20)
    ]  # fmt: skip


def test_the_index_of_an_active_segment_says_where_its_bytes_are() -> None:
    # The first 900 offsets take as much as the last 100.
    index = (IndexEntry(450, 200), IndexEntry(900, 400), IndexEntry(950, 600))
    found = files(segment(0, 1000, size=800, index=index))
    assert spans(cut_by_bytes(wanted(0, 1000), found, task_bytes=200)) == [
        (0, 450), (450, 900), (900, 950), (950, 1000)
    ]  # fmt: skip
    assert spans(cut_by_bytes(wanted(450, 1000), found, task_bytes=300)) == [(450, 925), (925, 1000)]
    assert spans(cut_by_bytes(wanted(0, 1200), found, task_bytes=800, bytes_per_offset=4.0)) == [
        (0, 1000), (1000, 1200)
    ]  # fmt: skip


@pytest.mark.parametrize("task_bytes", [1, 7, 33, 100, 10_000])
def test_cutting_neither_loses_nor_repeats_an_offset(task_bytes: int) -> None:
    index = (IndexEntry(30, 1), IndexEntry(31, 5))
    found = files(segment(0, 10, size=3), segment(12, 13, size=500), segment(20, 90, size=7, index=index))
    pieces = cut_by_bytes(wanted(5, 100), found, task_bytes=task_bytes)
    assert [offset for one in pieces for offset in range(one.start, one.end)] == list(range(5, 100))


# ---- what a task is told


def test_a_task_gets_the_files_and_aborted_transactions_of_its_own_range() -> None:
    aborted = (
        AbortedRange(1, 0, 9),
        AbortedRange(2, 5, 12),
        AbortedRange(3, 14, 90),
        AbortedRange(4, 20, 25),
    )
    found = LocatedSegments(files(segment(0, 10), segment(10, 20), segment(20, 30), aborted=aborted), True)
    task = with_files(wanted(10, 20), found)
    assert isinstance(task, FileTask)
    assert [one.base_offset for one in task.segments] == [10]
    assert [one.producer_id for one in task.aborted] == [2, 3]
    assert with_files(wanted(30, 40), found) == wanted(30, 40)
    assert with_files(wanted(10, 20), found._replace(are_used=False)) == wanted(10, 20)
    assert with_files(wanted(10, 20), None) == wanted(10, 20)


def test_a_task_gets_the_index_entries_of_its_own_range() -> None:
    index = tuple(IndexEntry(offset, offset * 10) for offset in range(10, 100, 10))
    found = LocatedSegments(replace(files(segment(0, 100, index=index)), start_offset=5), True)

    def entries(start: int, end: int) -> list[int]:
        task = with_files(wanted(start, end), found)
        assert isinstance(task, FileTask)
        assert task.log_start_offset == 5
        return [one.last_offset for one in task.segments[0].index]

    assert entries(0, 100) == list(range(10, 100, 10))
    assert entries(35, 60) == [30, 40, 50]
    assert entries(30, 31) == [30]
    assert entries(0, 10) == []


# ---- who is asked


def options(mode: Segments) -> SourceOptions:
    return parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "segments": mode.value})


class Asked:
    """In place of the brokers: answers, or fails, as it was told to."""

    def __init__(self, *answers: PartitionFiles | Exception) -> None:
        self.answers = list(answers)
        self.count = 0

    def __call__(self, client: Any, ranges: Any, *, committed: bool) -> dict[tuple[str, int], PartitionFiles]:
        answer = self.answers[min(self.count, len(self.answers) - 1)]
        self.count += 1
        if isinstance(answer, Exception):
            raise answer
        return {("t", 0): answer}


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(mode: Segments, asked: Asked) -> SegmentFinder:
        monkeypatch.setattr(segment_planner, "describe_segments", asked)
        return SegmentFinder(None, options(mode))  # type: ignore[arg-type]

    return make


def test_a_broker_that_is_not_flintmq_is_not_asked_again(finder: Any) -> None:
    asked = Asked(NotFlintMQ(ADDRESS))
    query = finder(Segments.AUTO, asked)
    assert query.find([wanted(0, 10)]) == query.find([wanted(10, 20)]) == {}
    assert asked.count == 2, "the first time it might have been about to stop"
    with pytest.raises(ConfigurationError, match=r"a:1 is not a FlintMQ broker.*Use the format flintmq"):
        finder(Segments.ALWAYS, Asked(NotFlintMQ(ADDRESS))).find([wanted(0, 10)])


def test_a_broker_that_goes_away_later_is_asked_again(finder: Any) -> None:
    gone = NotFlintMQ(ADDRESS)
    query = finder(Segments.ALWAYS, Asked(files(segment(0, 10)), gone, gone, files(segment(0, 20))))
    assert [len(query.find([wanted(0, 10)])) for _ in range(3)] == [1, 0, 1]
    lost = finder(Segments.ALWAYS, Asked(ConnectionLost(ADDRESS, "no answer"), files(segment(0, 10))))
    assert [len(lost.find([wanted(0, 10)])) for _ in range(2)] == [0, 1]


def test_nobody_is_asked_if_files_are_not_wanted_or_there_is_nothing_to_read(finder: Any) -> None:
    asked = Asked(files(segment(0, 10)))
    assert finder(Segments.NEVER, asked).find([wanted(0, 10)]) == {}
    assert finder(Segments.ALWAYS, asked).find([]) == {}
    assert asked.count == 0


def test_files_of_another_topic_of_that_name_are_not_used(finder: Any) -> None:
    query = finder(Segments.ALWAYS, Asked(files(segment(0, 10))))
    assert query.find([wanted(0, 10)._replace(topic_id=bytes(16))]) == {}


def test_the_driver_looks_whether_it_has_the_files(finder: Any, tmp_path: Path) -> None:
    here = segment(0, 10, folder=str(tmp_path))
    Path(here.path).write_bytes(bytes(here.size))
    place = ("t", 0)

    def used(mode: Segments) -> bool:
        return bool(finder(mode, Asked(files(here))).find([wanted(0, 10)])[place].are_used)

    assert not used(Segments.AUTO), "nothing says whose folder it is"
    (tmp_path / METADATA_FILE).write_bytes(encode_metadata(TOPIC_ID))
    assert used(Segments.AUTO)
    Path(here.path).unlink()
    assert not used(Segments.AUTO)
    assert used(Segments.ALWAYS), "workers may have what the driver has not"
