"""A run's figures as Prometheus reads them, on a port of their own.

    with MetricsServer(port, lambda: figures_text("orders", figures)): …

Invariant: what is served was declared in METRICS. Counters begin at 0 with the run. Serving never waits for the run:
it shows the figures as they are at that moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final

from flintmq.errors import ConfigurationError
from flintmq.metrics.declared import Kind, Metric
from flintmq.metrics.exposition import CONTENT_TYPE, heading, label_text, number
from flintmq.pipeline.progress import Figures

_SINK: Final = ("pipeline", "sink")

UP: Final = Metric("flintmq_pipeline_up", Kind.GAUGE, "1 while the pipeline runs.", ("pipeline",))
BATCHES: Final = Metric("flintmq_pipeline_batches_total", Kind.COUNTER, "Batches that are committed.", _SINK)
ROWS: Final = Metric("flintmq_pipeline_rows_total", Kind.COUNTER, "Rows that came in from sources.", _SINK)
RATE: Final = Metric(
    "flintmq_pipeline_rows_per_second", Kind.GAUGE, "Rows a second in the last batch.", _SINK
)
SECONDS: Final = Metric("flintmq_pipeline_batch_seconds", Kind.GAUGE, "How long the last batch took.", _SINK)
LAG: Final = Metric(
    "flintmq_pipeline_lag", Kind.GAUGE, "Records that are there and not read, at the last batch.", _SINK
)
STATE: Final = Metric(
    "flintmq_pipeline_state_rows", Kind.GAUGE, "Rows of state that windows, joins and keys hold.", _SINK
)
FAILED: Final = Metric(
    "flintmq_pipeline_failed_expectations_total",
    Kind.COUNTER,
    "Rows that did not meet an expectation, and were dropped or became dead letters.",
    ("pipeline", "sink", "expectation"),
)
DEAD: Final = Metric(
    "flintmq_pipeline_dead_letters_total", Kind.COUNTER, "Dead letters that were published.", ("pipeline",)
)
DROPPED: Final = Metric(
    "flintmq_pipeline_undecodable_dropped_total",
    Kind.COUNTER,
    "Records that could not be decoded and were dropped, as often as a sink met them.",
    ("pipeline", "source"),
)
METRICS: Final = (UP, BATCHES, ROWS, RATE, SECONDS, LAG, STATE, FAILED, DEAD, DROPPED)


def figures_text(pipeline: str, figures: Figures) -> str:
    sinks = list(figures.sinks.items())
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
        DEAD: [((pipeline,), figures.dead_letters)],
        DROPPED: [((pipeline, source), count) for source, count in list(figures.dropped.items())],
    }
    return "".join(
        heading(metric) + "".join(_line(metric, labels, value) for labels, value in samples[metric])
        for metric in METRICS
    )


def _line(metric: Metric, labels: tuple[str, ...], value: float) -> str:
    return f"{metric.name}{{{label_text(metric, *labels)}}} {number(value)}\n"


class MetricsServer:
    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody wants a line for each scrape."""

        try:
            self._server = ThreadingHTTPServer(("", port), Handler)
        except OSError as error:
            raise ConfigurationError(f"--metrics-port {port}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
