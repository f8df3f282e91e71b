"""Virtual time of a world, the events that are due in it, and a digest of everything that happened.

Invariant: events run in the order of their times, those of one time in the order in which they were scheduled.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable

_LINES_KEPT = 2_000


class TimelineEvent:
    __slots__ = ("action", "at_s")

    def __init__(self, at_s: float, action: Callable[[], object] | None) -> None:
        self.at_s = at_s
        self.action = action

    def cancel(self) -> None:
        self.action = None


class Timeline:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[tuple[float, int, TimelineEvent]] = []
        self._sequence = 0

    def after(self, delay_s: float, action: Callable[[], object]) -> TimelineEvent:
        event = TimelineEvent(self.now_s + max(0.0, delay_s), action)
        self._sequence += 1
        heapq.heappush(self._queue, (event.at_s, self._sequence, event))
        return event

    def next_s(self) -> float | None:
        """Return when the next event is due."""
        queue = self._queue
        while queue and queue[0][2].action is None:
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def run_due(self) -> bool:
        """Run the next event if its time has come; return whether there was one."""
        due_s = self.next_s()
        if due_s is None or due_s > self.now_s:
            return False
        _, _, event = heapq.heappop(self._queue)
        action, event.action = event.action, None
        assert action is not None
        action()
        return True


class Trace:
    """A digest of all that happened, in order, and its last lines for people."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._digest = hashlib.blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self.count = 0

    def note(self, text: str, data: bytes = b"") -> None:
        """Add an event. Only a checksum of `data` is kept in the line."""
        line = f"{self._timeline.now_s:.9f} {text}"
        if data:
            line += f" [{len(data)} bytes, {hashlib.blake2b(data, digest_size=6).hexdigest()}]"
        self._digest.update(line.encode() + b"\n")
        self.lines.append(line)
        self.count += 1

    def digest(self) -> str:
        return self._digest.hexdigest()
