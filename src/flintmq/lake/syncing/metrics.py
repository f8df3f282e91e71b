"""What a sync tells of itself: a line in the log for each commit, and figures as Prometheus reads them.

    figures.add(commit)
    write_figures(path, figures.text())
    with MetricsServer(figures.text, port=9400): …        for Prometheus to ask

Invariant: the file of figures is replaced as a whole, so that whoever reads it (node_exporter's textfile collector)
never sees half of one. Counters begin at 0 with the process. `docs/metrics.md` has METRICS.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintmq.metrics.declared import Metric, MetricType
from flintmq.metrics.exposition import heading, label_text, number

logger = logging.getLogger(__name__)

_TOPIC: Final = ("topic", "table")
_PARTITION: Final = ("topic", "table", "partition")

COMMITS: Final = Metric("flintmq_lake_commits_total", MetricType.COUNTER, "Commits to the table.", _TOPIC)
CONFLICTS: Final = Metric(
    "flintmq_lake_conflicts_total", MetricType.COUNTER, "Commits that somebody else was faster than.", _TOPIC
)
ROWS: Final = Metric("flintmq_lake_rows_total", MetricType.COUNTER, "Rows committed.", _TOPIC)
QUARANTINED: Final = Metric(
    "flintmq_lake_quarantined_total", MetricType.COUNTER, "Records that could not be decoded.", _TOPIC
)
EXTRA_FIELDS: Final = Metric(
    "flintmq_lake_extra_fields_total",
    MetricType.COUNTER,
    "Fields of records that the table has no column for, each counted in every record.",
    _TOPIC,
)
FILES: Final = Metric("flintmq_lake_files_total", MetricType.COUNTER, "Files committed.", _TOPIC)
BYTES: Final = Metric("flintmq_lake_file_bytes_total", MetricType.COUNTER, "Bytes of these files.", _TOPIC)
SECONDS: Final = Metric(
    "flintmq_lake_sync_seconds_total", MetricType.COUNTER, "Time from plans to their commits.", _TOPIC
)
LAST: Final = Metric(
    "flintmq_lake_last_sync_timestamp_seconds",
    MetricType.GAUGE,
    "When the table last had all there was.",
    _TOPIC,
)
LAG: Final = Metric(
    "flintmq_lake_lag", MetricType.GAUGE, "Offsets of the partition that the table does not have.", _PARTITION
)
METRICS: Final = (COMMITS, CONFLICTS, ROWS, QUARANTINED, EXTRA_FIELDS, FILES, BYTES, SECONDS, LAST, LAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One commit to a table."""

    topic: str
    table: str
    rows: int
    files: int
    bytes: int
    quarantined: int
    seconds: float
    lag: Mapping[int, int]
    """By partition, when the commit was planned."""
    columns_added: tuple[str, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)
    """In how many records each field is that the table has no column for."""

    def __str__(self) -> str:
        poison = f", {self.quarantined} quarantined" if self.quarantined else ""
        return (
            f"{self.topic} -> {self.table}: {self.rows} rows in {self.files} files, {self.bytes} bytes{poison}, "
            f"{self.seconds:.1f} s, lag {sum(self.lag.values())}"
        )


@dataclass(slots=True)
class SyncMetrics:
    """Samples by metric and labels. They are counted by one thread, and may be read by another."""

    _samples: dict[Metric, dict[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, commit: TableCommit) -> None:
        logger.info("%s", commit)
        labels = (commit.topic, commit.table)
        with self._lock:
            for metric, amount in (
                (COMMITS, 1),
                (ROWS, commit.rows),
                (QUARANTINED, commit.quarantined),
                (EXTRA_FIELDS, sum(commit.extra.values())),
                (FILES, commit.files),
                (BYTES, commit.bytes),
                (SECONDS, commit.seconds),
            ):
                self._raise(metric, amount, *labels)
        self.set_lag(commit.topic, commit.table, commit.lag)

    def add_conflict(self, topic: str, table: str) -> None:
        with self._lock:
            self._raise(CONFLICTS, 1, topic, table)

    def set_lag(self, topic: str, table: str, lag: Mapping[int, int]) -> None:
        with self._lock:
            for partition, offsets in lag.items():
                self._of(LAG)[label_text(LAG, topic, table, partition)] = offsets

    def set_synced(self, topic: str, table: str, *, now_s: float) -> None:
        with self._lock:
            self._of(LAST)[label_text(LAST, topic, table)] = now_s

    def text(self) -> str:
        with self._lock:
            return "".join(
                heading(metric)
                + "".join(f"{metric.name}{{{labels}}} {number(value)}\n" for labels, value in samples.items())
                for metric in METRICS
                if (samples := self._samples.get(metric))
            )

    def _raise(self, metric: Metric, amount: float, *labels: str) -> None:
        samples = self._of(metric)
        text = label_text(metric, *labels)
        samples[text] = samples.get(text, 0) + amount

    def _of(self, metric: Metric) -> dict[str, float]:
        return self._samples.setdefault(metric, {})


def write_metrics_file(path: str, text: str) -> None:
    aside = f"{path}.{os.getpid()}.new"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(aside, path)
