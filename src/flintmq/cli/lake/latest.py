"""`flintmq lake latest`: the last row of each key."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import many, print_json
from flintmq.cli.lake.options import check_installed, open_session, place_options, spark_options


@click.command(
    "latest",
    cls=Command,
    examples=(
        "flintmq lake latest users --to /srv/lake",
        "flintmq lake latest users --to s3://lake --format delta --json",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@place_options
@spark_options
@json_option
def command(
    tables: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    master: str | None,
    remote: str | None,
    as_json: bool,
) -> None:
    """Bring the table TABLE__latest up to date: of each key in TABLE the last row, as a compacted topic has it.

    A record without a value deletes its key; in a decoded table that is a row with nothing in the decoded columns.
    Records without a key are left out. Only what is new in TABLE is read, and only what changes is written.
    """
    check_installed()
    from flintmq.lake.latest.latest import SUFFIX, latest
    from flintmq.lake.syncing.options import parse_store_settings
    from flintmq.lake.tables.factory import open_with_store

    settings = parse_store_settings(store)
    spark = open_session(master, remote)
    for name in tables:
        source, target = (
            open_with_store(to, one, table_format, settings=settings, catalog=catalog, namespace=namespace)
            for one in (name, name + SUFFIX)
        )
        done = latest(spark, source.table, source.store, target.table, target.store)
        if as_json:
            print_json(
                {
                    "table": target.table.location,
                    "rows": done.rows,
                    "offsets": done.offsets,
                    "files_read": done.files_read,
                    "files_written": done.files_written,
                }
            )
        else:
            click.echo(
                f"{target.table.location}: {many(done.rows, 'key')}, {many(done.offsets, 'new offset')} read, "
                f"{many(done.files_written, 'file')} written"
            )
