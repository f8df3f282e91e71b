"""Rates that quotas limit, measured as Kafka measures them. Pure: the caller says what time it is, in seconds.

A `SampledRate` looks at the last `samples` windows, the current one included. It permits bursts: what counts is the
mean over all windows. A `TokenBucket` fills at the rate of the quota, up to what all windows together permit
(KIP-599). Either is as good as new once it was not used for that long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

UNLIMITED: Final = float("inf")
THROTTLE_MS_MAX: Final = (1 << 31) - 1
"""What a response can say."""


class QuotaWindows(NamedTuple):
    samples: int = 11
    size_s: float = 1.0

    @property
    def span_s(self) -> float:
        """After this time nothing that was recorded counts any more."""
        return self.samples * self.size_s


class SampledRate:
    __slots__ = (
        "_current", "_ends", "_lasts", "_oldest", "_purged_at", "_samples", "_size_s", "_span_s", "_starts",
        "_total", "_values", "limit", "throttle_s_max",
    )  # fmt: skip

    def __init__(
        self, limit: float, samples: int, size_s: float, now: float, throttle_s_max: float = UNLIMITED
    ) -> None:
        self.limit = limit
        """Per second."""
        self.throttle_s_max = throttle_s_max
        self._samples = samples
        self._size_s = size_s
        self._span_s = samples * size_s
        # One sample more than are looked at: the oldest may have begun before the time that they span.
        self._starts: list[float] = [now]
        self._lasts: list[float] = [now]
        self._values: list[float] = [0.0]
        self._current = 0
        self._ends = now + size_s
        # Kept, so that most records need no look at all samples.
        self._total = 0.0
        self._oldest = now
        self._purged_at = now + self._span_s

    @property
    def total(self) -> float:
        """What was recorded in the windows, as of the last record."""
        return self._total

    def used_at(self) -> float:
        return self._lasts[self._current]

    def record(self, value: float, now: float) -> None:
        if now >= self._ends:
            self._advance(now)
        current = self._current
        self._values[current] += value
        self._lasts[current] = now
        self._total += value

    def throttle_ms(self, now: float) -> int:
        """Return for how long nothing may be recorded to bring the rate down to the limit; 0 if it is not above.

        With the observed rate O over the time W and the limit L this is X in O * W / (W + X) = L.
        """
        if now >= self._purged_at:
            self._purge(now)
        elapsed_s = now - self._oldest
        full = int(elapsed_s / self._size_s)
        if full < self._samples - 1:
            # The time before the first record counts too, or the first record would be a rate without measure.
            elapsed_s += (self._samples - 1 - full) * self._size_s
        if elapsed_s < 0.001:
            elapsed_s = 0.001
        limit = self.limit
        if self._total <= limit * elapsed_s:
            return 0
        return _milliseconds(self._total / limit - elapsed_s, self.throttle_s_max)

    def window_limit(self) -> float:
        """Return how much may be recorded at once after a time without use."""
        return self.limit * max(self._samples - 1, 1) * self._size_s

    def _advance(self, now: float) -> None:
        """Begin a sample, in place of the oldest if there are enough."""
        self._current = current = (self._current + 1) % (self._samples + 1)
        if current >= len(self._starts):
            self._starts.append(now)
            self._lasts.append(now)
            self._values.append(0.0)
        else:
            self._reset(current, now)
        self._ends = now + self._size_s
        self._purge(now)

    def _purge(self, now: float) -> None:
        """Empty the samples whose last record is too long ago, and sum up the others."""
        span_s = self._span_s
        lasts = self._lasts
        for at in range(len(lasts)):
            if now - lasts[at] >= span_s:
                self._reset(at, now)
        self._ends = self._starts[self._current] + self._size_s
        self._oldest = min(self._starts)
        self._total = sum(self._values)
        self._purged_at = min(lasts) + span_s

    def _reset(self, at: int, now: float) -> None:
        self._starts[at] = now
        self._lasts[at] = now
        self._values[at] = 0.0


class TokenBucket:
    __slots__ = ("_span_s", "_tokens", "_updated_at", "limit")

    def __init__(self, limit: float, samples: int, size_s: float, now: float) -> None:
        self.limit = limit
        """Tokens per second."""
        self._span_s = samples * size_s
        self._tokens = self._span_s * limit
        self._updated_at = now

    def used_at(self) -> float:
        return self._updated_at

    def take(self, tokens: float, now: float) -> None:
        """Take more than there is, if need be: then there is a debt."""
        self._refill(now)
        self._tokens -= tokens

    def throttle_ms(self, now: float) -> int:
        """Return how long it takes to pay the debt; 0 if there is none."""
        self._refill(now)
        if self._tokens >= 0:
            return 0
        return _milliseconds(-self._tokens / self.limit, UNLIMITED)

    def _refill(self, now: float) -> None:
        limit = self.limit
        if limit < UNLIMITED:
            self._tokens = min(self._span_s * limit, self._tokens + limit * (now - self._updated_at))
        else:
            self._tokens = 0.0
        self._updated_at = now


def _milliseconds(seconds: float, seconds_max: float) -> int:
    ms = min(seconds, seconds_max) * 1000
    return THROTTLE_MS_MAX if ms >= THROTTLE_MS_MAX else round(ms)
