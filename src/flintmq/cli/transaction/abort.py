"""`flintmq transaction abort`."""

from __future__ import annotations

import sys
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import print_json
from flintmq.client.admin.transactions import (
    OpenTransaction,
    abort_hanging,
    abort_transaction,
    open_transactions,
    owners,
)
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode, RequestError


@click.command(
    "abort",
    cls=Command,
    examples=(
        "flintmq transaction abort payments-1",
        "flintmq transaction abort --topic orders --partition 2 --start-offset 1200",
    ),
)
@click.argument("transactional_id", required=False, metavar="[ID]")
@click.option("--topic", metavar="NAME", help="Of a hanging transaction: the topic it is open in,")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="the partition,")
@click.option(
    "--start-offset",
    type=click.IntRange(min=0),
    metavar="N",
    help="and where it began, as find-hanging tells it.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def command(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """End an open transaction that its producer does not end.

    By its transactional id: what it wrote is aborted in all partitions, and the producer that has it is fenced; it
    can go on only by starting anew.

    A hanging transaction, which no coordinator knows, is ended in one partition, by the three options; nobody is
    fenced. At a terminal you are asked first, unless you say --yes.
    """
    target = (topic, partition, start_offset)
    with open_client(bootstrap) as client:
        match target:
            case (None, None, None) if transactional_id is not None:
                aborted, words = _abort_by_id(client, transactional_id, yes)
            case (str(), int(), int()) if transactional_id is None:
                aborted, words = _abort_hanging(client, *target, yes)
            case _:
                raise click.UsageError(
                    "say which with a transactional id, or with --topic, --partition and --start-offset."
                )
    if as_json:
        print_json({"aborted": aborted})
    else:
        click.echo(words)


def _abort_by_id(client: ClusterClient, transactional_id: str, yes: bool) -> tuple[dict[str, Any], str]:
    _confirm(f"Abort the transaction of {transactional_id} and fence its producer?", yes)
    abort_transaction(client, transactional_id)
    words = f"Aborted the transaction of {transactional_id}. Its producer is fenced."
    return {"transactional_id": transactional_id}, words


def _abort_hanging(
    client: ClusterClient, topic: str, partition: int, start_offset: int, yes: bool
) -> tuple[dict[str, Any], str]:
    hanging = _find(client, topic, partition, start_offset)
    _confirm(f"Abort what producer {hanging.producer_id} wrote to {topic}-{partition}?", yes)
    abort_hanging(client, hanging)
    aborted = {
        "topic": topic,
        "partition": partition,
        "start_offset": start_offset,
        "producer_id": hanging.producer_id,
    }
    return aborted, f"Aborted the transaction of producer {hanging.producer_id} in {topic}-{partition}."


def _confirm(question: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def _find(client: ClusterClient, topic: str, partition: int, start_offset: int) -> OpenTransaction:
    there = client.topic(topic).partitions
    if partition not in there:
        raise RequestError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{topic} has no partition {partition}, only 0 to {len(there) - 1}",
        )
    for one in open_transactions(client, [(topic, partition)]):
        if one.start_offset == start_offset:
            owner = owners(client, [one]).get(one)
            if owner is None:
                return one
            raise RequestError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"it does not hang: its coordinator knows it as {owner}, and ends it when its time is out. "
                f"To end it now: flintmq transaction abort {owner}",
            )
    raise RequestError(
        ErrorCode.INVALID_TXN_STATE,
        f"no transaction that began at offset {start_offset} is open in {topic}-{partition}; "
        "flintmq transaction find-hanging tells which are",
    )
