"""`flintmq pipeline run`: a pipeline from its file, until it is done or stopped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES, Exit
from flintmq.cli.common.output import note, print_json
from flintmq.cli.pipeline.options import (
    bootstrap_override,
    load_to_run,
    master_option,
    session_to_stop,
    showing_problems,
)
from flintmq.cli.pipeline.progress_view import ProgressView

if TYPE_CHECKING:
    from flintmq.pipeline import Change
    from flintmq.pipeline.runtime.progress import RunProgress

RUN_CODES = {**REMOTE_CODES, Exit.OK: "done, or stopped by a signal or by `flintmq pipeline stop`"}


@click.command(
    "run",
    cls=Command,
    examples=(
        "flintmq pipeline run orders.yaml",
        "flintmq pipeline run orders.yaml --once",
        "flintmq pipeline run orders.yaml --bootstrap-server broker:9092 --metrics-port 9400",
    ),
    exit_codes=RUN_CODES,
)
@click.argument("file", metavar="FILE")
@click.option("--once", is_flag=True, help="Do all that is there now, and end.")
@bootstrap_override
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Serve figures for Prometheus at this port of this machine.",
)
@click.option(
    "--stop-timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long batches under way may take when the pipeline is stopped.",
)
@click.option(
    "--accept-new-checkpoint",
    is_flag=True,
    help="Write to tables that this pipeline wrote under another checkpoint: rows may come twice.",
)
@master_option
@json_option
def command(
    file: str,
    once: bool,
    bootstrap: str | None,
    metrics_port: int | None,
    stop_timeout: float,
    accept_new_checkpoint: bool,
    master: str | None,
    as_json: bool,
) -> None:
    """Run a pipeline until it is done or stopped.

    Everything that can be wrong with the file is told before a row is read. A run that was stopped or killed is
    continued by the next one: topics, tables and files get each row once, databases at least once.
    """
    pipeline = load_to_run(file, bootstrap)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    from flintmq.http.metrics_server import MetricsServer
    from flintmq.pipeline.runtime.metrics import metrics_text

    latest: list[RunProgress] = []

    def on_progress(state: str, figures: RunProgress) -> None:
        latest[:] = [figures]
        screen.show(state, figures)

    with ExitStack() as stack:
        spark, stop = stack.enter_context(session_to_stop(pipeline, master))
        from flintmq.pipeline.runtime.runner import RunOptions, run

        stack.enter_context(showing_problems())
        screen = stack.enter_context(ProgressView(pipeline.name))
        if metrics_port is not None:
            server = stack.enter_context(
                MetricsServer(
                    lambda: metrics_text(pipeline.name, latest[0]) if latest else "", port=metrics_port
                )
            )
            note(f"figures at http://127.0.0.1:{server.port}/metrics")
        options = RunOptions(
            once=once,
            accepts_new_checkpoint=accept_new_checkpoint,
            stop_timeout_s=stop_timeout,
            on_progress=on_progress,
            on_changes=_tell_changes,
        )
        outcome = run(spark, pipeline, stop=stop, options=options)
    if as_json:
        print_json({"pipeline": pipeline.name, "stopped": outcome.was_stopped, **outcome.figures.as_json()})


def _tell_changes(changes: Sequence[Change]) -> None:
    for one in changes:
        note(f"changed since the last run: {one.node}: {one.message}")
