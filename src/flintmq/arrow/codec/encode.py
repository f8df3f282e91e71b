"""Arrow columns to the records of batches, vectorised: all lengths at once, then one join in native code.

    length · 0 · time delta · offset delta · key size │ key │ value size │ value │ header count │ headers

What stands before, between and behind the contents of a row is small numbers; they are written for all rows in one
step, and Arrow lays them beside the contents. The bytes of a batch are then a slice of one buffer. Unless rows have
times of their own, every record has its batch's, and the delta is 0.

Invariant: a batch holds rows of one destination in the order in which they came, and its records take no more than
`batch_bytes` unless it is a single one. Times in a batch are so close that their deltas have 32 bits. All rows of a
call must fit into one Arrow column, that is 2 GB. This module must not know topics, producers or compression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Sizes = npt.NDArray[np.int64]
Destinations = npt.NDArray[np.int64]

# Length, attributes, two deltas, the sizes of key and value and the header count, at their longest.
RECORD_OVERHEAD: Final = 5 + 1 + 1 + 5 + 5 + 5 + 5
_TIME_OVERHEAD: Final = 4
"""What a time delta may take beside its first byte."""
_TIME_DELTA_MAX: Final = (1 << 31) - 1
_NULL_SIZE: Final = -1
_TWO_ZEROS: Final = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of binary values; keys and headers may be missing as a whole."""

    values: pa.Array
    keys: pa.Array | None = None
    headers: pa.Array | None = None
    """Lists of key and value."""
    timestamps_ms: npt.NDArray[np.int64] | None = None
    """Of each row; None if whoever sends the batch gives it one."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, order: npt.NDArray[np.int64]) -> Rows:
        positions = pa.array(order)
        return Rows(
            self.values.take(positions),
            None if self.keys is None else self.keys.take(positions),
            None if self.headers is None else self.headers.take(positions),
            None if self.timestamps_ms is None else self.timestamps_ms[order],
        )


class EncodedPayload(NamedTuple):
    """The records of one batch, not compressed."""

    destination: int
    record_count: int
    records: memoryview
    first_timestamp_ms: int | None = None
    """What deltas count from; None if rows have no times."""
    max_timestamp_ms: int | None = None


def encode(rows: Rows, destinations: Destinations, *, batch_bytes: int) -> Iterator[EncodedPayload]:
    """Each row goes to the destination of the same place. Batches of one destination come in their order."""
    if not len(rows):
        return
    order = _grouping(destinations)
    if order is not None:
        rows, destinations = rows.take(order), destinations[order]
    key_sizes = _sizes(rows.keys, len(rows))
    value_sizes = _sizes(rows.values, len(rows))
    headers = None if rows.headers is None else _Headers(rows.headers)
    contents = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
    if headers is not None:
        contents += headers.sizes
    times = rows.timestamps_ms
    overhead = RECORD_OVERHEAD if times is None else RECORD_OVERHEAD + _TIME_OVERHEAD
    starts = _cuts(contents + overhead, destinations, batch_bytes)
    if times is not None:
        starts = _cuts_by_time(starts, times)
    counts = np.diff(starts, append=len(rows))
    offsets = np.arange(len(rows)) - np.repeat(starts, counts)
    deltas = None if times is None else times - np.repeat(times[starts], counts)
    records, ends = _join(rows, key_sizes, value_sizes, contents, offsets, deltas, headers)
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        payload = EncodedPayload(int(destinations[start]), count, records[ends[start] : ends[start + count]])
        if times is not None:
            newest = int(times[start : start + count].max())
            payload = payload._replace(first_timestamp_ms=int(times[start]), max_timestamp_ms=newest)
        yield payload


def content_sizes(rows: Rows) -> Sizes:
    """Bytes of each row's key and value, for who spreads rows by their size."""
    keys, values = _sizes(rows.keys, len(rows)), _sizes(rows.values, len(rows))
    return np.maximum(keys, 0) + np.maximum(values, 0)


def _grouping(destinations: Destinations) -> npt.NDArray[np.int64] | None:
    """The order in which each destination's rows stand together; None if they do already."""
    runs = np.count_nonzero(np.diff(destinations)) + 1
    if runs == 1 or runs == len(np.unique(destinations)):
        return None
    # Few bits are sorted by counting.
    narrow = destinations.astype(np.uint16) if 0 <= destinations.max() < 1 << 16 else destinations
    return np.argsort(narrow, kind="stable")


def _cuts(bounds: Sizes, destinations: Destinations, batch_bytes: int) -> npt.NDArray[np.int64]:
    """The rows with which a batch begins."""
    edges = [0, *(np.flatnonzero(np.diff(destinations)) + 1).tolist(), len(bounds)]
    sums = np.cumsum(bounds)
    starts: list[int] = []
    for first, end in pairwise(edges):
        start = first
        while start < end:
            starts.append(start)
            before = int(sums[start - 1]) if start else 0
            full = int(np.searchsorted(sums, before + batch_bytes, side="right"))
            start = min(end, max(full, start + 1))
    return np.array(starts, np.int64)


