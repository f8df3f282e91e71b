"""`flintmq lake clean`: files that can never be in a table again."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.option_values import parse_duration_ms
from flintmq.cli.common.output import many, print_json, size
from flintmq.cli.lake.options import check_installed, place_options


@click.command(
    "clean",
    cls=Command,
    examples=(
        "flintmq lake clean orders --to /srv/lake --dry-run",
        "flintmq lake clean orders orders__latest --to s3://lake --format delta --keep 1d",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@place_options
@click.option(
    "--keep",
    default="7d",
    show_default=True,
    metavar="TIME",
    help="How long older versions of the table stay readable, such as 1d or '2 weeks'.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@json_option
def command(
    tables: tuple[str, ...],
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    keep: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete files that no version of the table needs and nobody can commit any more.

    These are files of syncs and compactions that were killed or overtaken, and files that a compaction has replaced,
    once they are old enough. Syncs and compactions may go on meanwhile. Files of others are left alone.
    """
    keep_ms = parse_duration_ms("--keep", keep)
    check_installed()
    from flintmq.lake.clean import clean
    from flintmq.lake.syncing.options import parse_store_settings
    from flintmq.lake.tables.factory import open_with_store

    settings = parse_store_settings(store)
    for name in tables:
        opened = open_with_store(
            to, name, table_format, settings=settings, catalog=catalog, namespace=namespace
        )
        orphans = clean(opened.table, opened.store, keep_ms=keep_ms, dry_run=dry_run)
        if as_json:
            print_json(
                {
                    "table": opened.table.location,
                    "dry_run": dry_run,
                    "files": [{"path": one.path, "bytes": one.size, "why": str(one.why)} for one in orphans],
                }
            )
            continue
        for one in orphans:
            click.echo(f"{one.path}  {size(one.size)}  {one.why}")
        total = f"{many(len(orphans), 'file')}, {size(sum(one.size for one in orphans))}"
        click.echo(f"{opened.table.location}: {total} {'to delete' if dry_run else 'deleted'}")
