"""A limit on the bytes per second that replicas which catch up may take (KIP-73). Pure; the time is an argument.

Only replicas that the topic names (`leader.` and `follower.replication.throttled.replicas`) and that are not in sync
are limited, so that a reassignment cannot starve producers, and no follower leaves its ISR because of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

UNLIMITED: Final = (1 << 63) - 1
_ALL: Final = "*"


class ReplicationThrottle:
    """One second's allowance at most is saved up; what is taken beyond it is paid back before more is given."""

    __slots__ = ("_allowance", "_at_s", "_rate")

    def __init__(self) -> None:
        self._rate = UNLIMITED
        self._allowance = 0.0
        self._at_s = 0.0

    def is_exceeded(self, rate: int, now_s: float) -> bool:
        """Whether nothing may be taken now; `rate` is the limit in force, in bytes per second."""
        if rate == UNLIMITED:
            self._rate = rate
            return False
        if self._rate == UNLIMITED:
            self._allowance, self._at_s = float(rate), now_s
        self._rate = rate
        elapsed_s = max(0.0, now_s - self._at_s)
        self._allowance = min(float(rate), self._allowance + elapsed_s * rate)
        self._at_s = now_s
        return self._allowance <= 0

    def take(self, size: int) -> None:
        if self._rate != UNLIMITED:
            self._allowance -= size


def is_throttled(replicas: Sequence[str], partition: int, node: int) -> bool:
    """Whether a setting such as `0:1,1:1`, or `*`, names this replica."""
    return _ALL in replicas or f"{partition}:{node}" in replicas
