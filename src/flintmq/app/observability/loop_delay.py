"""How late the event loop is: a timer that should come ten times a second, and when it really comes.

What is told is the worst of the last window and of the one under way, so that no scrape misses a stall and
two scrapers do not take it from each other.
"""

from __future__ import annotations

from flintmq.effects import Clock, Timer, Timers

PROBE_S = 0.1
WINDOW_S = 10.0


class LoopDelay:
    def __init__(self, *, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._timer: Timer | None = None
        self._due = 0.0
        self._window_ends = 0.0
        self._worst_s = 0.0
        self._worst_before_s = 0.0

    @property
    def worst_s(self) -> float:
        return max(self._worst_s, self._worst_before_s)

    def start(self) -> None:
        self._window_ends = self._clock.monotonic() + WINDOW_S
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._due = self._clock.monotonic() + PROBE_S
        self._timer = self._timers.call_later(PROBE_S, self._probe)

    def _probe(self) -> None:
        now = self._clock.monotonic()
        if now >= self._window_ends:
            self._worst_before_s, self._worst_s = self._worst_s, 0.0
            self._window_ends = now + WINDOW_S
        self._worst_s = max(self._worst_s, now - self._due)
        self._schedule()
