"""`flintmq transaction describe`."""

from __future__ import annotations

from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import duration_text, note, print_json, print_table, time_of
from flintmq.client.admin.transactions import UNDER_WAY, DescribedTransaction, describe_transaction


@click.command(
    "describe",
    cls=Command,
    examples=(
        "flintmq transaction describe payments-1",
        "flintmq transaction describe payments-1 payments-2 --json | jq '.[].partitions'",
    ),
)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@bootstrap_option
@json_option
def command(ids: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show what a transaction touches, and how long it has lasted.

    The partitions are those that the transaction has written to and that have not been told of its end. Readers of
    committed records wait in each of them; in __consumer_offsets, those who ask for a group's offsets.
    """
    with open_client(bootstrap) as client:
        found = [describe_transaction(client, name) for name in ids]
        now_ms = client.clock.now_ms()
    if as_json:
        print_json([_fields(one, now_ms) for one in found])
        return
    for at, one in enumerate(found):
        if at:
            click.echo()
        _show(one, now_ms)


def _fields(one: DescribedTransaction, now_ms: int) -> dict[str, Any]:
    return {
        "name": one.id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "duration_ms": _duration_ms(one, now_ms),
        "coordinator": one.coordinator,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in one.partitions],
    }


def _duration_ms(one: DescribedTransaction, now_ms: int) -> int | None:
    """None unless it is under way."""
    if one.start_ms is None or one.state not in UNDER_WAY:
        return None
    return max(0, now_ms - one.start_ms)


def _show(one: DescribedTransaction, now_ms: int) -> None:
    lasted_ms = _duration_ms(one, now_ms)
    click.secho(one.id, bold=True, nl=False)
    click.echo(f": {one.state}", nl=False)
    click.echo("" if lasted_ms is None else f" for {duration_text(lasted_ms / 1000)}", nl=False)
    click.echo(
        f", times out after {duration_text(one.timeout_ms / 1000)}; "
        f"producer {one.producer_id}, epoch {one.epoch}; coordinator {one.coordinator}"
    )
    if one.start_ms is not None:
        click.echo(f"Began at {time_of(one.start_ms)}.")
    if not one.partitions:
        note("No partition waits for its end.")
        return
    click.echo()
    print_table(
        ("topic", "partition"),
        [(topic, str(partition)) for topic, partition in one.partitions],
        numbers=("partition",),
    )
