"""The headers of many records, as columns.

They are walked like the records of batches: the first header of every record in one step, then every second one; and
one by one where few records are left, so that a record of very many headers takes no more than its time.

Invariant: the headers of a record fill it exactly and each has a key; a record of which that is not true is told by
`BadRow`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from flintmq.arrow.codec.fields import Strings
from flintmq.arrow.codec.varints import BadRow, Positions, VarintPayload, refuse
from flintmq.records.varint import read_varint

# A step costs much the same for one record as for hundreds: below this a walk one by one is cheaper.
_LANES_MIN: Final = 16


class Headers:
    """All headers, in the order of their records."""

    def __init__(
        self, payload: VarintPayload, positions: Positions, ends: Positions, counts: npt.NDArray[np.int64]
    ) -> None:
        """`positions` are those of the records' first headers. Counts were held against the room in a record."""
        total = int(counts.sum())
        self.keys = Strings.unfilled(total)
        self.values = Strings.unfilled(total)
        # The longest first: those that have a header left are always the first ones.
        records = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        lengths, rows = counts[records], (np.cumsum(counts) - counts)[records]
        at, stops = positions[records], ends[records]
        steps = int(lengths[_LANES_MIN - 1]) if len(lengths) >= _LANES_MIN else 0
        try:
            for step in range(steps):
                live = len(lengths) - int(np.searchsorted(lengths[::-1], step, side="right"))
                at[:live] = self._step(payload, rows[:live], at[:live])
                rows[:live] += 1
            refuse((at != stops) & (lengths <= steps))
            for record in np.flatnonzero(lengths > steps).tolist():
                start, stop, left = int(at[record]), int(stops[record]), int(lengths[record]) - steps
                if not self._walk(payload, start, stop, int(rows[record]), left):
                    raise BadRow(record)
        except BadRow as bad:
            raise BadRow(int(records[bad.row])) from None

    def _step(self, payload: VarintPayload, rows: Positions, positions: Positions) -> Positions:
        lengths, positions = payload.varints_at(positions, bits=32)
        refuse((lengths & 1) != 0)  # null or negative
        positions = self.keys.fill(rows, positions, lengths)
        lengths, positions = payload.varints_at(positions, bits=32)
        return self.values.fill(rows, positions, lengths)

    def _walk(self, payload: VarintPayload, start: int, stop: int, row: int, count: int) -> bool:
        """The rest of one record's headers; False if they are not exactly what is there."""
        data = payload.bytes[start:stop].tobytes()
        position = 0
        try:
            for entry in range(row, row + count):
                for column, least in ((self.keys, 0), (self.values, -1)):
                    length, position = read_varint(data, position, 32)
                    if length < least or position + length > len(data):
                        return False
                    behind = position + max(length, 0)
                    column.positions[entry] = start + position, start + behind
                    column.nulls[entry] = length < 0
                    position = behind
        except (IndexError, OverflowError):
            return False
        return position == len(data)
