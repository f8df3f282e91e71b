"""`flintmq spark up`: a session of Spark that stays between commands."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES, UsageFailure
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import duration_text, note
from flintmq.cli.spark.launch import INSTALL
from flintmq.errors import ConfigurationError

if TYPE_CHECKING:
    from flintmq.spark.warm.client import WarmSession

_IDLE_S_MIN: Final = 10
"""A command needs a few seconds to import what it works with before its work begins."""


@click.command(
    "up",
    cls=Command,
    examples=(
        "flintmq spark up",
        "flintmq spark up --idle 4h",
        "flintmq spark up && flintmq lake sync orders --to lake",
    ),
    exit_codes=LOCAL_CODES,
)
@click.option(
    "--idle",
    default="30m",
    show_default=True,
    metavar="TIME",
    help="End the session by itself after this time without work.",
)
def command(idle: str) -> None:
    """Start Spark in the background, for the commands that come after.

    Lake commands then use this session instead of starting a Spark of their own, unless they are given --master or
    --remote. It is a Spark Connect server that listens on this machine only and demands a token, which is in a file
    that only you can read. A session that is up already is left as it is. `flintmq pipeline run` and a `lake sync`
    with --interval or --continuous keep a Spark of their own.
    """
    idle_s = parse_duration_ms("--idle", idle) / 1000
    if idle_s < _IDLE_S_MIN:
        raise ConfigurationError(f"--idle {idle}: expected {_IDLE_S_MIN} s or more, such as 30m")
    from flintmq.spark.warm.client import missing_packages
    from flintmq.spark.warm.control import up

    if missing := missing_packages():
        raise UsageFailure(
            f"{', '.join(missing)} is not installed, which Spark Connect needs. Run: {INSTALL}"
        )
    begun = time.monotonic()
    warm, is_new = up(os.environ, idle_s=idle_s, on_start=lambda: note("starting Spark"))
    if is_new:
        _warm_up(warm)
    state = warm.state
    click.echo(
        f"Spark is up{'' if is_new else ' already'}: process {state.pid}, port {state.port} on this machine; it ends "
        f"after {duration_text(state.idle_s)} without work, or with `flintmq spark down`"
    )
    if is_new:
        note(f"ready after {time.monotonic() - begun:.1f} s; its log is {warm.log}")


def _warm_up(warm: WarmSession) -> None:
    """Run a first job, which starts the Python workers and shows that commands will be let in."""
    spark = warm.attach()
    count = os.cpu_count() or 1
    rows = spark.range(0, count, 1, count).mapInArrow(lambda batches: batches, "id long").toArrow()
    assert rows.num_rows == count
