"""`flintmq lake quarantine discard`."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import many, print_json
from flintmq.cli.lake.options import place_options
from flintmq.cli.lake.quarantine.positions import opened, parse_position
from flintmq.errors import ConfigurationError


@click.command(
    "discard",
    cls=Command,
    examples=(
        "flintmq lake quarantine discard orders 1:716 1:720 --to /srv/lake",
        "flintmq lake quarantine discard orders --all --yes --to /srv/lake",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("topic")
@click.argument("positions", nargs=-1, metavar="[PARTITION:OFFSET]...")
@place_options
@click.option("--all", "every", is_flag=True, help="All open records of the quarantine.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def command(
    topic: str,
    positions: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    every: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Discard quarantined records that nobody wants any more.

    Keys, values and headers are removed from the quarantine; that the records were there, where, and why stays known.
    They are not replayed any more. This cannot be undone. At a terminal it asks
    for confirmation, unless --yes is given.
    """
    if every == bool(positions):
        raise ConfigurationError("name the records as PARTITION:OFFSET, such as 1:716, or say --all")
    source = opened(topic, to, table_format, catalog, namespace, store)
    from flintmq.lake.quarantine.records import counts, discard

    wanted = [parse_position(one) for one in positions]
    if not yes and sys.stdin.isatty():
        count = counts(source).open if every else len(set(wanted))
        click.confirm(f"Discard {many(count, 'record')} of {topic}?", abort=True, err=True)
    count = discard(source, None if every else wanted)
    if as_json:
        print_json({"quarantine": source.quarantine.location, "discarded": count})
    else:
        click.echo(f"{source.quarantine.location}: {many(count, 'record')} discarded")
