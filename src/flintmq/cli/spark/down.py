"""`flintmq spark down`: the end of the session that `flintmq spark up` keeps."""

from __future__ import annotations

import os

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES


@click.command("down", cls=Command, examples=("flintmq spark down",), exit_codes=LOCAL_CODES)
def command() -> None:
    """End the session that `flintmq spark up` keeps.

    Waits until its processes are gone. Work under way fails; what it has not committed the next command does again.
    """
    from flintmq.spark.warm.control import down

    pid = down(os.environ)
    click.echo("no Spark session is up" if pid is None else f"Spark is down: process {pid} has ended")
