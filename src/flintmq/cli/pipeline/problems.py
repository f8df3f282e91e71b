"""What is wrong with pipelines, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from flintmq.pipeline import Problem


def show_problems(problems: Sequence[Problem]) -> None:
    """On standard error, errors in red and warnings in yellow."""
    for problem in problems:
        first, _, rest = problem.render().partition("\n")
        label = f" {problem.severity}: "
        where, _, message = first.partition(label)
        colour = "red" if problem.is_error else "yellow"
        click.echo(f"{where}{click.style(label, fg=colour, bold=True)}{message}", err=True)
        if rest:
            click.echo(rest, err=True)


def problem_as_json(problem: Problem) -> dict[str, object]:
    return {
        "severity": str(problem.severity),
        "rule": str(problem.rule),
        "file": problem.place.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "message": problem.message,
        "hint": problem.hint,
    }
