"""The wall time of a broker under test: it runs until the test takes it in hand.

    clock.set(1_700_000_000_000)   stands still there
    clock.advance(3600)            an hour later, standing or running as before
    clock.release()                the system's time again

Only wall time is controlled: what stamps records, is checked against their timestamps, and rolls segments.
Timers (long polls, timeouts, delays) keep real time, so that a client and the broker agree on how long
something took.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class ControlledClock:
    """A `Clock` for the broker, and its controls for the test. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset_ms = 0
        self._stands_at_ms: int | None = None
        self.on_change: Callable[[], object] = lambda: None
        """Called in the thread that moved the time, after it was moved."""

    # ---- for the broker

    def now_ms(self) -> int:
        with self._lock:
            if self._stands_at_ms is not None:
                return self._stands_at_ms
            return time.time_ns() // 1_000_000 + self._offset_ms

    def monotonic(self) -> float:
        return time.monotonic()

    # ---- for the test

    def set(self, ms: int) -> None:
        """Stand still at `ms` since the epoch, be that earlier or later."""
        with self._lock:
            self._stands_at_ms = ms
        self.on_change()

    def advance(self, seconds: float) -> None:
        """Move forward; a clock that stands goes on standing, a running one goes on running."""
        if seconds < 0:
            raise ValueError("time is advanced forward; use set() to go back")
        ms = round(seconds * 1000)
        with self._lock:
            if self._stands_at_ms is None:
                self._offset_ms += ms
            else:
                self._stands_at_ms += ms
        self.on_change()

    def release(self) -> None:
        """Run again, with the system's time."""
        with self._lock:
            self._stands_at_ms = None
            self._offset_ms = 0
        self.on_change()
