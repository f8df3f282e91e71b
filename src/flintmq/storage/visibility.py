"""How far readers of a log may see: the high watermark, the last stable offset, and where in the files they lie.

The high watermark bounds what may be read and acknowledged; the partition raises it, because only the partition knows
of replicas and flushes. Below the last stable offset every transaction is decided, and its marker is visible.
Pure: it knows segments only as positions in files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from enum import IntEnum

from flintmq.storage.segment import Segment


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOG_END = 2
    """For replicas, which copy what is not yet visible."""


class Visibility:
    __slots__ = ("_ended", "_hidden", "_position", "_segment", "high_watermark", "known_from")

    def __init__(self) -> None:
        self.high_watermark = 0
        self.known_from = 0
        """From here on the ends of hidden batches are known; below it they must be looked up."""
        # The segment that holds the high watermark, and its position there; None where it must be looked up.
        self._segment: Segment | None = None
        self._position = 0
        # Batch ends above the high watermark: (end offset, segment, position after the batch).
        self._hidden: deque[tuple[int, Segment, int]] = deque()
        # Transactions whose marker is above the high watermark: (offset of the marker, first offset).
        self._ended: deque[tuple[int, int]] = deque()

    def add_hidden(self, end_offset: int, segment: Segment) -> None:
        """Note a batch that was appended and is not visible yet."""
        self._hidden.append((end_offset, segment, segment.size))

    def add_ended_transaction(self, marker_offset: int, first_offset: int) -> None:
        """Hold the last stable offset back until the marker of an ended transaction is visible."""
        if marker_offset >= self.high_watermark:
            self._ended.append((marker_offset, first_offset))

    def advance_to_end(self, end_offset: int, active: Segment) -> None:
        """Make the whole log visible."""
        self.high_watermark = end_offset
        self._segment = active
        self._position = active.size
        if self._hidden or self._ended:
            self._hidden.clear()
            self._ended.clear()

    def advance(self, offset: int) -> None:
        """Raise the high watermark to `offset`, the end of a hidden batch, or to the last batch end below it."""
        hidden = self._hidden
        if self.high_watermark < self.known_from:
            self._move_to(self.known_from)
        while hidden and hidden[0][0] <= offset:
            self.high_watermark, self._segment, self._position = hidden.popleft()
        while self._ended and self._ended[0][0] < self.high_watermark:
            self._ended.popleft()

    def advance_to_found(self, offset: int) -> None:
        """Raise the high watermark to `offset`, a batch's end below `known_from` that was looked up."""
        self._move_to(offset)
        while self._ended and self._ended[0][0] < offset:
            self._ended.popleft()

    def _move_to(self, offset: int) -> None:
        self.high_watermark, self._segment = offset, None

    def recover(self, high_watermark: int, end_offset: int, ended: Iterable[tuple[int, int]]) -> None:
        """Begin at `high_watermark` in a log that was opened, or truncated, and ends at `end_offset`.

        `ended` are the transactions whose markers lie from the high watermark on: (offset of the marker, first
        offset).
        """
        self._move_to(high_watermark)
        self.known_from = end_offset
        self._hidden.clear()
        self._ended = deque(ended)

    def last_stable_offset(self, first_unstable_offset: int | None, start_offset: int) -> int:
        stable = self.high_watermark
        if first_unstable_offset is not None and first_unstable_offset < stable:
            stable = first_unstable_offset
        for _, first_offset in self._ended:
            if first_offset < stable:
                stable = first_offset
        # The first records of an open transaction may be deleted: readers then wait at the start of the log.
        return stable if stable > start_offset else start_offset

    def end_position(self, segment: Segment) -> int | None:
        """Return where in `segment` the visible bytes end; None if that must be looked up."""
        visible = self._segment
        if visible is segment:
            return self._position
        if visible is not None and segment.base_offset < visible.base_offset:
            return segment.size
        return None

    def replace_segments(self, old: Container[Segment]) -> None:
        """Drop a position in one of the `old` segments: it is looked up until the high watermark moves."""
        if self._segment is not None and self._segment in old:
            self._segment = None
