"""`flintmq pipeline replay`: dead letters, or old records, through a pipeline again."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES, Exit
from flintmq.cli.common.output import many, note, print_json
from flintmq.cli.pipeline.options import (
    bootstrap_override,
    load_to_run,
    master_option,
    session_to_stop,
    showing_problems,
)
from flintmq.cli.pipeline.progress_view import ProgressView
from flintmq.errors import ConfigurationError


@click.command(
    "replay",
    cls=Command,
    examples=(
        "flintmq pipeline replay orders.yaml --dead-letters",
        "flintmq pipeline replay orders.yaml --dead-letters --sink totals",
        "flintmq pipeline replay orders.yaml --from 2026-01-31T12:00:00Z --to-suffix=-again",
    ),
    exit_codes={**REMOTE_CODES, Exit.OK: "done, or stopped by a signal"},
)
@click.argument("file", metavar="FILE")
@click.option("--dead-letters", is_flag=True, help="Send the pipeline's dead letters through it again.")
@click.option(
    "--from",
    "start",
    default=None,
    metavar="OFFSETS|TIME",
    help='Send records through again from earliest, from a time, or from offsets as {"topic": {"0": 17}}.',
)
@click.option(
    "--to-suffix",
    default="",
    metavar="TEXT",
    help="Added to the names of topics and tables that are written; needed with --from.",
)
@click.option("--sink", "sinks", multiple=True, help="Write to this sink only; may be given again.")
@bootstrap_override
@master_option
@json_option
def command(
    file: str,
    dead_letters: bool,
    start: str | None,
    to_suffix: str,
    sinks: tuple[str, ...],
    bootstrap: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Send dead letters, or old records, through a pipeline again.

    Dead letters go to the sinks that have missed them, once; what fails again is a dead letter again. The pipeline
    itself may run meanwhile. Records from some point on go to topics and tables of other names, so that no row is
    there twice.
    """
    if dead_letters == (start is not None):
        raise ConfigurationError(
            "say what to replay: --dead-letters, or --from OFFSETS|TIME with --to-suffix"
        )
    pipeline = load_to_run(file, bootstrap)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    with ExitStack() as stack:
        spark, stop = stack.enter_context(session_to_stop(pipeline, master))
        from flintmq.pipeline.runtime.replay import replay_dead_letters, replay_from
        from flintmq.pipeline.runtime.runner import RunOptions

        stack.enter_context(showing_problems())
        screen = stack.enter_context(ProgressView(f"{pipeline.name}, again"))
        options = RunOptions(on_progress=screen.show)
        if start is None:
            outcome = replay_dead_letters(
                spark, pipeline, sinks=sinks, suffix=to_suffix, stop=stop, options=options
            )
        else:
            outcome = replay_from(
                spark, pipeline, start, suffix=to_suffix, sinks=sinks, stop=stop, options=options
            )
    figures = outcome.figures
    if as_json:
        print_json({"pipeline": pipeline.name, "stopped": outcome.was_stopped, **figures.as_json()})
        return
    rows = sum(one.rows for one in figures.sinks.values())
    note(f"{many(rows, 'row')} went through, {many(figures.dead_letters, 'dead letter')} stay")
