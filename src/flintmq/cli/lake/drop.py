"""`flintmq lake drop`: a table, and all that belongs to it, deleted."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import REMOTE_CODES, CommandFailure
from flintmq.cli.common.output import many, print_json, size, warn
from flintmq.cli.lake.options import check_installed, place_options
from flintmq.client.admin.groups import delete_group
from flintmq.errors import ErrorCode, FlintError, RequestError


@click.command(
    "drop",
    cls=Command,
    examples=(
        "flintmq lake drop orders --to /srv/lake",
        "flintmq lake drop orders --to s3://lake --format iceberg --keep-files --yes",
    ),
    exit_codes=REMOTE_CODES,
)
@click.argument("topic")
@place_options
@bootstrap_option
@click.option(
    "--keep-files",
    is_flag=True,
    help="Keep data files; delete only the log or the catalog's entry, which make them a table.",
)
@click.option("--group", default=None, help="The consumer group that shows the lag. [lake-TOPIC]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def command(
    topic: str,
    to: str,
    table_format: str,
    catalog: str | None,
    namespace: str | None,
    store: tuple[str, ...],
    bootstrap: str,
    keep_files: bool,
    group: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete a table with its files, its quarantine, its table of latest rows and its group.

    The topic is left alone. Stop syncs of the table first: one that goes on makes a new table when the old one is
    gone. A drop that was killed is finished by the same command; until then the table is refused to everybody. There
    is no way back. At a terminal you are asked first, unless you say --yes.
    """
    check_installed()
    from flintmq.lake.drop import drop, drop_old_names, fence, is_renamed, is_there
    from flintmq.lake.latest.latest import SUFFIX
    from flintmq.lake.syncing.options import QUARANTINE_SUFFIX, make_options, parse_store_settings
    from flintmq.lake.syncing.quarantine_topic import quarantine_group
    from flintmq.lake.syncing.synced_table import own_location, shared_quarantine_group
    from flintmq.lake.tables.factory import open_with_store, table_root

    settings = parse_store_settings(store)
    names = (topic, topic + SUFFIX, topic + QUARANTINE_SUFFIX)
    every = [
        open_with_store(to, name, table_format, settings=settings, catalog=catalog, namespace=namespace)
        for name in names
    ]
    root = table_root(to, table_format, settings=settings, catalog=catalog, namespace=namespace)
    renamed = [name for name in names if is_renamed(root, name)]
    there = [one for one in every if is_there(one)]
    if not there and not renamed:
        raise CommandFailure(f"there is no {table_format} table of {topic} at {every[0].table.location}")
    if not yes and sys.stdin.isatty():
        tables = ", ".join(one.table.location for one in there or every[:1])
        files = "but for their data files" if keep_files else "with all files"
        click.confirm(f"Drop {tables}, {files}?", abort=True, err=True)
    if not keep_files:
        # No sync may go on with the table while its quarantine is deleted.
        fence(every[0])
    dropped = [drop(one, keep_files=keep_files) for one in reversed(there)]
    for name in reversed(renamed):
        drop_old_names(root, name, keep_files=keep_files)
    options = make_options(
        [topic], to=to, format=table_format, bootstrap_servers=bootstrap, group=group, store=settings
    )
    shared = shared_quarantine_group(options, topic)
    groups = (options.group_of(topic), quarantine_group(shared, own_location(options, topic)))
    deleted = _delete_groups(bootstrap, groups)
    if as_json:
        print_json(
            {
                "tables": [{"table": one.table, "files": one.files, "bytes": one.bytes} for one in dropped],
                "groups": deleted,
            }
        )
        return
    for one in dropped:
        click.echo(f"{one.table}: dropped, {many(one.files, 'file')} ({size(one.bytes)}) deleted")


def _delete_groups(bootstrap: str, groups: tuple[str, ...]) -> list[str]:
    """Return those that were there. The tables are gone already: what a broker says does not undo that."""
    deleted: list[str] = []
    try:
        with open_client(bootstrap) as client:
            for group in groups:
                try:
                    delete_group(client, group)
                    deleted.append(group)
                except RequestError as error:
                    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                        raise
    except FlintError as error:
        warn(f"the groups {', '.join(groups)} are not deleted: {error}. Use flintmq group delete")
    return deleted
