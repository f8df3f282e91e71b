"""What came of a run: a table for the terminal, Markdown for the docs, JSON for machines. Pure.

Invariant: all three show the same rows, from `Results.comparisons`. Values of elapsed time are marked, and so are
those that rest on too little CPU; the reader is told when other work on the machine has made them noise.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Final

from bench.figures import Comparison, Kind
from bench.suite import Results
from bench.workloads import Workload

OURS: Final = "FlintMQ"
THEIRS: Final = "Kafka"
PLAIN: Final = "plain"
"""FlintMQ uncompiled."""
OPEN: Final = "open"
"""FlintMQ without ACLs and quotas."""

NOISY_LOAD: Final = 0.7
"""Before the run; during it the run itself is the load."""
NOISY_CORES: Final = 0.25
RATIO_MAX: Final = 1.05
"""Of a checkout to another one: what is above it is marked."""

Row = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Circumstances:
    """What has to be known to judge the figures, or to get them again."""

    when: str
    machine: str
    versions: Mapping[str, str]
    command: str
    load_before: float
    cores_are_separate: bool


def noise(results: Results, circumstances: Circumstances) -> str:
    """How quiet the machine was, in words."""
    facts = (
        f"Load average before the run {circumstances.load_before:.2f}; other work took up to "
        f"{results.foreign_cores_max:.2f} cores while something was measured."
    )
    reasons = []
    if circumstances.load_before > NOISY_LOAD or results.foreign_cores_max > NOISY_CORES:
        reasons.append("the machine was not quiet")
    if not circumstances.cores_are_separate:
        reasons.append("brokers and clients shared a core")
    if any(one.figure.is_coarse for one in results.comparisons()):
        facts += (
            " Figures with a question mark rest on less than a tenth of a second of CPU: use a larger scale."
        )
    if not reasons:
        return f"{facts} The machine was quiet."
    return (
        f"{facts} Because {' and '.join(reasons)}, figures of elapsed time (~) are noise: "
        "trust only CPU and memory, and run again."
    )


def heading(results: Results) -> Row:
    both = OURS in results.brokers and THEIRS in results.brokers
    peers = (f"÷ {peer}" for peer in peers_of(results.brokers))
    return ("workload", "figure", *results.brokers, *(("ratio",) if both else ()), *peers, "goal", "")


def peers_of(brokers: Sequence[str]) -> list[str]:
    """Return the names of the peers beside Kafka that FlintMQ is compared with."""
    return [broker for broker in brokers if broker not in (OURS, THEIRS)]


def row(comparison: Comparison, brokers: Sequence[str]) -> Row:
    figure = comparison.figure
    mark = "~" if figure.kind is Kind.WALL else "?" if figure.is_coarse else ""
    values = [_shown(comparison.best.get(broker), figure.unit, mark) for broker in brokers]
    ratio = comparison.ratio(OURS, THEIRS)
    ratios = [f"{mark}{_number(ratio)}" if ratio is not None else ""] if THEIRS in brokers else []
    for peer in peers_of(brokers):
        cost = comparison.cost_ratio(OURS, peer)
        ratios.append(f"{mark}{cost:.3f}" if cost is not None else "")
    goals = []
    if figure.goal is not None:
        goals.append(f"≤ {_shown(figure.goal, figure.unit)}")
    if figure.goal_ratio is not None:
        goals.append(f"ratio ≤ {_number(figure.goal_ratio)}")
    met = {True: "met", False: "MISSED", None: ""}[comparison.goal_is_met(OURS, THEIRS)]
    return (comparison.workload, figure.name, *values, *ratios, ", ".join(goals), met)


def table(results: Results) -> str:
    """For a terminal: columns lined up, a workload named once."""
    rows = [heading(results), *(row(one, results.brokers) for one in results.comparisons())]
    widths = [max(len(one[column]) for one in rows) for column in range(len(rows[0]))]
    lines = []
    previous = ""
    for one in rows:
        cells = ["" if one[0] == previous else one[0], *one[1:]]
        previous = one[0]
        left = [cell.ljust(width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)]
        lines.append("  ".join(left + right).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, *_failures(results)])


def peer_table(results: Results, peer: str) -> str:
    """Return for each workload the worst ratio of this checkout to `peer`, from the best rounds of both.

    CPU and memory stand apart from elapsed time, which other work on the machine spoils, and figures that rest on
    too little CPU count for neither.
    """
    worst: dict[str, dict[bool, tuple[float, str]]] = {}
    for one in results.comparisons():
        ratio = one.cost_ratio(OURS, peer)
        found = worst.setdefault(one.workload, {})
        if ratio is not None and not one.figure.is_coarse:
            is_wall = one.figure.kind is Kind.WALL
            found[is_wall] = max(found.get(is_wall, (0.0, "")), (ratio, one.figure.name))
    rows = [("workload", f"CPU, memory ÷ {peer}", f"~elapsed ÷ {peer}")]
    for workload, found in worst.items():
        rows.append((workload, _worst(found.get(False)), _worst(found.get(True))))
    widths = [max(len(one[column]) for one in rows) for column in range(2)]
    lines = [f"{one[0].ljust(widths[0])}  {one[1].ljust(widths[1])}  {one[2]}".rstrip() for one in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def markdown(results: Results, circumstances: Circumstances, workloads: Sequence[Workload]) -> str:
    """A page: the circumstances, then a table for each workload."""
    versions = ", ".join(f"{name} {version}" for name, version in circumstances.versions.items())
    parts = [
        "# Performance: the last recorded run",
        "Written by `python -m bench --markdown`; [performance.md](performance.md) says what the figures mean.",
        f"- {circumstances.when}\n- {versions}\n- {circumstances.machine}\n"
        f"- `{circumstances.command}`\n- {noise(results, circumstances)}",
    ]
    rows: dict[str, list[Row]] = {}
    for comparison in results.comparisons():
        rows.setdefault(comparison.workload, []).append(row(comparison, results.brokers))
    head = heading(results)[1:]
    for workload in workloads:
        if workload.name in rows:
            lines = [_markdown_row(head), _markdown_row(["---", *["--:"] * (len(head) - 1)])]
            lines += [_markdown_row(one[1:]) for one in rows[workload.name]]
            parts += [f"## {workload.name}", f"{_sentence(workload.summary)}", "\n".join(lines)]
    failures = _failures(results)
    if failures:
        parts += ["## Failures", "\n".join(f"- {failure}" for failure in failures)]
    return "\n\n".join(parts) + "\n"


def as_json(results: Results, circumstances: Circumstances) -> str:
    rows = [
        {
            "workload": one.workload,
            "figure": one.figure.name,
            "unit": one.figure.unit,
            "kind": one.figure.kind,
            "best": one.best,
            "ratio": one.ratio(OURS, THEIRS),
            "cost_ratios": {peer: one.cost_ratio(OURS, peer) for peer in peers_of(results.brokers)},
            "goal": one.figure.goal,
            "goal_ratio": one.figure.goal_ratio,
            "goal_is_met": one.goal_is_met(OURS, THEIRS),
        }
        for one in results.comparisons()
    ]
    document = {
        "circumstances": dataclasses.asdict(circumstances),
        "noise": noise(results, circumstances),
        "table": rows,
        "measurements": [dataclasses.asdict(one) for one in results.measurements],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _failures(results: Results) -> list[str]:
    return [f"{one.workload} on {one.broker}, round {one.round}: {one.error}" for one in results.errors]


def _worst(found: tuple[float, str] | None) -> str:
    if found is None:
        return "–"
    ratio, figure = found
    return f"{ratio:.3f}{' ABOVE' if ratio > RATIO_MAX else ''} ({figure})"


def _shown(value: float | None, unit: str, mark: str = "") -> str:
    if value is None:
        return "–"
    return f"{mark}{_number(value)} {unit}".rstrip()


def _number(value: float) -> str:
    """Three figures that count, no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
