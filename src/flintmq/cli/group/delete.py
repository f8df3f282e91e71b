"""`flintmq group delete`."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import print_json
from flintmq.cli.group.members import find_group, non_empty_group
from flintmq.client.admin.groups import delete_group
from flintmq.errors import ErrorCode, RequestError


@click.command(
    "delete",
    cls=Command,
    examples=("flintmq group delete billing", "flintmq group delete --if-exists --yes scratch-1 scratch-2"),
)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@click.option("--if-exists", is_flag=True, help="Do nothing about a group that is not there.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def command(groups: tuple[str, ...], if_exists: bool, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete groups without members, and their offsets.

    There is no way back: whoever joins under that name later begins anew. At a terminal you are asked first, unless
    you say --yes.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(groups)} with all offsets?", abort=True, err=True)
    deleted = []
    with open_client(bootstrap) as client:
        for group in groups:
            try:
                delete_group(client, group)
                deleted.append(group)
                if not as_json:
                    click.echo(f"Deleted {group}.")
            except RequestError as error:
                if error.code is ErrorCode.NON_EMPTY_GROUP:
                    found = find_group(client, group)
                    raise non_empty_group(group, found.members if found else (), "deleted") from error
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or not if_exists:
                    raise
    if as_json:
        print_json({"deleted": deleted})