def _cuts_by_time(starts: npt.NDArray[np.int64], times: Sizes) -> npt.NDArray[np.int64]:
    """More of them, where times are too far from the first of their batch."""
    found: list[int] = []
    for first, end in pairwise((*starts.tolist(), len(times))):
        start = first
        while start < end:
            found.append(start)
            far = np.flatnonzero(np.abs(times[start:end] - times[start]) > _TIME_DELTA_MAX)
            start = start + int(far[0]) if len(far) else end
    return np.array(found, np.int64)


def _join(
    rows: Rows,
    key_sizes: Sizes,
    value_sizes: Sizes,
    contents: Sizes,
    offsets: Sizes,
    deltas: Sizes | None,
    headers: _Headers | None,
) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """All records behind each other, and where each of them begins and the last one ends."""
    key_fields, value_fields = _zigzag(key_sizes), _zigzag(value_sizes)
    offset_fields = _zigzag(offsets)
    counts = None if headers is None else _zigzag(headers.counts)
    sizes = contents + _TWO_ZEROS + _width(offset_fields) + _width(key_fields) + _width(value_fields)
    sizes += 1 if counts is None else _width(counts)
    time_fields = None if deltas is None else _zigzag(deltas)
    if time_fields is not None:
        sizes += _width(time_fields) - 1
    parts: list[pa.Array | pa.Scalar] = [
        _numbers(_zigzag(sizes), None, time_fields, offset_fields, key_fields)
    ]
    if rows.keys is not None:
        parts.append(rows.keys)
    parts += [_numbers(value_fields), rows.values]
    if headers is None or counts is None:
        parts.append(pa.scalar(b"\0"))
    else:
        parts += [_numbers(counts), headers.bytes]
    options = pc.JoinOptions(null_handling="replace", null_replacement=b"")
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b""), options=options)
    _, ends, data = joined.buffers()
    return memoryview(data), np.frombuffer(ends, np.int32, len(rows) + 1)


class _Headers:
    """The headers of every row as they stand in its record, behind their count."""

    def __init__(self, column: pa.Array) -> None:
        self.counts = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
        flat = column.flatten()
        if flat.null_count:
            raise ValueError("a header is null; leave it out of the list instead")
        keys, values = (_binary(one) for one in flat.flatten())
        if keys.null_count:
            raise ValueError("a header has no key")
        fields = [_zigzag(_sizes(one, len(flat))) for one in (keys, values)]
        options = pc.JoinOptions(null_handling="replace", null_replacement=b"")
        joined = pc.binary_join_element_wise(
            _numbers(fields[0]), keys, _numbers(fields[1]), values, pa.scalar(b""), options=options
        )
        _, ends, data = joined.buffers()
        # A row's headers follow each other: where the first begins and the last ends, theirs do.
        last = np.concatenate(([0], np.cumsum(self.counts)))
        edges = np.frombuffer(ends, np.int32, len(flat) + 1)[last] if len(flat) else np.zeros_like(last)
        self.sizes: Sizes = np.diff(edges).astype(np.int64)
        self.bytes = pa.Array.from_buffers(
            pa.binary(), len(column), [None, pa.py_buffer(edges.astype(np.int32)), data or pa.py_buffer(b"")]
        )


def _binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _sizes(column: pa.Array | None, count: int) -> Sizes:
    """Of each value in bytes; -1 where there is none."""
    if column is None:
        return np.full(count, _NULL_SIZE, np.int64)
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(_NULL_SIZE)
    found: Sizes = lengths.to_numpy().astype(np.int64)
    return found


def _zigzag(numbers: Sizes) -> Sizes:
    return (numbers << 1) ^ (numbers >> 63)


def _width(fields: Sizes) -> Sizes:
    """Bytes of each as a varint; no field here has more than 32 bits."""
    widths = np.ones(len(fields), np.int64)
    largest = int(fields.max(initial=0))
    for bits in (7, 14, 21, 28):
        if largest >> bits:
            widths += fields >= 1 << bits
    return widths


def _numbers(*columns: Sizes | None) -> pa.Array:
    """These varints of each row behind each other, as one value; None stands for a zero in every row."""
    given = [column for column in columns if column is not None]
    widths = [None if column is None else _width(column) for column in columns]
    count = len(given[0])
    total = sum((1 if width is None else width for width in widths), np.zeros(count, np.int64))
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(total, out=ends[1:])
    out = np.zeros(int(ends[-1]), np.uint8)
    positions = ends[:-1].astype(np.int64)
    for column, width in zip(columns, widths, strict=True):
        if column is None or width is None:
            positions += 1
            continue
        _write(out, positions, column, width)
        positions += width
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(out)])


def _write(out: npt.NDArray[np.uint8], positions: Sizes, fields: Sizes, widths: Sizes) -> None:
    longest = int(widths.max(initial=1))
    if longest == 1:
        out[positions] = fields
        return
    out[positions] = (fields & 0x7F) | ((widths > 1) << 7)
    for at in range(1, longest):
        wide = np.flatnonzero(widths > at)
        more = (widths[wide] > at + 1) << 7
        out[positions[wide] + at] = (fields[wide] >> 7 * at & 0x7F) | more
