"""Ranges of offsets, the units of work that Spark's tasks read, and how large ones are split. Pure.

Invariant: splitting neither loses nor repeats an offset, and keeps the order.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

TASKS_MAX: Final = 100_000
"""No plan has more tasks than this; Spark's scheduler would not live through it."""


class OffsetRange(NamedTuple):
    topic: str
    topic_id: bytes
    """Of the topic that was planned for; another one of its name is not read. All zeros where it is not known."""
    partition: int
    start: int
    end: int
    """Behind the last offset."""

    @property
    def size(self) -> int:
        return self.end - self.start

    def cut(self, count: int) -> list[OffsetRange]:
        """In that many pieces of nearly the same size, if it has so many offsets."""
        count = max(1, min(count, self.size))
        edges = [self.start + self.size * at // count for at in range(count + 1)]
        return [self._replace(start=start, end=end) for start, end in pairwise(edges)]


def split(
    ranges: Sequence[OffsetRange], *, records_max: int | None = None, count_min: int | None = None
) -> list[OffsetRange]:
    """Split ranges into parts of at most `records_max` offsets, and into at least `count_min` if there are as many.

    The parts that `count_min` asks for go to the largest ranges, so that all become nearly equal.
    """
    parts = [one for one in ranges if one.size > 0]
    if records_max is not None:
        # The limit on tasks comes before the limit on records.
        total = sum(one.size for one in parts)
        records_max = max(records_max, -(-total // TASKS_MAX))
        parts = [part for one in parts for part in one.cut(-(-one.size // records_max))]
    if count_min is None or len(parts) >= count_min:
        return parts
    counts = [1] * len(parts)
    largest = [(-one.size, at) for at, one in enumerate(parts)]
    heapq.heapify(largest)
    for _ in range(min(count_min, TASKS_MAX) - len(parts)):
        if not largest or -largest[0][0] <= 1:
            break
        _, at = largest[0]
        counts[at] += 1
        heapq.heapreplace(largest, (-parts[at].size // counts[at], at))
    return [part for one, count in zip(parts, counts, strict=True) for part in one.cut(count)]
