"""`flintmq quota list`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.cli.quota.options import COLUMNS, entity_options, json_of, read_entity, rows_of
from flintmq.client.admin.quotas import DEFAULT, EXACT, EntitySelection, list_quotas


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq quota list",
        "flintmq quota list --user alice",
        "flintmq quota list --user alice --only",
        "flintmq quota list --default-client-id --json",
    ),
)
@entity_options
@click.option("--only", is_flag=True, help="Leave out quotas that are for something else as well.")
@bootstrap_option
@json_option
def command(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
    only: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """List the quotas, all or some.

    With --user alice the list holds the quotas of alice, and those of alice with a client id; with --only as well,
    just the first.
    """
    entity = read_entity(user, default_user, client_id, default_client_id, ip, default_ip)
    selections = [
        EntitySelection(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()
    ]
    with open_client(bootstrap) as client:
        found = list_quotas(client, selections, strict=only and bool(selections))
    if as_json:
        print_json([json_of(one) for one in found])
    elif found:
        print_table(COLUMNS, [row for one in found for row in rows_of(one)], numbers=("limit",))
    else:
        note("There are no such quotas.")
