"""`flintmq top`: from two scrapes to rates, percentiles and rankings."""

from __future__ import annotations

import pytest

from flintmq.cli.top.rates import compare, quantile_ms
from flintmq.cli.top.view import api_rows, client_rows, partition_rows, summary_rows
from flintmq.metrics import ApiCounters, Exposition, Scrape, parse


def scraped(
    *, requests: int, elapsed_s: float = 0.002, errors: int = 0, ends: dict[str, int] | None = None
) -> Scrape:
    now = elapsed_s
    api = ApiCounters(lambda: now)
    for _ in range(requests):
        api.answered(0.0, 100)
    out = Exposition()
    out.add("flintmq_build_info", 1, "9.9", "3.13", "uvloop")
    out.add("flintmq_ready", 1)
    out.add("flintmq_requests_total", requests, "Produce")
    out.add("flintmq_request_errors_total", errors, "Produce", "CORRUPT_MESSAGE")
    out.add("flintmq_bytes_out_total", api.bytes_out, "Produce")
    out.add_histogram("flintmq_request_seconds", api.buckets, api.seconds, "Produce")
    for topic, end in (ends or {}).items():
        out.add("flintmq_log_end_offset", end, topic, 0)
        out.add("flintmq_log_size_bytes", 10 * end, topic, 0)
    out.add("flintmq_client_connections", 4, "librdkafka", "2.15")
    return parse("".join(out.text()))


def test_rates_are_of_the_time_between() -> None:
    before = scraped(requests=100, errors=1, ends={"a": 5, "b": 100})
    after = scraped(requests=300, errors=11, ends={"a": 105, "b": 120})
    figures = compare(before, after, 2.0)
    assert figures.requests_per_s == 100
    assert figures.errors_per_s == 5
    assert figures.bytes_out_per_s == 10_000
    assert figures.records_in_per_s == 60
    assert [(one.topic, one.records_per_s) for one in figures.busiest_partitions] == [("a", 50), ("b", 10)]
    (produce,) = figures.apis
    assert produce.name == "Produce"
    assert produce.p99_ms == pytest.approx(2.485)


def test_a_restarted_broker_counts_from_zero() -> None:
    figures = compare(scraped(requests=1000, ends={"a": 50}), scraped(requests=10, ends={"a": 50}), 1.0)
    assert figures.requests_per_s == 10
    assert figures.records_in_per_s == 0


@pytest.mark.parametrize(
    ("buckets", "p50"),
    [
        ({}, None),
        ({0.001: 0.0, float("inf"): 0.0}, None),
        ({0.001: 10.0, 0.01: 10.0, float("inf"): 10.0}, 0.5),
        ({0.001: 0.0, 0.003: 10.0, float("inf"): 10.0}, 2.0),
        ({0.001: 0.0, 0.003: 0.0, float("inf"): 10.0}, 3.0),
    ],
)
def test_percentiles_from_buckets(buckets: dict[float, float], p50: float | None) -> None:
    found = quantile_ms(0.5, buckets)
    assert found == (None if p50 is None else pytest.approx(p50))


def test_every_figure_has_its_words() -> None:
    figures = compare(scraped(requests=0, ends={"a": 1}), scraped(requests=1, ends={"a": 3}), 1.0)
    assert dict(summary_rows(figures))["broker"] == "FlintMQ 9.9, ready, up 0 s"
    assert api_rows(figures)[0][0] == "Produce"
    assert partition_rows(figures) == [("a-0", "2.0", "30 B", "3")]
    assert client_rows(figures) == [("librdkafka", "2.15", "4")]
