"""`flintmq lake compact`: fewer and larger files."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.option_values import parse_size_bytes
from flintmq.cli.common.output import many, print_json, size
from flintmq.cli.common.progress import Progress
from flintmq.cli.lake.options import check_installed, open_session, place_options, spark_options


@click.command(
    "compact",
    cls=Command,
    examples=(
        "flintmq lake compact orders --to /srv/lake",
        "flintmq lake compact orders clicks --to s3://lake --format delta --target-size 512MiB",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@place_options
@click.option("--target-size", default="256MiB", show_default=True, help="The size of the merged files.")
@spark_options
@json_option
def command(
    tables: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    target_size: str,
    master: str | None,
    remote: str | None,
    as_json: bool,
) -> None:
    """Merge small files of tables into larger ones, the same rows in the same order.

    Workers of Spark merge neighbours of one partition; then one commit puts the new files in the place of theirs. A
    sync may go on meanwhile. The old files stay for queries that still read them, until `flintmq lake clean`.
    """
    target_bytes = parse_size_bytes("--target-size", target_size, example="256MiB", least=1)
    check_installed()
    from flintmq.lake.compact.compact import compact
    from flintmq.lake.syncing.options import parse_store_settings
    from flintmq.lake.tables.factory import open_with_store

    settings = parse_store_settings(store)
    spark = open_session(master, remote)
    for name in tables:
        opened = open_with_store(
            to, name, table_format, settings=settings, catalog=catalog, namespace=namespace
        )
        with Progress("writing") as progress:
            done = compact(
                spark, opened.table, opened.store, target_bytes=target_bytes, on_progress=progress.tell_pieces
            )
        if as_json:
            print_json(
                {
                    "table": opened.table.location,
                    "files_before": done.files_before,
                    "files_after": done.files_after,
                    "bytes_before": done.bytes_before,
                    "bytes_after": done.bytes_after,
                    "rows": done.rows,
                    "commits": done.commits,
                }
            )
        elif not done.files_before:
            click.echo(f"{opened.table.location}: nothing to merge")
        else:
            click.echo(
                f"{opened.table.location}: {many(done.files_before, 'file')} ({size(done.bytes_before)}) became "
                f"{many(done.files_after, 'file')} ({size(done.bytes_after)}), {many(done.rows, 'row')}"
            )
