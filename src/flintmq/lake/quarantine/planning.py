"""Which files of a table take rows that come late, between rows that are there. Pure.

    insertions = plan_insertions(files, rows, topic_id=…)

Invariant: a row goes to the file whose offsets cover its own, in its partition of the table; where there is none, to
a new file that covers no other file's offsets. So files of a table go on sharing no offset, as merging, audits and
`lake latest` expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flintmq.lake.tables.data_file import DataFile, FileName, PartitionValues
from flintmq.lake.tables.table import TableError

TablePartition = tuple[int, PartitionValues]
"""A partition of the topic, and one of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    partition: int
    values: PartitionValues
    inputs: tuple[DataFile, ...]
    """All of the same offsets; none if nothing covers the rows."""
    offsets: tuple[int, ...]
    """Of the rows that come, in order."""
    start_offset: int
    end_offset: int


def plan_insertions(
    files: Iterable[DataFile], rows: Mapping[TablePartition, Sequence[int]], *, topic_id: str
) -> list[Insertion]:
    """`rows` are the offsets of the new rows."""
    by_partition: dict[TablePartition, list[DataFile]] = {}
    for one in files:
        name = FileName.of(one.path)
        if name is not None and name.topic_id == topic_id:
            by_partition.setdefault((one.partition, one.partition_values), []).append(one)
    found = []
    for (partition, values), offsets in sorted(rows.items(), key=lambda pair: repr(pair[0])):
        present = by_partition.get((partition, values), [])
        for key, some in _grouped(present, offsets).items():
            inputs = tuple(
                sorted(
                    (one for one in present if (one.start_offset, one.end_offset) == key.span),
                    key=lambda one: one.path,
                )
                if key.is_covered
                else ()
            )
            start, end = key.span if key.is_covered else (some[0], some[-1] + 1)
            found.append(
                Insertion(
                    partition=partition,
                    values=values,
                    inputs=inputs,
                    offsets=tuple(some),
                    start_offset=start,
                    end_offset=end,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    span: tuple[int, int]
    """Of the files, or of the hole between files."""
    is_covered: bool


def _grouped(files: Sequence[DataFile], offsets: Sequence[int]) -> dict[_Place, list[int]]:
    spans = sorted({(one.start_offset, one.end_offset) for one in files})
    found: dict[_Place, list[int]] = {}
    for offset in sorted(offsets):
        covering = [span for span in spans if span[0] <= offset < span[1]]
        if len(covering) > 1:
            raise TableError(
                f"Files of the table overlap at offset {offset}; audit the table before records are replayed into it."
            )
        if covering:
            place = _Place(covering[0], True)
        else:
            before = max((span[1] for span in spans if span[1] <= offset), default=0)
            after = min((span[0] for span in spans if span[0] > offset), default=-1)
            place = _Place((before, after), False)
        found.setdefault(place, []).append(offset)
    return found
