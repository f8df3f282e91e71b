"""`flintmq pipeline status`: what pipelines do, from another terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import Exit
from flintmq.cli.common.output import duration_text, print_json, print_table
from flintmq.cli.pipeline.problems import show_problems
from flintmq.cli.pipeline.progress_view import COLUMNS, NUMBERS, sink_row


@click.command(
    "status",
    cls=Command,
    examples=("flintmq pipeline status orders.yaml", "flintmq pipeline status pipelines/*.yaml --json"),
    exit_codes={
        Exit.OK: "all of them run, or were done or stopped",
        Exit.FAILED: "one has failed or died, has never run, or its file is wrong",
        Exit.USAGE: "wrong usage",
    },
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@json_option
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Show what pipelines do: whether they run, how far they are, and how they ended.

    Needs neither Spark nor a broker: a run keeps its figures beside its checkpoint.
    """
    from flintmq.pipeline import examine
    from flintmq.pipeline.runtime.control import control_folder, read_status

    found: list[dict[str, Any]] = []
    for file in files:
        examined = examine(file)
        if examined.pipeline is None:
            show_problems(examined.problems)
            ctx.exit(int(Exit.FAILED))
        status = read_status(control_folder(examined.pipeline))
        name = examined.pipeline.name
        found.append({"file": file, **(status or {"pipeline": name, "state": "never run"})})
    if as_json:
        print_json(found)
    else:
        for at, one in enumerate(found):
            if at:
                click.echo()
            _show(one)
    if any(one["state"] in ("failed", "died", "never run") for one in found):
        ctx.exit(int(Exit.FAILED))


def _show(one: Mapping[str, Any]) -> None:
    click.secho(f"{one['pipeline']}: {one['state']}", bold=True)
    if "pid" not in one:
        return
    now_ms = time.time() * 1000
    since = duration_text((now_ms - one["started_ms"]) / 1000)
    heard = duration_text((now_ms - one["heartbeat_ms"]) / 1000)
    click.echo(f"process {one['pid']} on {one['host']}, started {since} ago, last heard of {heard} ago")
    if one["error"]:
        click.echo(f"error: {one['error']}")
    if one["dead_letters"]:
        click.echo(f"dead letters: {one['dead_letters']:,}")
    print_table(COLUMNS, [sink_row(name, sink) for name, sink in one["sinks"].items()], numbers=NUMBERS)
