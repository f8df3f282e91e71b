"""`flintmq version`."""

from __future__ import annotations

import platform

import click

from flintmq import KAFKA_VERSION, __version__
from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import print_json
from flintmq.compiled import build_name


@click.command(
    "version", cls=Command, examples=("flintmq version", "flintmq version --json"), exit_codes=LOCAL_CODES
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Show the version."""
    if as_json:
        print_json(
            {
                "version": __version__,
                "build": build_name(),
                "python": platform.python_version(),
                "kafka_protocol": KAFKA_VERSION,
            }
        )
        return
    python = platform.python_version()
    click.echo(f"flintmq {__version__} ({build_name()}, Kafka protocol {KAFKA_VERSION}, Python {python})")
