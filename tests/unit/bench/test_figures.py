"""What is compared, and what is said about it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench import machine, report
from bench.figures import Comparison, Figure, Kind, compare, cpu, percentile
from bench.loads import BatchShape, ProduceLoad, ProducerIdentity, Topic
from bench.suite import Measurement, Results
from bench.workloads import WORKLOADS
from flintmq.records.batch import check_produced

QUIET = report.Circumstances(
    when="now", machine="one", versions={}, command="x", load_before=0.1, cores_are_separate=True
)


def steady(value: float, **extra: float) -> Figure:
    return Figure("CPU", value, "s", Kind.CPU, **extra)  # type: ignore[arg-type]


def measured(number: int, broker: str, *figures: Figure, foreign_cores: float = 0.0) -> Measurement:
    return Measurement(number, "raw-16k", broker, list(figures), load=0.1, foreign_cores=foreign_cores)


def test_best_of_the_rounds_is_the_lowest_cost_and_the_highest_rate() -> None:
    def rate(value: float) -> Figure:
        return Figure("rate", value, "M/s", Kind.WALL, lower_is_better=False)

    rounds = [{"FlintMQ": [steady(3), rate(5)]}, {"FlintMQ": [steady(2), rate(4)]}]
    assert [row.best for row in compare("w", rounds)] == [{"FlintMQ": 2}, {"FlintMQ": 5}]


def test_ratio_is_flintmq_over_kafka() -> None:
    (row,) = compare("w", [{"FlintMQ": [steady(1)], "Kafka": [steady(4)]}])
    assert row.ratio("FlintMQ", "Kafka") == 0.25
    assert row.ratio("FlintMQ", "nobody") is None


@pytest.mark.parametrize(
    ("figure", "best", "verdict"),
    [
        (steady(0, goal_ratio=0.5), {"FlintMQ": 1.0, "Kafka": 2.0}, True),
        (steady(0, goal_ratio=0.4), {"FlintMQ": 1.0, "Kafka": 2.0}, False),
        (steady(0, goal_ratio=0.4), {"FlintMQ": 1.0}, None),
        (steady(0, goal=1.0), {"FlintMQ": 1.0}, True),
        (steady(0, goal=0.9, goal_ratio=0.5), {"FlintMQ": 1.0, "Kafka": 2.0}, False),
        (steady(0), {"FlintMQ": 1.0, "Kafka": 2.0}, None),
        (cpu("CPU", 0.05, per=1, goal_ratio=0.5), {"FlintMQ": 0.05, "Kafka": 2.0}, None),
    ],
)
def test_goal_is_judged_only_by_what_was_measured(
    figure: Figure, best: dict[str, float], verdict: bool | None
) -> None:
    assert Comparison("w", figure, best).goal_is_met("FlintMQ", "Kafka") is verdict


def test_one_coarse_value_makes_the_row_coarse() -> None:
    (row,) = compare("w", [{"FlintMQ": [cpu("CPU", 5, per=1)], "Kafka": [cpu("CPU", 0.01, per=1)]}])
    assert row.figure.is_coarse


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentile_is_a_value_that_was_seen(share: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_report_marks_elapsed_time_and_says_when_it_is_noise() -> None:
    wall = Figure("p50", 200, "µs", Kind.WALL)
    results = Results(["FlintMQ", "Kafka"], [measured(1, "FlintMQ", wall), measured(1, "Kafka", wall)])
    assert "~200 µs" in report.table(results)
    assert "quiet" in report.noise(results, QUIET)
    assert "noise" not in report.noise(results, QUIET)
    results.measurements.append(measured(2, "Kafka", wall, foreign_cores=1.2))
    assert "are noise" in report.noise(results, QUIET)


def test_markdown_has_a_table_for_each_workload_and_names_failures() -> None:
    failed = measured(1, "Kafka")
    failed.error = "TimeoutError: too late"
    results = Results(["FlintMQ", "Kafka"], [measured(1, "FlintMQ", steady(1.5)), failed])
    page = report.markdown(results, QUIET, WORKLOADS)
    assert "## raw-16k" in page
    assert "| CPU | 1.50 s | – |" in page
    assert "TimeoutError: too late" in page
    assert json.loads(report.as_json(results, QUIET))["table"][0]["best"] == {"FlintMQ": 1.5}


def test_idempotent_load_counts_sequences_for_each_partition() -> None:
    load = ProduceLoad(Topic("t", bytes(16), 2), BatchShape(10, 100), identity=ProducerIdentity(7, 0))
    sequences = []
    for _ in range(4):
        request = load.next()
        batch = memoryview(request)[-load.batch_bytes :]
        header = check_produced(
            batch, max_bytes=10_000, zstd_allowed=True, earliest_ms=0, latest_ms=2**62
        )  # also checks the CRC
        sequences.append(header.base_sequence)
    assert sequences == [0, 0, load.shape.count, load.shape.count]


def test_cpu_and_memory_include_descendants() -> None:
    child = "print(flush=True); input()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()  # the child lives
        both = machine.family(parent.pid)
        assert len(both) == 2
        sizes = [machine.anonymous_bytes(pid) for pid in both]
        parent.communicate(b"\n")
    assert sizes[0] > sizes[1] > 0
    assert machine.family(os.getpid())[0] == os.getpid()
    assert machine.busy_s() > machine.cpu_s(os.getpid()) > 0


def test_ratios_to_another_checkout_are_of_the_best_rounds_and_above_one_is_worse() -> None:
    def both(cpu_s: float, rate: float) -> list[Figure]:
        return [steady(cpu_s), Figure("rate", rate, "M/s", Kind.WALL, lower_is_better=False)]

    results = Results(
        ["FlintMQ", "old"],
        [
            measured(1, "FlintMQ", *both(2.2, 8)),
            measured(1, "old", *both(2.0, 9)),
            measured(2, "FlintMQ", *both(2.5, 7)),
            measured(2, "old", *both(3.0, 10)),
        ],
    )
    assert [one.cost_ratio("FlintMQ", "old") for one in results.comparisons()] == [1.1, 1.25]
    head, _, row = report.peer_table(results, "old").splitlines()
    assert head.split("  ") == ["workload", "CPU, memory ÷ old", "~elapsed ÷ old"]
    assert "1.100 ABOVE (CPU)" in row
    assert "1.250 ABOVE (rate)" in row
    assert "÷ old" in report.table(results).splitlines()[0]
    assert [one["cost_ratios"] for one in json.loads(report.as_json(results, QUIET))["table"]] == [
        {"old": 1.1},
        {"old": 1.25},
    ]


def test_coarse_figures_say_nothing_about_another_checkout() -> None:
    coarse = cpu("CPU", 0.05, per=1)
    results = Results(["FlintMQ", "old"], [measured(1, name, coarse) for name in ("FlintMQ", "old")])
    assert report.peer_table(results, "old").splitlines()[-1].split() == ["raw-16k", "–", "–"]
