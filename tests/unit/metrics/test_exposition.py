"""The text format of Prometheus, and the list of metrics behind it (B9, F12)."""

from __future__ import annotations

import pytest

from flintmq.metrics import BY_NAME, LATENCY_BOUNDS_S, METRICS, ApiCounters, Exposition, MetricType, parse


def text_of(out: Exposition) -> str:
    return "".join(out.text())


def test_names_are_unique_and_say_what_they_count() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith(("flintmq_", "process_", "python_")), metric.name
        assert (metric.kind is MetricType.COUNTER) == metric.name.endswith("_total"), metric.name
        assert metric.doc.endswith("."), metric.name


def test_lines_of_a_metric_stand_together_under_its_heading_in_the_order_declared() -> None:
    out = Exposition()
    out.add("flintmq_bytes_in_total", 7, "Fetch")
    out.add("flintmq_requests_total", 1, "Produce")
    out.add("flintmq_bytes_in_total", 8, "Produce")
    out.add("flintmq_requests_total", 2, "Fetch")
    lines = [line for line in text_of(out).splitlines() if not line.startswith("# HELP")]
    assert lines == [
        "# TYPE flintmq_requests_total counter",
        'flintmq_requests_total{api="Produce"} 1',
        'flintmq_requests_total{api="Fetch"} 2',
        "# TYPE flintmq_bytes_in_total counter",
        'flintmq_bytes_in_total{api="Fetch"} 7',
        'flintmq_bytes_in_total{api="Produce"} 8',
    ]


def test_what_is_not_declared_cannot_be_told() -> None:
    with pytest.raises(KeyError):
        Exposition().add("flintmq_surprises_total", 1)
    with pytest.raises(ValueError, match="zip"):
        Exposition().add("flintmq_requests_total", 1, "Produce", "too many labels")


@pytest.mark.parametrize("value", ['say "hello"', "back\\slash", "two\nlines", "ünï,}cödé{ 1"])
def test_label_values_come_back_as_they_were(value: str) -> None:
    out = Exposition()
    out.add("flintmq_client_connections", 3, value, "1.0")
    text = text_of(out)
    assert len(text.splitlines()) == 3
    assert parse(text).samples["flintmq_client_connections"] == [({"software": value, "version": "1.0"}, 3.0)]


def test_a_label_value_of_a_client_is_cut() -> None:
    out = Exposition()
    out.add("flintmq_client_connections", 1, "x" * 5000, "1.0")
    assert len(text_of(out)) < 1000


def test_histogram_counts_up_to_each_bound() -> None:
    now = 0.0
    api = ApiCounters(lambda: now)
    for elapsed_s in (0.0001, 0.00025, 0.003, 0.3, 99.0):
        now = elapsed_s
        api.answered(0.0, size=10)
    out = Exposition()
    out.add_histogram("flintmq_request_seconds", api.buckets, api.seconds, "Produce")
    scrape = parse(text_of(out))
    by_bound = scrape.by("flintmq_request_seconds_bucket", "le")
    assert by_bound[("0.00025",)] == 2, "a bound belongs to its own bucket"
    assert by_bound[("0.0025",)] == 2
    assert by_bound[("0.005",)] == 3
    assert by_bound[("5",)] == 4
    assert by_bound[("+Inf",)] == scrape.total("flintmq_request_seconds_count") == 5
    assert scrape.total("flintmq_request_seconds_sum") == pytest.approx(99.30335)
    assert list(by_bound.values()) == sorted(by_bound.values())
    assert len(by_bound) == len(LATENCY_BOUNDS_S) + 1
    assert api.bytes_out == 50


def test_numbers_are_written_as_they_can_be_read() -> None:
    out = Exposition()
    out.add("flintmq_loop_delay_seconds", 0.0001)
    out.add("flintmq_uptime_seconds", 2.0)
    out.add("flintmq_disk_free_bytes", 1 << 60)
    scrape = parse(text_of(out))
    assert scrape.total("flintmq_loop_delay_seconds") == 0.0001
    assert scrape.total("flintmq_uptime_seconds") == 2
    assert scrape.total("flintmq_disk_free_bytes") == 1 << 60


def test_what_is_no_exposition_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample"):
        parse("<html>\n")


def test_sums_select_by_labels() -> None:
    scrape = parse('a{x="1",y="1"} 1\na{x="1",y="2"} 2\na{x="2",y="1"} 4\n')
    assert scrape.total("a") == 7
    assert scrape.total("a", x="1") == 3
    assert scrape.by("a", "y") == {("1",): 5, ("2",): 2}
    assert scrape.total("b") == 0
