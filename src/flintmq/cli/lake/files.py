"""`flintmq lake files`: which files a table consists of, for engines that are given files."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import print_json
from flintmq.cli.lake.options import check_installed, place_options


@click.command(
    "files",
    cls=Command,
    examples=(
        "flintmq lake files orders --to /srv/lake",
        "flintmq lake files orders --to s3://lake --json | jq -r '.[].path'",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("table")
@place_options
@json_option
def command(
    table: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    as_json: bool,
) -> None:
    """List the files that a table consists of now, a line each, in the order of partitions and offsets.

    The directory of a plain Parquet table also has files that do not count: those of a running sync, and those that a
    compaction has replaced. Give engines this list.
    """
    check_installed()
    from flintmq.lake.syncing.options import parse_store_settings
    from flintmq.lake.tables.factory import open_with_store
    from flintmq.lake.tables.other_formats import missing_table

    opened = open_with_store(
        to,
        table,
        table_format,
        settings=parse_store_settings(store),
        catalog=catalog,
        namespace=namespace,
    )
    state = opened.table.state()
    if state is None:
        raise missing_table(opened.table, opened.store)
    found = sorted(
        opened.table.files(state), key=lambda one: (one.topic, one.partition, one.start_offset, one.path)
    )
    if not as_json:
        for one in found:
            click.echo(f"{opened.table.location}/{one.path}")
        return
    print_json(
        [
            {
                "path": f"{opened.table.location}/{one.path}",
                "bytes": one.size,
                "rows": one.rows,
                "topic": one.topic,
                "partition": one.partition,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "values": dict(one.partition_values),
            }
            for one in found
        ]
    )
