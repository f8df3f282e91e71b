"""Write `docs/metrics.md` from the declared metrics. Run it after changing one.

scripts/make_metrics_doc.py            writes the file
scripts/make_metrics_doc.py --check    exits with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from flintmq.lake.syncing.metrics import METRICS as LAKE_METRICS
from flintmq.metrics import LATENCY_BOUNDS_S, Metric, MetricType
from flintmq.metrics.declared import SECTIONS
from flintmq.metrics.exposition import number
from flintmq.pipeline.runtime.metrics import METRICS as PIPELINE_METRICS

TARGET = Path(__file__).parent.parent / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics

<!-- Made by scripts/make_metrics_doc.py from src/flintmq/metrics/declared.py, src/flintmq/lake/syncing/metrics.py and
src/flintmq/pipeline/runtime/metrics.py: do not edit. -->

A broker tells them at `http://127.0.0.1:30004/metrics` (the same at `/prometheus`), in the text format that
Prometheus and most other collectors read; [operations.md](operations.md) says how to reach it from elsewhere.
`flintmq top` shows them live, `deploy/` has a dashboard and alerts that use them.

- Counters end in `_total`, begin at 0 when the broker starts and only grow: look at their rate.
- Times are in seconds, sizes in bytes.
- A series that has nothing to tell yet is absent: an API that nobody has used, a log that is not open yet.
- Partitions have series of their own up to `flint.metrics.partitions.max` of them; the sizes of the rest are
  told as one sum with empty labels, so that totals stay right.
- Asking costs little: the broker counts in plain numbers and puts the text together in slices of a
  millisecond.
"""

LAKE = """\
`flintmq lake sync` tells these, not the broker: in a file with `--metrics-file FILE`, which node_exporter's textfile
collector reads, or at `http://127.0.0.1:PORT/metrics` with `--metrics-port PORT`. `table` is where the table is.
"""

PIPELINES = """\
`flintmq pipeline run` tells these at `http://127.0.0.1:PORT/metrics` with `--metrics-port PORT`.
"""

QUESTIONS = (
    ("records written a second", "sum(rate(flintmq_log_end_offset[1m]))"),
    ("requests a second, by API", "sum by (api) (rate(flintmq_requests_total[1m]))"),
    (
        "share of requests with an error",
        "sum(rate(flintmq_request_errors_total[5m])) / sum(rate(flintmq_requests_total[5m]))",
    ),
    (
        "Produce at the 99th percentile",
        'histogram_quantile(0.99, sum by (le) (rate(flintmq_request_seconds_bucket{api="Produce"}[5m])))',
    ),
    (
        "time of a sync",
        "rate(flintmq_log_flush_seconds_sum[5m]) / rate(flintmq_log_flush_seconds_count[5m])",
    ),
    ("largest topics", "topk(10, sum by (topic) (flintmq_log_size_bytes))"),
    ("all data stored", "sum(flintmq_log_size_bytes)"),
    ("memory under pressure", "flintmq_memory_budget_used_bytes / flintmq_memory_budget_bytes"),
    ("who still uses an old client", "flintmq_client_connections"),
    ("how far tables are behind their topics", "sum by (topic, table) (flintmq_lake_lag)"),
    (
        "records that retention deleted before a table had them",
        "increase(flintmq_lake_unsynced_deleted_total[1d])",
    ),
    (
        "tables that have not been up to date for an hour",
        "time() - flintmq_lake_last_sync_timestamp_seconds > 3600",
    ),
    ("dead letters a minute, by pipeline", "rate(flintmq_pipeline_dead_letters_total[5m]) * 60"),
)


def render() -> str:
    bounds = ", ".join(f"`{number(bound)}`" for bound in LATENCY_BOUNDS_S)
    parts = [INTRODUCTION, f"Buckets of histograms end at {bounds} seconds.\n"]
    for title, metrics in SECTIONS:
        parts += [f"## {title}\n", _table(metrics)]
    parts += ["## The lake\n", LAKE, _table(LAKE_METRICS)]
    parts += ["## Pipelines\n", PIPELINES, _table(PIPELINE_METRICS)]
    parts.append("## Questions, and the expression that answers them\n")
    rows = "".join(f"| {question} | `{expression}` |\n" for question, expression in QUESTIONS)
    parts.append("| Question | Expression |\n|---|---|\n" + rows)
    return "\n".join(parts)


def _table(metrics: Sequence[Metric]) -> str:
    return "| Name | Type | Labels | Meaning |\n|---|---|---|---|\n" + "".join(map(_row, metrics))


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if metric.kind is MetricType.HISTOGRAM:
        labels = f"{labels}, `le`" if labels else "`le`"
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.doc} |\n"


def main() -> int:
    text = render()
    if "--check" in sys.argv:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
