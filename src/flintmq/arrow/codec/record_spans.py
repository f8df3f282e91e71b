"""Where the records of many batches begin and end.

A record's place is known only once the length of the one before it was read. So the batches are walked side by side:
the first record of every batch in one step, then every second one. Where fewer batches are left than make such a step
pay, they are walked one after the other.

Invariant: the records of a batch follow each other without a gap from its payload's start to its end, and there are
as many as the batch counts; a batch of which that is not true is told by `BadRow`. This module must not know what is
inside a record, and leaves it to who looks there to tell a negative length: it is walked as its half.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from flintmq.arrow.codec import record_ends
from flintmq.arrow.codec.varints import BadRow, Positions, VarintPayload, refuse
from flintmq.records.batch import RECORD_SIZE_MIN

# A step costs much the same for one batch as for hundreds: below this a walk one by one is cheaper.
_LANES_MIN: Final = 40


class Spans(NamedTuple):
    """The records of all batches, in their order."""

    begins: Positions
    ends: Positions


def walk(payload: VarintPayload, starts: Positions, ends: Positions, counts: Positions) -> Spans:
    """The records of the batches whose payloads are between `starts` and `ends`; BadRow names a batch."""
    refuse((counts * RECORD_SIZE_MIN > ends - starts) | ((counts == 0) & (starts != ends)))
    # The longest first: those that have a record left are always the first ones.
    lanes = np.argsort(-counts, kind="stable")
    positions, rows, lengths = starts[lanes], (np.cumsum(counts) - counts)[lanes], counts[lanes]
    found = np.empty(int(counts.sum()), np.int64)
    steps = int(lengths[_LANES_MIN - 1]) if len(lanes) >= _LANES_MIN else 0
    for step in range(steps):
        live = len(lengths) - int(np.searchsorted(lengths[::-1], step, side="right"))
        try:
            behind = _step(payload, positions[:live])
        except BadRow as bad:
            raise BadRow(int(lanes[bad.row])) from None
        found[rows[:live]] = behind
        positions[:live] = behind
        rows[:live] += 1
    for lane in np.flatnonzero(lengths > steps).tolist():
        batch, position = int(lanes[lane]), int(positions[lane])
        left, row = int(lengths[lane]) - steps, int(rows[lane])
        behind_each = record_ends.ends(payload.bytes[position : ends[batch]].tobytes(), left)
        if behind_each is None:
            raise BadRow(batch)
        found[row : row + left] = behind_each
        found[row : row + left] += position
    return _spans(found, starts, ends, counts)


def _step(payload: VarintPayload, positions: Positions) -> Positions:
    """Behind one record of every lane. One that leaves its batch is found at the end, for there is no way back."""
    data = payload.bytes
    try:
        first = data[positions]
        second = data[positions + 1]
    except IndexError:
        raise BadRow(int((positions >= len(data) - 1).argmax())) from None
    # As bytes, for `isascii` tells in a tenth of numpy's time that no number goes on after its second byte.
    if (first & second).tobytes().isascii():
        goes_on = first >> 7
        numbers = (first & 0x7F) + (second * goes_on).astype(np.int64) * 128
        begins = positions + goes_on
        begins += 1
    else:
        words, begins = payload.varints_at(positions, bits=32)
        numbers = words.view(np.int64)
    begins += numbers >> 1
    return begins


def _spans(found: Positions, starts: Positions, ends: Positions, counts: Positions) -> Spans:
    batches = np.flatnonzero(counts)
    lasts = np.cumsum(counts)[batches] - 1
    unfinished = found[lasts] != ends[batches]
    if unfinished.any():
        raise BadRow(int(batches[np.flatnonzero(unfinished)[0]]))
    begins = np.empty_like(found)
    begins[1:] = found[:-1]
    begins[lasts - counts[batches] + 1] = starts[batches]
    return Spans(begins, found)
