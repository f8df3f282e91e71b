"""`flintmq pipeline plan`: draw what a pipeline does, from its sources to its sinks."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import Exit
from flintmq.cli.pipeline.problems import show_problems


@click.command(
    "plan",
    cls=Command,
    examples=("flintmq pipeline plan orders.yaml", "flintmq pipeline plan orders.yaml --ascii"),
    exit_codes={
        Exit.OK: "done",
        Exit.FAILED: "something is wrong with the file",
        Exit.USAGE: "wrong usage",
    },
)
@click.argument("file", metavar="FILE")
@click.option("--ascii", "is_ascii", is_flag=True, help="Draw with plain characters.")
@click.option(
    "--width",
    type=click.IntRange(min=40),
    default=100,
    show_default=True,
    help="How many columns the picture may have.",
)
@click.pass_context
def command(ctx: click.Context, file: str, is_ascii: bool, width: int) -> None:
    """Draw what a pipeline does, from its sources to its sinks.

    Needs neither Spark nor a broker. The same file always gives the same picture.
    """
    from flintmq.pipeline import examine
    from flintmq.pipeline.plan.drawing import draw

    found = examine(file)
    show_problems(found.problems)
    if found.pipeline is None or not found.is_valid:
        ctx.exit(int(Exit.FAILED))
    click.echo(draw(found.pipeline, width=width, is_ascii=is_ascii), nl=False)
