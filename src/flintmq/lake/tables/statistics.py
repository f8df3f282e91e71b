"""What a Parquet file's footer says of its columns, for formats that keep such figures beside their files.

Invariant: a bound is there only if it holds for every row. Nothing but the footer is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(slots=True)
class ColumnStatistics:
    path: str
    """As Parquet has it: `headers.list.element.key`."""
    physical_type: str
    is_repeated: bool
    """In a list or a map: then bounds and nulls say nothing about rows."""
    size: int = 0
    values: int = 0
    nulls: int | None = 0
    minimum: Any = None
    maximum: Any = None
    is_bounded: bool = True
    """Whether every row group has bounds, or nulls only."""


@dataclass(frozen=True, slots=True)
class FileStatistics:
    rows: int
    columns: tuple[ColumnStatistics, ...]
    split_offsets: tuple[int, ...]
    """Where row groups begin."""


def statistics_of(footer: bytes) -> FileStatistics:
    metadata = pq.read_metadata(pa.BufferReader(footer))
    columns = tuple(
        ColumnStatistics(
            path=column.path,
            physical_type=column.physical_type,
            is_repeated=column.max_repetition_level > 0,
        )
        for column in (metadata.schema.column(index) for index in range(metadata.num_columns))
    )
    splits = []
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index, figures in enumerate(columns):
            _add(figures, row_group.column(index))
        first = row_group.column(0)
        starts = [first.data_page_offset]
        if first.has_dictionary_page:
            starts.append(first.dictionary_page_offset)
        splits.append(min(starts))
    return FileStatistics(metadata.num_rows, columns, tuple(sorted(splits)))


def _add(figures: ColumnStatistics, column: Any) -> None:
    figures.size += column.total_compressed_size
    figures.values += column.num_values
    statistics = column.statistics if column.is_stats_set else None
    if statistics is None or not statistics.has_null_count:
        figures.nulls = None
    elif figures.nulls is not None:
        figures.nulls += statistics.null_count
    if statistics is not None and statistics.has_min_max:
        low, high = statistics.min, statistics.max
        if low == low and high == high:  # no NaN, which bounds nothing
            figures.minimum = low if figures.minimum is None else min(figures.minimum, low)
            figures.maximum = high if figures.maximum is None else max(figures.maximum, high)
            return
    elif statistics is not None and statistics.has_null_count and statistics.null_count == column.num_values:
        return
    figures.is_bounded = False
