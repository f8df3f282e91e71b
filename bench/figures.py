"""Measured values: what they are in, which of several is the best, how two brokers compare. Pure.

Invariant: a figure of one name means the same for every broker and in every round, so the best of the rounds
may be set against the best of another broker's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GB: Final = 1_000_000_000
MB: Final = 1_000_000
COARSE_CPU_S: Final = 0.1
"""Ten ticks: below this one tick more or less is a tenth of the value."""


class Kind(StrEnum):
    """How far a figure may be trusted on a machine that has other work."""

    CPU = "cpu"  # the broker's own CPU time: steady
    MEMORY = "memory"  # steady
    WALL = "wall"  # elapsed time: noise as soon as anybody else runs
    COUNT = "count"  # how the workload went; not a matter of speed


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    kind: Kind
    lower_is_better: bool = True
    goal_ratio: float | None = None
    """What FlintMQ ÷ Kafka should be at most."""
    goal: float | None = None
    """What FlintMQ's own value should be at most."""
    is_coarse: bool = False
    """So little CPU was spent that the clock's ticks decide the value: no ground for a verdict."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a measured span took."""

    wall_s: float
    broker_cpu_s: float
    foreign_cpu_s: float = 0.0
    """What the machine spent on neither the broker nor the client: other programs, and the kernel's own threads."""
    machine_cpu_s: float = 0.0
    """What everybody spent: on loopback the kernel charges its work to either side, as it happens."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of the table: one figure of one workload, the best of all rounds for each broker."""

    workload: str
    figure: Figure
    """Its name, unit and goals; coarse if any that it was made of is. The value is one of them."""
    best: Mapping[str, float]
    """By broker."""

    def ratio(self, ours: str, theirs: str) -> float | None:
        """None where a broker has no value, or one too small to divide by."""
        mine, other = self.best.get(ours), self.best.get(theirs)
        if self.figure.kind is Kind.COUNT or mine is None or other is None or other <= 0:
            return None
        return mine / other

    def cost_ratio(self, ours: str, theirs: str) -> float | None:
        """Return a ratio above 1 where ours is worse, of rates as well."""
        ratio = self.ratio(ours, theirs)
        if ratio is None or self.figure.lower_is_better:
            return ratio
        return 1 / ratio if ratio > 0 else None

    def goal_is_met(self, ours: str, theirs: str) -> bool | None:
        """None if there is no goal, or nothing to judge it by."""
        figure, mine, ratio = self.figure, self.best.get(ours), self.ratio(ours, theirs)
        if figure.is_coarse:
            return None
        verdicts = []
        if figure.goal is not None and mine is not None:
            verdicts.append(mine <= figure.goal)
        if figure.goal_ratio is not None and ratio is not None:
            verdicts.append(ratio <= figure.goal_ratio)
        return all(verdicts) if verdicts else None


def compare(workload: str, rounds: Iterable[Mapping[str, Sequence[Figure]]]) -> list[Comparison]:
    """The best of all rounds for every figure, in the order in which figures first appeared."""
    first: dict[str, Figure] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for by_broker in rounds:
        for broker, figures in by_broker.items():
            for figure in figures:
                known = first.setdefault(figure.name, figure)
                if figure.is_coarse and not known.is_coarse:
                    first[figure.name] = figure
                values.setdefault(figure.name, {}).setdefault(broker, []).append(figure.value)
    rows = []
    for name, figure in first.items():
        best = min if figure.lower_is_better else max
        rows.append(
            Comparison(workload, figure, {broker: best(found) for broker, found in values[name].items()})
        )
    return rows


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def cpu(name: str, cpu_s: float, *, per: float, unit: str = "s", goal_ratio: float | None = None) -> Figure:
    """CPU time for each unit of work."""
    return Figure(name, cpu_s / per, unit, Kind.CPU, goal_ratio=goal_ratio, is_coarse=cpu_s < COARSE_CPU_S)


def throughput(
    cost: Cost,
    *,
    prefix: str,
    records: int,
    payload_bytes: int,
    goal_ratio: float | None = None,
    machine_goal_ratio: float | None = None,
) -> list[Figure]:
    """CPU of the broker and of the whole machine, which are steady, and records per second, which are not."""
    cpu_s = cost.broker_cpu_s
    return [
        cpu(f"{prefix}: CPU per GB", cpu_s, per=payload_bytes / GB, goal_ratio=goal_ratio),
        cpu(
            f"{prefix}: machine CPU per GB",
            cost.machine_cpu_s,
            per=payload_bytes / GB,
            goal_ratio=machine_goal_ratio,
        ),
        cpu(f"{prefix}: CPU per million records", cpu_s, per=records / 1e6),
        Figure(f"{prefix}: records", records / cost.wall_s / 1e6, "M/s", Kind.WALL, lower_is_better=False),
    ]


def latencies(
    seconds: Sequence[float],
    *,
    name: str,
    goal_ratios: tuple[float | None, float | None] = (None, None),
) -> list[Figure]:
    """p50 and p99 in microseconds."""
    return [
        Figure(f"{name}: {label}", percentile(seconds, share) * 1e6, "µs", Kind.WALL, goal_ratio=goal_ratio)
        for label, share, goal_ratio in (("p50", 0.5, goal_ratios[0]), ("p99", 0.99, goal_ratios[1]))
    ]
