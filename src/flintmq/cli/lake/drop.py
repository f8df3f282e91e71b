"""`flintmq lake drop`: a table, and all that belongs to it, deleted."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import REMOTE_CODES, CommandFailure
from flintmq.cli.common.output import many, print_json, size, warn
from flintmq.cli.lake.options import check_installed, place_options
from flintmq.client.admin.groups import committed_offsets, delete_group
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode, FlintError, RequestError
from flintmq.protocol.table_progress import is_progress_of_other, table_of


@click.command(
    "drop",
    cls=Command,
    examples=(
        "flintmq lake drop orders --to /srv/lake",
        "flintmq lake drop orders --to s3://lake --format delta --keep-files --yes",
    ),
    exit_codes=REMOTE_CODES,
)
@click.argument("topic")
@place_options
@bootstrap_option
@click.option(
    "--keep-files",
    is_flag=True,
    help="Keep the data files; delete only the table's log or its entry in the catalog.",
)
@click.option("--group", default=None, help="The consumer group that shows the lag. [lake-TOPIC]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
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

    The topic is not changed. Stop syncs of the table first: a sync that continues creates a new table when the old
    one is gone. The same command finishes a drop that was killed; until then every command refuses the table. A drop
    cannot be undone. At a terminal it asks for confirmation, unless --yes is given.
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
    location = own_location(options, topic)
    groups = (options.group_of(topic), quarantine_group(shared, location))
    deleted = _delete_groups(bootstrap, groups, location)
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


def _delete_groups(bootstrap: str, groups: tuple[str, ...], location: str) -> list[str]:
    """Return the deleted groups. The tables are already gone, so a failure is only a warning."""
    deleted: list[str] = []
    try:
        with open_client(bootstrap) as client:
            for group in groups:
                if (other := _other_table(client, group, location)) is not None:
                    warn(f"the group {group} is kept: it shows the progress of the table {other}")
                    continue
                try:
                    delete_group(client, group)
                    deleted.append(group)
                except RequestError as error:
                    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                        raise
    except FlintError as error:
        warn(f"the groups {', '.join(groups)} are not deleted: {error}. Use flintmq group delete")
    return deleted


def _other_table(client: ClusterClient, group: str, location: str) -> str | None:
    """Return the other table whose progress the group shows. Without the group, retention would not wait for it."""
    for one in committed_offsets(client, group).values():
        if is_progress_of_other(one.metadata, location):
            return table_of(one.metadata)
    return None
