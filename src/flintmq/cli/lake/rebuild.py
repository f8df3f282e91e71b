"""`flintmq lake rebuild`: a table made anew from its topic."""

from __future__ import annotations

import sys
from typing import Any

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, client_security, json_option
from flintmq.cli.common.exit_codes import REMOTE_CODES
from flintmq.cli.common.option_values import parse_size_bytes
from flintmq.cli.common.output import many, print_json
from flintmq.cli.common.progress import Progress
from flintmq.cli.lake.options import (
    check_installed,
    file_size_option,
    open_session,
    place_options,
    quarantine_option,
    schema_option,
    spark_options,
    value_options,
)

_DECODING = ("schema", "registry", "subject", "message", "into")


@click.command(
    "rebuild",
    cls=Command,
    examples=(
        "flintmq lake rebuild orders --to /srv/lake",
        "flintmq lake rebuild orders --to /srv/lake --schema 'id string, cents long'",
        "flintmq lake rebuild orders --to s3://lake --format delta --allow-gaps --yes",
    ),
    exit_codes=REMOTE_CODES,
)
@click.argument("topic")
@place_options
@bootstrap_option
@click.option(
    "--decode",
    default=None,
    help="How values become columns: raw (not at all), json, avro, protobuf. [as in the table]",
)
@schema_option("as in the table")
@value_options
@quarantine_option
@click.option(
    "--allow-gaps", is_flag=True, help="Rebuild even if rows are lost that the topic no longer holds."
)
@file_size_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@spark_options
@json_option
def command(
    topic: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    bootstrap: str,
    decode: str | None,
    quarantine: str,
    allow_gaps: bool,
    file_size: str,
    yes: bool,
    master: str | None,
    remote: str | None,
    as_json: bool,
    **about_decoding: Any,
) -> None:
    """Write all rows of a table again from its topic, and swap them in with one commit.

    Use it for a schema change that a sync refuses, or for a damaged table. Readers see the old rows until the commit.
    Records that cannot be decoded replace the quarantine. The same command continues a rebuild that was killed. It
    is refused if the topic no longer holds all rows of the table, unless --allow-gaps is given. At a terminal it asks
    for confirmation, unless --yes is given.
    """
    check_installed()
    from flintmq.lake.rebuild import rebuild
    from flintmq.lake.syncing.options import make_options, parse_store_settings
    from flintmq.lake.syncing.synced_table import table_of
    from flintmq.lake.syncing.table_decoding import kept_decoding

    more: dict[str, Any] = {
        "to": to,
        "format": table_format,
        "bootstrap_servers": bootstrap,
        "security": client_security(),
        "catalog": catalog,
        "namespace": namespace,
        "store": parse_store_settings(store),
        "quarantine": quarantine,
        "allow_gaps": allow_gaps,
        "piece_bytes": parse_size_bytes("--file-size", file_size, example="64MiB"),
    }
    options = make_options([topic], **more)
    is_decoded_anew = decode is not None or any(about_decoding[name] is not None for name in _DECODING)
    if is_decoded_anew:
        state = table_of(options, topic).state()
        kind = decode or (None if state is None else kept_decoding(state).kind)
        options = make_options([topic], decode=kind or "raw", **about_decoding, **more)
    if not yes and sys.stdin.isatty():
        click.confirm(f"Write all rows of {table_of(options, topic).location} again?", abort=True, err=True)
    with Progress("writing") as progress:
        done = rebuild(
            open_session(master, remote),
            options,
            decoding=options.decoding if is_decoded_anew else None,
            on_progress=progress.tell_pieces,
        )
    if as_json:
        print_json(
            {
                "table": done.table,
                "rows": done.rows,
                "files": done.files,
                "quarantined": done.quarantined,
                "lost": done.lost,
            }
        )
        return
    poison = f", {many(done.quarantined, 'record')} quarantined" if done.quarantined else ""
    lost = f", {many(done.lost, 'record')} lost" if done.lost else ""
    click.echo(f"{done.table}: rebuilt, {many(done.rows, 'row')} in {many(done.files, 'file')}{poison}{lost}")
