"""What a run tells of itself: figures for each sink and each step, from what Spark says of its queries. Pure.

    figures.sinks["totals"].take(progress)       a query's progress, as the JSON that Spark gives
    figures.as_json()

Invariant: counts begin at 0 with the run and only grow; each batch counts once, however often it is told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

OBSERVED: Final = "expect:"
"""Before a step's name, in the metrics of a query: rows that do not meet its expectations."""


@dataclass(slots=True)
class SinkProgress:
    batch: int = -1
    """The last that is done; -1 if none is."""
    batches: int = 0
    rows: int = 0
    """That came in, of all its sources."""
    rows_per_second: float = 0.0
    """Of the last batch that had any."""
    batch_ms: int = 0
    lag: int = 0
    """Records that are there and not read, when the last batch was planned."""
    state_rows: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    """Rows that did not meet an expectation, by `step.expectation`."""

    def take(self, progress: Mapping[str, Any]) -> bool:
        """Whether it was news."""
        batch, rows = int(progress["batchId"]), int(progress.get("numInputRows", 0))
        duration_ms = int(progress.get("durationMs", {}).get("triggerExecution", 0))
        self.lag = sum(_lags(progress))
        self.state_rows = sum(int(one.get("numRowsTotal", 0)) for one in progress.get("stateOperators", ()))
        # A query that waits says again and again where it stands.
        if batch <= self.batch or "addBatch" not in progress.get("durationMs", {}):
            return False
        self.batch = batch
        self.batches += 1
        self.rows += rows
        self.batch_ms = duration_ms
        self.rows_per_second = rows * 1000 / duration_ms if duration_ms else 0.0
        for name, counts in progress.get("observedMetrics", {}).items():
            if name.startswith(OBSERVED):
                for expectation, count in counts.items():
                    key = f"{name.removeprefix(OBSERVED)}.{expectation}"
                    self.failed[key] = self.failed.get(key, 0) + int(count or 0)
        return True


@dataclass(slots=True)
class RunProgress:
    sinks: dict[str, SinkProgress]
    dead_letters: int = 0
    """Published by this run."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Records that could not be decoded and were dropped, by source."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _lags(progress: Mapping[str, Any]) -> Iterator[int]:
    for source in progress.get("sources", ()):
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, Mapping) or not isinstance(end, Mapping):
            continue
        for topic, partitions in latest.items():
            if isinstance(partitions, Mapping):
                done: Mapping[str, Any] = end.get(topic) or {}
                for partition, offset in partitions.items():
                    yield max(0, int(offset) - int(done.get(partition, offset)))
