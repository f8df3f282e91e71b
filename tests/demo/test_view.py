"""What the demo shows: plots as wide as asked for, screens that fit, sums that tell the truth."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from flintmq.demo.metrics import DemoMetrics, PipelineBatch, Sample, StoredRows, Window
from flintmq.demo.shop import CLICKS, COUNTRIES, ORDERS
from flintmq.demo.view import Scene, bar, progress_line, screen, sparkline, summary

SCENE = Scene(12.0, 60.0, "127.0.0.1:40000", "name: demo\nsteps:\n  one: two\n" * 20, "/tmp/demo/demo.yaml")


def full_figures() -> DemoMetrics:
    figures = DemoMetrics(
        sent=Counter({ORDERS: 1_000_000, CLICKS: 4_000_000}),
        spoiled=50_000,
        amount=8 * 123_456.78,
        pairs=1_234_567,
        bought=1_234_567,
        dead=50_000,
        last_dead="orders-1 at 1234567: " + '{"id":1,"customer":12,' * 5,
        windows={(country, "2026"): Window(123_456.78, 123_750) for country in COUNTRIES},
        stage="running",
        batches={f"a_sink_with_a_long_name_{one}": PipelineBatch(123_456, 12.3) for one in range(5)},
        lake_orders=StoredRows(1_000_000, 1_000, 1 << 30),
        lake_clicks=StoredRows(3_960_000, 1_000, 1 << 30),
    )
    figures.dead_by_reason.update(
        {f"good_orders: a reason of many words, {one}" * 3: one for one in range(9)}
    )
    figures.samples.extend(Sample(one, 400.0, 500.0, one) for one in range(300))
    return figures


@given(st.floats(-10, 1e9), st.floats(-1, 1e9), st.integers(0, 200))
def test_a_bar_is_as_wide_as_asked_for(value: float, most: float, width: int) -> None:
    assert len(bar(value, most, width)) == width


@given(st.lists(st.floats(-10, 1e9), max_size=50), st.integers(0, 60))
def test_a_sparkline_is_as_wide_as_asked_for(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == width


def test_plots_are_in_proportion() -> None:
    assert bar(5, 10, 4) == "██  "
    assert bar(1, 16, 2) == "▏ "
    assert sparkline([0, 7, 3.5], 4) == " ▁█▅"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (132, 43), (220, 60)])
@pytest.mark.parametrize("figures", [DemoMetrics(), full_figures()], ids=["at the start", "at work"])
def test_a_screen_fits_into_the_terminal(figures: DemoMetrics, width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    lines = console.render_lines(
        screen(figures, SCENE, width=width, height=height), console.options.update(height=height)
    )
    assert len(lines) == height
    text = "\n".join("".join(part.text for part in line) for line in lines)
    # Every frame that was begun is ended: nothing was cut off at the bottom.
    assert text.count("╭") == text.count("╰") >= 3
    assert "Ctrl-C" in text
    if figures.windows:
        assert all(country in text for country in COUNTRIES)
        assert "lake/clicks" in text
    else:
        assert "one: two" in text


def test_sums_are_right_only_when_all_is_done() -> None:
    figures = full_figures()
    assert figures.is_done
    assert figures.lag == 0
    assert all("✓" in line for line in summary(figures, kept=None)[1:-1])
    figures.dead -= 1
    assert not figures.is_done
    assert figures.lag == 1
    assert "✗ produced = good + dead letters" in "\n".join(summary(figures, kept=None))


def test_the_summary_says_where_it_was_kept() -> None:
    assert any("/srv/shop/demo.yaml" in line for line in summary(full_figures(), kept="/srv/shop"))
    assert "Nothing is left" in summary(full_figures(), kept=None)[-1]


def test_rates_are_of_the_time_between_two_samples() -> None:
    figures = DemoMetrics()
    figures.sample(100.0)
    figures.sent.update({ORDERS: 20, CLICKS: 80})
    figures.dead = 10
    figures.sample(102.0)
    assert list(figures.samples) == [Sample(10.0, 40.0, 5.0, 90)]
    assert "sent 100" in progress_line(figures, 2.0)
