"""Which files have rows that lack columns, and how far the table is filled once some are rewritten. Pure.

Invariant: files of a partition are rewritten in the order of their offsets, so that one offset of each partition says
how far the table is filled. The same files and columns give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flintmq.lake.syncing.column_notes import OpenRanges
from flintmq.lake.tables.data_file import DataFile, FileName, data_path, digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFill:
    file: DataFile
    columns: tuple[tuple[str, int, int], ...]
    """Columns, each with the offsets of the rows that lack it."""
    path: str
    """Of the file that takes its place; follows from all that decides about its bytes."""


def plan_fills(files: Iterable[DataFile], ranges: OpenRanges, *, settings: object) -> list[PlannedFill]:
    """Return what to rewrite, by partition and offset; `settings` are what decides about bytes beside the inputs."""
    fills = []
    for one in sorted(files, key=lambda file: (file.partition, file.start_offset, file.path)):
        name = FileName.of(one.path)
        columns = tuple(
            (column, max(start, one.start_offset), min(end, one.end_offset))
            for column, partitions in sorted(ranges.items())
            for start, end in [partitions.get(one.partition, (0, 0))]
            if start < one.end_offset and one.start_offset < end
        )
        if name is None or not columns:
            continue
        filled = FileName(
            topic_id=name.topic_id,
            partition=one.partition,
            start_offset=one.start_offset,
            end_offset=one.end_offset,
            digest=digest_of([one.path], columns, settings),
            is_merged=True,
        )
        fills.append(PlannedFill(file=one, columns=columns, path=data_path(filled, one.partition_values)))
    return fills


def filled_up_to(left: Sequence[PlannedFill], ranges: OpenRanges) -> Mapping[int, int]:
    """Return by partition the offset below which all rows are filled, once only `left` is not rewritten."""
    ends: dict[int, int] = {}
    for partitions in ranges.values():
        for partition, (_, end) in partitions.items():
            ends[partition] = max(end, ends.get(partition, 0))
    for one in left:
        partition = one.file.partition
        ends[partition] = min(ends.get(partition, one.file.start_offset), one.file.start_offset)
    return ends
