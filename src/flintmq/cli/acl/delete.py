"""`flintmq acl delete`."""

from __future__ import annotations

import sys

import click

from flintmq.cli.acl.options import COLUMNS, json_of, read_resources, row_of
from flintmq.cli.acl.selection import selection_options, selections
from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import many, note, print_json, print_table
from flintmq.client.admin.acls import AclSelection, delete_acls, list_acls


@click.command(
    "delete",
    cls=Command,
    examples=(
        "flintmq acl delete --principal User:bob --topic orders",
        "flintmq acl delete --principal User:bob --yes",
        "flintmq acl delete --topic orders --operation Write --permission deny --yes",
    ),
)
@selection_options
@click.option("--all", "everything", is_flag=True, help="Delete all ACLs; nothing else may be selected.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
@json_option
def command(
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    tokens: tuple[str, ...],
    users: tuple[str, ...],
    pattern: str,
    principals: tuple[str, ...],
    hosts: tuple[str, ...],
    operations: tuple[str, ...],
    permission: str,
    everything: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Delete the ACLs that are selected.

    The options select as those of `flintmq acl list` do: list first, then delete. At a terminal the ACLs are shown
    and confirmed, unless --yes is given. The change is in force at once, on connections that are open too.
    """
    resources = read_resources(topics, groups, transactional_ids, cluster, tokens, users)
    wanted = selections(resources, pattern, principals, hosts, operations, permission)
    is_narrowed = wanted != [AclSelection()]
    if everything == is_narrowed:
        raise UsageFailure(
            "--all deletes every ACL: leave out the other options."
            if everything
            else "Select ACLs, for example by --principal or --topic; --all deletes every ACL."
        )
    with open_client(bootstrap) as client:
        if not yes and sys.stdin.isatty():
            found = sorted({acl for one in wanted for acl in list_acls(client, one)})
            if found:
                print_table(COLUMNS, [row_of(acl) for acl in found])
                click.confirm(f"Delete {many(len(found), 'ACL')}?", abort=True, err=True)
        deleted = delete_acls(client, wanted)
    if as_json:
        print_json([json_of(acl) for acl in deleted])
    elif deleted:
        print_table(COLUMNS, [row_of(acl) for acl in deleted])
        note(f"Deleted {many(len(deleted), 'ACL')}.")
    else:
        note("There are no such ACLs.")
