"""The part of some topics that a query needs, as far as its filters tell. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flintmq.arrow.scan.offsets import OFFSET_MAX


@dataclass(frozen=True, slots=True)
class Narrowing:
    start: int = 0
    end: int = OFFSET_MAX
    """The first offset that is not needed any more."""
    since_ms: int | None = None
    """No row before the first record of this time or later is needed."""
    topic_tests: tuple[Callable[[str], bool], ...] = ()
    partition_tests: tuple[Callable[[int], bool], ...] = ()

    def admits(self, topic: str, partition: int) -> bool:
        """Return whether the partition can have rows at all."""
        return (
            self.start < self.end
            and all(holds(topic) for holds in self.topic_tests)
            and all(holds(partition) for holds in self.partition_tests)
        )


EVERYTHING: Final = Narrowing()
