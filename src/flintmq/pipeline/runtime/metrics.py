"""A run's figures as Prometheus reads them. Pure.

    with MetricsServer(lambda: metrics_text("orders", progress), port=9400): …

Invariant: what is told was declared in METRICS, which `docs/metrics.md` has too. Counters begin at 0 with the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flintmq.metrics.declared import Metric, MetricType
from flintmq.metrics.exposition import heading, label_text, number
from flintmq.pipeline.runtime.progress import RunProgress

_SINK: Final = ("pipeline", "sink")

UP: Final = Metric("flintmq_pipeline_up", MetricType.GAUGE, "1 while the pipeline runs.", ("pipeline",))
BATCHES: Final = Metric(
    "flintmq_pipeline_batches_total", MetricType.COUNTER, "Batches that are committed.", _SINK
)
ROWS: Final = Metric(
    "flintmq_pipeline_rows_total", MetricType.COUNTER, "Rows that came in from sources.", _SINK
)
RATE: Final = Metric(
    "flintmq_pipeline_rows_per_second", MetricType.GAUGE, "Rows a second in the last batch.", _SINK
)
SECONDS: Final = Metric(
    "flintmq_pipeline_batch_seconds", MetricType.GAUGE, "How long the last batch took.", _SINK
)
LAG: Final = Metric(
    "flintmq_pipeline_lag", MetricType.GAUGE, "Records that are there and not read, at the last batch.", _SINK
)
STATE: Final = Metric(
    "flintmq_pipeline_state_rows", MetricType.GAUGE, "Rows of state that windows, joins and keys hold.", _SINK
)
FAILED: Final = Metric(
    "flintmq_pipeline_failed_expectations_total",
    MetricType.COUNTER,
    "Rows that did not meet an expectation, and were dropped or became dead letters.",
    ("pipeline", "sink", "expectation"),
)
DEAD: Final = Metric(
    "flintmq_pipeline_dead_letters_total",
    MetricType.COUNTER,
    "Dead letters that were published.",
    ("pipeline",),
)
DROPPED: Final = Metric(
    "flintmq_pipeline_undecodable_dropped_total",
    MetricType.COUNTER,
    "Records that could not be decoded and were dropped, as often as a sink met them.",
    ("pipeline", "source"),
)
METRICS: Final = (UP, BATCHES, ROWS, RATE, SECONDS, LAG, STATE, FAILED, DEAD, DROPPED)


def metrics_text(pipeline: str, progress: RunProgress) -> str:
    sinks = list(progress.sinks.items())
    samples: dict[Metric, Iterable[tuple[tuple[str, ...], float]]] = {
        UP: [((pipeline,), 1)],
        BATCHES: [((pipeline, name), one.batches) for name, one in sinks],
        ROWS: [((pipeline, name), one.rows) for name, one in sinks],
        RATE: [((pipeline, name), one.rows_per_second) for name, one in sinks],
        SECONDS: [((pipeline, name), one.batch_ms / 1000) for name, one in sinks],
        LAG: [((pipeline, name), one.lag) for name, one in sinks],
        STATE: [((pipeline, name), one.state_rows) for name, one in sinks],
        FAILED: [
            ((pipeline, name, expectation), count)
            for name, one in sinks
            for expectation, count in list(one.failed.items())
        ],
        DEAD: [((pipeline,), progress.dead_letters)],
        DROPPED: [((pipeline, source), count) for source, count in list(progress.dropped.items())],
    }
    return "".join(
        heading(metric) + "".join(_line(metric, labels, value) for labels, value in samples[metric])
        for metric in METRICS
    )


def _line(metric: Metric, labels: tuple[str, ...], value: float) -> str:
    return f"{metric.name}{{{label_text(metric, *labels)}}} {number(value)}\n"
