"""`flintmq acl list`."""

from __future__ import annotations

import click

from flintmq.cli.acl.options import COLUMNS, json_of, read_resources, row_of
from flintmq.cli.acl.selection import selection_options, selections
from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.client.admin.acls import list_acls


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq acl list",
        "flintmq acl list --principal User:alice",
        "flintmq acl list --topic orders --resource-pattern-type match",
        "flintmq acl list --json | jq -r '.[].principal'",
    ),
)
@selection_options
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
    bootstrap: str,
    as_json: bool,
) -> None:
    """List the ACLs, all or some.

    Without options all ACLs are listed. With --resource-pattern-type match the list holds everything that decides
    about the resource: its own ACLs, those of prefixes of its name, and those of *.
    """
    resources = read_resources(topics, groups, transactional_ids, cluster, tokens, users)
    wanted = selections(resources, pattern, principals, hosts, operations, permission)
    with open_client(bootstrap) as client:
        acls = sorted({acl for one in wanted for acl in list_acls(client, one)})
    if as_json:
        print_json([json_of(acl) for acl in acls])
    elif acls:
        print_table(COLUMNS, [row_of(acl) for acl in acls])
    else:
        note("There are no such ACLs.")
