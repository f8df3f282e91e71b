"""Rows of the broker beside rows of the table, both in the order of offsets: what differs is named. Pure.

    compare(at_broker, in_lake, found)

Rows are compared in windows of offsets, column by column and many rows at once; only where something differs are they
looked at more closely. Invariant: every row of both sides is in exactly one window, and every difference is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.lake.audit.report import AuditProblemKind

Offsets = npt.NDArray[np.int64]


class Findings(Protocol):
    def equal(self, count: int) -> None:
        """So many rows were compared, whether they are the same or not."""

    def differ(self, kind: AuditProblemKind, offsets: Offsets, column: str | None = None) -> None: ...


class UnsortedRows(Exception):
    """Rows of the table are not in the order of their offsets."""


def compare(
    at_broker: Iterator[pa.RecordBatch], in_lake: Iterator[pa.RecordBatch], findings: Findings
) -> None:
    """Columns that only one side has are not compared."""
    broker, lake = _Side(at_broker), _Side(in_lake)
    last: int | None = None
    """The last offset of the table that was seen."""
    while True:
        ends = [end for end in (broker.last(), lake.last()) if end is not None]
        if not ends:
            return
        expected, found = broker.take(min(ends)), lake.take(min(ends))
        found_offsets, expected_offsets = _offsets(found), _offsets(expected)
        is_doubled = last is not None and len(found_offsets) and found_offsets[0] == last
        if len(found_offsets):
            last = int(found_offsets[-1])
        if is_doubled or not np.array_equal(expected_offsets, found_offsets):
            expected, found = _told_apart(expected, found, bool(is_doubled), findings)
        if found is not None and expected is not None and found.num_rows:
            findings.equal(found.num_rows)
            _compare_columns(expected, found, findings)


def check_order(in_lake: Iterator[pa.RecordBatch], findings: Findings) -> int:
    """Rows that have nothing to be compared with: how many; none of them twice."""
    lake = _Side(in_lake)
    count = 0
    last: int | None = None
    while (end := lake.last()) is not None:
        offsets = _offsets(lake.take(end))
        again = np.diff(offsets, prepend=offsets[0] - 1 if last is None else last) == 0
        findings.differ(AuditProblemKind.DOUBLED, offsets[again])
        count += len(offsets)
        last = end
    return count


class _Side:
    """A stream of rows, taken up to an offset at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._offsets = np.empty(0, np.int64)
        self._at = 0
        self._highest: int | None = None

    def last(self) -> int | None:
        """Of the rows at hand; None at the end."""
        while self._at >= len(self._offsets):
            self._batch = next(self._batches, None)
            if self._batch is None:
                return None
            self._offsets, self._at = _offsets(self._batch), 0
            self._check()
        return int(self._offsets[-1])

    def _check(self) -> None:
        offsets = self._offsets
        if not len(offsets):
            return
        if (self._highest is not None and offsets[0] < self._highest) or (np.diff(offsets) < 0).any():
            raise UnsortedRows
        self._highest = int(offsets[-1])

    def take(self, until: int) -> pa.RecordBatch | None:
        """Rows up to this offset, at most those at hand."""
        if self._batch is None:
            return None
        end = int(np.searchsorted(self._offsets, until, side="right"))
        start, self._at = self._at, max(end, self._at)
        return self._batch.slice(start, self._at - start)


def _offsets(batch: pa.RecordBatch | None) -> Offsets:
    if batch is None:
        return np.empty(0, np.int64)
    column: Offsets = batch.column("offset").to_numpy()
    return column


def _told_apart(
    expected: pa.RecordBatch | None, found: pa.RecordBatch | None, begins_doubled: bool, findings: Findings
) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
    """The rows that both have, once."""
    wanted, there = _offsets(expected), _offsets(found)
    again = np.diff(there, prepend=there[:1] - (0 if begins_doubled else 1)) == 0
    findings.differ(AuditProblemKind.DOUBLED, there[again])
    once = np.flatnonzero(~again)
    there = there[once]
    findings.differ(AuditProblemKind.MISSING, np.setdiff1d(wanted, there, assume_unique=True))
    # What is doubled from the window before is not foreign: its row was compared there.
    findings.differ(AuditProblemKind.FOREIGN, np.setdiff1d(there, wanted, assume_unique=True))
    if expected is None or found is None:
        return None, None
    _, left, right = np.intersect1d(wanted, there, assume_unique=True, return_indices=True)
    return expected.take(pa.array(left)), found.take(pa.array(once[right]))


def _compare_columns(expected: pa.RecordBatch, found: pa.RecordBatch, findings: Findings) -> None:
    for name in found.schema.names:
        at = expected.schema.get_field_index(name)
        if at < 0 or name == "offset":
            continue
        column = found.column(name)
        rows = differing(_narrowed(expected.column(at), column.type), column)
        if rows:
            findings.differ(AuditProblemKind.CHANGED, _offsets(found)[rows], name)


def differing(first: Any, second: Any) -> list[int]:
    """The rows in which two columns differ. Numbers that are none are the same if their bits are."""
    if first is None:
        return list(range(len(second)))
    if pa.types.is_floating(first.type):
        bits = pa.int32() if first.type == pa.float32() else pa.int64()
        first, second = first.view(bits), second.view(bits)
    found: list[int] = []
    waiting = [(0, len(first))]
    while waiting:
        start, end = waiting.pop()
        if first.slice(start, end - start).equals(second.slice(start, end - start)):
            continue
        if end - start > 1:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
        elif not _is_same(first[start], second[start]):
            found.append(start)
    return found


def _is_same(first: Any, second: Any) -> bool:
    """Of what Arrow calls different: nested numbers that are none, for which there is no other way."""
    if not pa.types.is_nested(first.type):
        return False
    try:
        return repr(first.as_py()) == repr(second.as_py())
    except (ValueError, OverflowError):
        # Times that Python does not have.
        return False


def _narrowed(column: Any, kind: pa.DataType) -> Any:
    """As a file has it that was written before columns were added or widened; None if it cannot be."""
    if column.type.equals(kind):
        return column
    try:
        return _cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError):
        return None


def _cast(column: Any, kind: pa.DataType) -> Any:
    nulls = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        members = [_cast(column.field(column.type.get_field_index(one.name)), one.type) for one in kind]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=nulls)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        # Whole: neither a mask nor the offsets go with a slice.
        whole = pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column
        if pa.types.is_list(kind):
            items = _cast(whole.values, kind.value_type)
            return pa.ListArray.from_arrays(whole.offsets, items, type=kind, mask=nulls)
        keys, values = _cast(whole.keys, kind.key_type), _cast(whole.items, kind.item_type)
        return pa.MapArray.from_arrays(whole.offsets, keys, values, type=kind, mask=nulls)
    return column if column.type.equals(kind) else column.cast(kind)
