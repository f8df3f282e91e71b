"""`flintmq topic retain`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option
from flintmq.cli.common.maintenance import EXIT_CODES, carry_out, partition_option
from flintmq.protocol.maintenance import MaintenanceAction


@click.command(
    "retain",
    cls=Command,
    examples=("flintmq topic retain orders", "flintmq topic retain orders --partition 2 --json"),
    exit_codes=EXIT_CODES,
)
@click.argument("topic")
@partition_option
@bootstrap_option
@json_option
def command(topic: str, partitions: tuple[int, ...], bootstrap: str, as_json: bool) -> None:
    """Apply a topic's retention now: what is too old or too much goes.

    The broker does it by itself every log.retention.check.interval.ms. Whole segments go, by the topic's
    retention.ms and retention.bytes; its cleanup.policy must have `delete`.
    """
    carry_out(MaintenanceAction.RETAIN, topic, partitions, bootstrap=bootstrap, as_json=as_json)
