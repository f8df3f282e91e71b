"""`flintmq transaction find-hanging`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import duration_text, many, note, print_json, print_table, time_of
from flintmq.client.admin.transactions import find_hanging

_MINUTE_MS = 60_000


@click.command(
    "find-hanging",
    cls=Command,
    examples=(
        "flintmq transaction find-hanging",
        "flintmq transaction find-hanging --topic orders --max-transaction-timeout 60",
    ),
)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="Look only here. May be given several times."
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Leave alone what was written to since; the longest time-out of your producers, or longer.",
)
@bootstrap_option
@json_option
def command(topics: tuple[str, ...], minutes: int, bootstrap: str, as_json: bool) -> None:
    """Find open transactions that no coordinator knows any more.

    Nobody will end them, and who reads committed records cannot pass the place where one began. End it with
    `flintmq transaction abort --topic … --partition … --start-offset …`.
    """
    with open_client(bootstrap) as client:
        known = {name: client.topic(name) for name in topics} if topics else client.all_topics()
        places = [(name, index) for name in sorted(known) for index in sorted(known[name].partitions)]
        found = find_hanging(client, places, older_than_ms=minutes * _MINUTE_MS)
        now_ms = client.clock.now_ms()
    if as_json:
        print_json(
            [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "producer_id": one.producer_id,
                    "producer_epoch": one.epoch,
                    "start_offset": one.start_offset,
                    "last_ms": one.last_ms,
                }
                for one in found
            ]
        )
    elif found:
        print_table(
            ("topic", "partition", "start offset", "producer", "epoch", "last record", "age"),
            [
                (
                    one.topic,
                    str(one.partition),
                    str(one.start_offset),
                    str(one.producer_id),
                    str(one.epoch),
                    time_of(one.last_ms),
                    duration_text(max(0, now_ms - one.last_ms) / 1000),
                )
                for one in found
            ],
            numbers=("partition", "start offset", "producer", "epoch", "age"),
        )
        first = found[0]
        note(
            f"End the first with: flintmq transaction abort --topic {first.topic} --partition {first.partition} "
            f"--start-offset {first.start_offset}"
        )
    else:
        note(f"None hangs in {many(len(places), 'partition')}.")
