"""`flintmq spark status`: the session that `flintmq spark up` keeps."""

from __future__ import annotations

import os
import time

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES, Exit
from flintmq.cli.common.output import duration_text, print_json, size, time_of


@click.command(
    "status",
    cls=Command,
    examples=("flintmq spark status", "flintmq spark status --json"),
    exit_codes={**LOCAL_CODES, Exit.OK: "a session is up", Exit.FAILED: "no session is up"},
)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show the session that `flintmq spark up` keeps.

    Its process, port, age, time without work and memory; and whether commands from this environment may use it, or
    what differs if not.
    """
    from flintmq.spark.warm.client import find_warm_session
    from flintmq.spark.warm.memory import tree_memory_bytes

    warm = find_warm_session(os.environ)
    if warm is None:
        if as_json:
            print_json({"up": False})
        else:
            click.echo("no Spark session is up; `flintmq spark up` starts one")
        context.exit(Exit.FAILED)
    state, now = warm.state, time.time()
    idle_s = max(0.0, now - state.active_s)
    memory = tree_memory_bytes(state.pid)
    if as_json:
        print_json(
            {
                "up": True,
                "pid": state.pid,
                "port": state.port,
                "started_ms": round(state.started_s * 1000),
                "idle_seconds": round(idle_s, 1),
                "idle_seconds_max": state.idle_s,
                "memory_bytes": memory,
                "differences": warm.differences,
                "log": warm.log,
            }
        )
        return
    for name, value in (
        ("process", str(state.pid)),
        ("port", f"{state.port} on this machine"),
        ("since", f"{time_of(round(state.started_s * 1000))}, {duration_text(now - state.started_s)} ago"),
        ("idle", f"{duration_text(idle_s)} of {duration_text(state.idle_s)}"),
        ("memory", size(memory)),
        ("log", warm.log),
    ):
        click.echo(f"{name:<8} {value}")
    if warm.differences:
        click.echo(
            f"not used from here, for it differs in {', '.join(warm.differences)}; `flintmq spark down` and "
            "`flintmq spark up` start it anew"
        )
