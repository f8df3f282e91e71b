"""What an audit looks at together: sections of a topic partition, with the files of the table that hold them. Pure.

    sections, problems = plan_sections(files, source, span)

Invariant: the sections of a partition are disjoint, and cover every offset that the table should have and every
offset that one of its files stands for. A section is either all at the broker or all gone from there. Where more than
one file may hold an offset (a partitioned table), a range is small enough to be read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Final

from flintmq.lake.audit.report import AuditProblem, AuditProblemKind
from flintmq.lake.tables.data_file import DataFile

SECTION_BYTES: Final = 128 * 1024 * 1024
"""Of files, in one task."""
_SECTION_RANGES_MAX: Final = 1000
_ROW_BYTES_MIN: Final = 8
_SHARED_RANGE_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    topic: str
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """The offsets of a partition."""

    earliest: int
    """At the broker."""
    end: int
    """Behind the last that the table has, as its progress says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredRange:
    """Offsets that the same files hold."""

    start: int
    end: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSection:
    source: SourcePartition
    ranges: tuple[CoveredRange, ...]
    """One behind the other, without a hole."""
    is_at_broker: bool

    @property
    def start(self) -> int:
        return self.ranges[0].start

    @property
    def end(self) -> int:
        return self.ranges[-1].end

    @property
    def work_bytes(self) -> int:
        """About how much is to be read: of its files, and of the topic where no file holds its offsets."""
        files = sum(
            _share(one, covered.start, covered.end) for covered in self.ranges for one in covered.files
        )
        return max(files, (self.end - self.start) * _ROW_BYTES_MIN)

    def cut(self, earliest: int) -> list[PartitionSection]:
        """Now that the broker begins there."""
        if not self.is_at_broker or earliest <= self.start:
            return [self]
        gone: list[CoveredRange] = []
        left: list[CoveredRange] = []
        for covered in self.ranges:
            if covered.start < earliest:
                gone.append(replace(covered, end=min(covered.end, earliest)))
            if covered.end > earliest:
                left.append(replace(covered, start=max(covered.start, earliest)))
        parts = [replace(self, ranges=tuple(gone), is_at_broker=False)]
        return [*parts, replace(self, ranges=tuple(left))] if left else parts


def plan_sections(
    files: Sequence[DataFile],
    source: SourcePartition,
    span: OffsetBounds,
    *,
    section_bytes: int = SECTION_BYTES,
) -> tuple[list[PartitionSection], list[AuditProblem]]:
    problems = [*_overlaps(files, source), *_beyond(files, source, span)]
    sections: list[PartitionSection] = []
    some: list[CoveredRange] = []
    size = 0
    for covered in _covered_ranges(files, span):
        is_at_broker = covered.start >= span.earliest
        if some and (
            size >= section_bytes
            or len(some) >= _SECTION_RANGES_MAX
            or (some[-1].start >= span.earliest) != is_at_broker
        ):
            sections.append(_section(source, some, span))
            some, size = [], 0
        some.append(covered)
        size += sum(_share(one, covered.start, covered.end) for one in covered.files)
    if some:
        sections.append(_section(source, some, span))
    return sections, problems


def _section(source: SourcePartition, ranges: Sequence[CoveredRange], span: OffsetBounds) -> PartitionSection:
    return PartitionSection(
        source=source, ranges=tuple(ranges), is_at_broker=ranges[0].start >= span.earliest
    )


def _covered_ranges(files: Sequence[DataFile], span: OffsetBounds) -> Iterator[CoveredRange]:
    waiting = sorted(files, key=lambda one: one.start_offset, reverse=True)
    begin = min((one.start_offset for one in files), default=span.earliest)
    # What is behind the progress is a problem by itself, and is not compared.
    edges = {min(begin, span.earliest), span.earliest, span.end}
    edges |= {edge for one in files for edge in (one.start_offset, one.end_offset)}
    under_way: list[DataFile] = []
    for start, end in pairwise(sorted(edge for edge in edges if edge <= span.end)):
        while waiting and waiting[-1].start_offset <= start:
            under_way.append(waiting.pop())
        under_way = [one for one in under_way if one.end_offset > start]
        for low, high in _cut(start, end, under_way):
            yield CoveredRange(start=low, end=high, files=tuple(under_way))


def _cut(start: int, end: int, files: Sequence[DataFile]) -> Iterable[tuple[int, int]]:
    """One file is read as it comes, several are read as a whole: those in small parts."""
    if len(files) < 2:
        return ((start, end),)
    size = sum(_share(one, start, end) for one in files)
    count = max(1, min(end - start, ceil(size / _SHARED_RANGE_BYTES)))
    return pairwise(start + (end - start) * at // count for at in range(count + 1))


def _share(one: DataFile, start: int, end: int) -> int:
    """About how many bytes of the file are for these offsets."""
    return (
        one.size
        * (min(end, one.end_offset) - max(start, one.start_offset))
        // (one.end_offset - one.start_offset)
    )


def _overlaps(files: Sequence[DataFile], source: SourcePartition) -> Iterator[AuditProblem]:
    """Files of the same partition of the table share no offset."""
    last: dict[object, DataFile] = {}
    for one in sorted(files, key=lambda file: (file.start_offset, file.end_offset)):
        before = last.get(one.partition_values)
        # One piece may have several files of a partition: those are told apart by their rows alone.
        is_same_piece = before is not None and (before.start_offset, before.end_offset) == (
            one.start_offset,
            one.end_offset,
        )
        if before is not None and not is_same_piece and one.start_offset < before.end_offset:
            yield AuditProblem(
                kind=AuditProblemKind.MISPLACED,
                topic=source.topic,
                partition=source.partition,
                start=one.start_offset,
                end=min(before.end_offset, one.end_offset),
                files=(before.path, one.path),
                detail="two files stand for the same offsets",
            )
        if before is None or one.end_offset >= before.end_offset:
            last[one.partition_values] = one


def _beyond(files: Sequence[DataFile], source: SourcePartition, span: OffsetBounds) -> Iterator[AuditProblem]:
    for one in files:
        if one.end_offset > span.end:
            yield AuditProblem(
                kind=AuditProblemKind.MISPLACED,
                topic=source.topic,
                partition=source.partition,
                start=max(span.end, one.start_offset),
                end=one.end_offset,
                files=(one.path,),
                detail=f"the table's progress ends before {span.end}, the file goes on",
            )
