"""`flintmq lake quarantine list`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import note, print_json, print_table, size, time_of
from flintmq.cli.lake.options import place_options
from flintmq.cli.lake.quarantine.positions import opened


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq lake quarantine list orders --to /srv/lake",
        "flintmq lake quarantine list orders --to s3://lake --format delta --limit 1000 --json",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("topic")
@place_options
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many records are listed."
)
@click.option("--discarded", is_flag=True, help="List the discarded records instead of the open ones.")
@json_option
def command(
    topic: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    limit: int,
    discarded: bool,
    as_json: bool,
) -> None:
    """List quarantined records, with where they were and their errors.

    Records that lake replay --quarantined has brought into the table are not in quarantine any more. Needs neither
    Spark nor a broker.
    """
    source = opened(topic, to, table_format, catalog, namespace, store)
    from flintmq.lake.quarantine.records import counts, listed

    found = listed(source, limit=limit, discarded=discarded)
    if as_json:
        print_json(
            [
                {
                    "partition": one.position.partition,
                    "offset": one.position.offset,
                    "timestamp": one.timestamp_ms,
                    "error": one.error,
                    "value_bytes": None if one.value is None else len(one.value),
                }
                for one in found
            ]
        )
        return
    print_table(
        ("record", "time", "value", "error"),
        [
            (
                f"{one.position.partition}:{one.position.offset}",
                time_of(one.timestamp_ms),
                size(None if one.value is None else len(one.value)),
                one.error,
            )
            for one in found
        ],
    )
    every = counts(source)
    total = every.discarded if discarded else every.open
    if total > len(found):
        note(f"{total - len(found):,} more; --limit lists more of them")
