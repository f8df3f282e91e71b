"""Log lines about connections that had to be closed because of their client.

One misbehaving machine can cause thousands of them in a second, so that for each host and reason only the first
few are written; the rest are counted, and told in one line when the time is over. Reasons are the same if they begin
with the same words. Invariant: every refusal is in the log, by itself or in a sum, and the memory for those that
are not yet told is bounded.
"""

from __future__ import annotations

import logging
from enum import Enum

from flintmq.effects import Timers

WINDOW_S = 10.0
LOGGED_MAX = 3
KEYS_MAX = 1024
_OTHERS = "other hosts"
# Where reasons differ only in what the client sent, they differ in numbers or further behind.
_WORDS_SIZE = 24
_NUMBERS = dict.fromkeys(map(ord, "-0123456789"))


class CloseReason(Enum):
    """Why a connection is closed, in classes."""

    LIMIT = "limit"
    FRAME = "frame"
    REQUEST = "request"
    STALLED = "stalled"
    AUTHENTICATION = "authentication"
    HANDSHAKE = "handshake"
    """TLS, or the time for it and for authentication."""


class _Tally:
    __slots__ = ("last", "logged", "suppressed")

    def __init__(self) -> None:
        self.logged = 0
        self.suppressed = 0
        self.last = ""


class ClosedConnectionLog:
    def __init__(self, timers: Timers, logger: logging.Logger) -> None:
        self._timers = timers
        self._logger = logger
        self._tallies: dict[tuple[str, CloseReason, str], _Tally] = {}

    def note(self, host: str, peer: str, kind: CloseReason, reason: str) -> None:
        key = (host, kind, reason[:_WORDS_SIZE].translate(_NUMBERS))
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= KEYS_MAX:
                key = (_OTHERS, kind, "")
            if not self._tallies:
                # One window for all: idle brokers have no timer.
                self._timers.call_later(WINDOW_S, self._sum_up)
            tally = self._tallies.setdefault(key, _Tally())
        if tally.logged < LOGGED_MAX:
            tally.logged += 1
            self._logger.warning(
                "closing the connection of %s: %s", peer, reason, extra={"peer": peer, "reason": kind.value}
            )
        else:
            tally.suppressed += 1
            tally.last = reason

    def _sum_up(self) -> None:
        tallies, self._tallies = self._tallies, {}
        for (host, kind, _), tally in tallies.items():
            if tally.suppressed:
                self._logger.warning(
                    "…and %d more connections of %s closed in the last %.0f s, the last one because: %s",
                    tally.suppressed,
                    host,
                    WINDOW_S,
                    tally.last,
                    extra={"peer": host, "reason": kind.value, "count": tally.suppressed},
                )
