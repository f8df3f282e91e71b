"""`flintmq topic compact`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option
from flintmq.cli.common.maintenance import EXIT_CODES, carry_out, partition_option
from flintmq.protocol.maintenance import MaintenanceAction


@click.command(
    "compact",
    cls=Command,
    examples=("flintmq topic compact orders", "flintmq topic compact orders --partition 2 --json"),
    exit_codes=EXIT_CODES,
)
@click.argument("topic")
@partition_option
@bootstrap_option
@json_option
def command(topic: str, partitions: tuple[int, ...], bootstrap: str, as_json: bool) -> None:
    """Compact a topic now: of each key the last record stays.

    The broker does it by itself when it is worth it; this does it at once, to all that was written so far, whatever
    min.cleanable.dirty.ratio and min.compaction.lag.ms say. The topic's cleanup.policy must have `compact`. The
    same records give the same result each time. If this command is stopped, the work goes on.
    """
    carry_out(MaintenanceAction.COMPACT, topic, partitions, bootstrap=bootstrap, as_json=as_json)
