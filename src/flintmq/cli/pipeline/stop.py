"""`flintmq pipeline stop`: end a run from another terminal."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import CommandFailure, Exit
from flintmq.cli.common.output import note
from flintmq.cli.pipeline.problems import show_problems


@click.command(
    "stop",
    cls=Command,
    examples=("flintmq pipeline stop orders.yaml", "flintmq pipeline stop orders.yaml --timeout 10"),
    exit_codes={
        Exit.OK: "it has ended, or did not run",
        Exit.FAILED: "it has not ended in time, or the file is wrong",
        Exit.USAGE: "wrong usage",
    },
)
@click.argument("file", metavar="FILE")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its end.",
)
@click.pass_context
def command(ctx: click.Context, file: str, timeout: float) -> None:
    """End a pipeline that runs, once its batches under way are done.

    The next run goes on where this one ends.
    """
    from flintmq.pipeline import examine
    from flintmq.pipeline.runtime.control import control_folder, is_locked, request_stop

    examined = examine(file)
    if examined.pipeline is None:
        show_problems(examined.problems)
        ctx.exit(int(Exit.FAILED))
    name, folder = examined.pipeline.name, control_folder(examined.pipeline)
    if not is_locked(folder):
        note(f"{name} does not run")
    elif request_stop(folder, timeout_s=timeout):
        note(f"{name} has ended")
    else:
        raise CommandFailure(f"{name} has not ended within {timeout:g} s; it will when its batches are done")
