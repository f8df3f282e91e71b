"""`flintmq pipeline validate`: say everything that is wrong with a pipeline's file."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import Exit
from flintmq.cli.common.output import many, print_json
from flintmq.cli.pipeline.problems import problem_as_json, show_problems


@click.command(
    "validate",
    cls=Command,
    examples=(
        "flintmq pipeline validate orders.yaml",
        "flintmq pipeline validate pipelines/*.yaml --json",
    ),
    exit_codes={
        Exit.OK: "nothing is wrong; there may be warnings",
        Exit.FAILED: "something is wrong",
        Exit.USAGE: "wrong usage",
    },
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@json_option
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Say everything that is wrong with a pipeline's file.

    Needs neither Spark nor a broker. Each problem is told with its line and column, and with what to do about it.
    Several files must not share a checkpoint.
    """
    from flintmq.pipeline import examine_all

    found = examine_all(files)
    problems = [problem for one in found for problem in one.problems]
    if as_json:
        print_json(
            {
                "valid": all(one.is_valid for one in found),
                "files": [
                    {
                        "file": one.file,
                        "name": None if one.pipeline is None else one.pipeline.name,
                        "valid": one.is_valid,
                        "problems": [problem_as_json(problem) for problem in one.problems],
                    }
                    for one in found
                ],
            }
        )
    else:
        show_problems(problems)
        for one in found:
            if one.is_valid and one.pipeline is not None:
                parts = (
                    many(len(one.pipeline.sources), "source"),
                    many(len(one.pipeline.steps), "step"),
                    many(len(one.pipeline.sinks), "sink"),
                )
                click.echo(f"{one.file}: {one.pipeline.name} is valid: {', '.join(parts)}")
    if not all(one.is_valid for one in found):
        if not as_json:
            count = sum(problem.is_error for problem in problems)
            click.echo(many(count, "error"), err=True)
        ctx.exit(int(Exit.FAILED))
