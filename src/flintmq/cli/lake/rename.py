"""`flintmq lake rename`: a topic's table under another name."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.common.output import print_json
from flintmq.cli.common.progress import Progress
from flintmq.cli.lake.options import check_installed, place_options


@click.command(
    "rename",
    cls=Command,
    examples=(
        "flintmq lake rename orders sales --to /srv/lake",
        "flintmq lake rename orders sales --to s3://lake --format iceberg --catalog prod",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("topic")
@click.argument("new_name")
@place_options
@json_option
def command(
    topic: str,
    new_name: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    as_json: bool,
) -> None:
    """Give a topic's table another name, with its quarantine and its table of latest rows.

    Engines see the new name; commands go on naming the topic. Rows, progress and older versions stay. Syncs that run
    meanwhile fail, and continue when they are started again. A rename that was killed is finished by the same
    command; until then the table is refused to all other commands.
    """
    check_installed()
    from flintmq.lake.rename.rename import rename
    from flintmq.lake.syncing.options import parse_store_settings
    from flintmq.lake.tables.factory import table_root

    settings = parse_store_settings(store)
    root = table_root(to, table_format, settings=settings, catalog=catalog, namespace=namespace)
    with Progress() as progress:
        done = rename(
            root,
            topic,
            new_name,
            on_progress=lambda copied, total: progress.tell_bytes("copying", copied, total),
        )
    if as_json:
        print_json(
            {
                "topic": topic,
                "name": new_name,
                "tables": [{"from": one.old, "to": one.new} for one in done.tables],
                "files": done.files,
                "bytes": done.bytes,
            }
        )
        return
    if not done.tables:
        click.echo(f"The table of {topic} is named {new_name} already.")
    for one in done.tables:
        click.echo(f"{one.old}: renamed to {one.new}")
