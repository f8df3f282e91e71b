"""`flintmq group list`."""

from __future__ import annotations

import fnmatch

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.client.admin.groups import list_groups


@click.command(
    "list",
    cls=Command,
    examples=(
        "flintmq group list",
        "flintmq group list 'billing-*' --state Empty",
        "flintmq group list --json | jq -r '.[].name'",
    ),
)
@click.argument("pattern", required=False)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help="Only groups in this state: Stable, Empty, PreparingRebalance, CompletingRebalance.",
)
@bootstrap_option
@json_option
def command(pattern: str | None, states: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List the consumer groups and their states.

    PATTERN selects by name, with * and ? as in a shell. A group is Stable while its members read, and Empty once
    it has none; its offsets stay.
    """
    wanted = {state.lower() for state in states}
    with open_client(bootstrap) as client:
        groups = [
            group
            for group in list_groups(client)
            if fnmatch.fnmatchcase(group.id, pattern or "*") and (not wanted or group.state.lower() in wanted)
        ]
    if as_json:
        print_json(
            [
                {"name": group.id, "state": group.state, "protocol_type": group.protocol_type}
                for group in groups
            ]
        )
    elif groups:
        print_table(
            ("group", "state", "protocol"),
            [(group.id, group.state or "-", group.protocol_type or "-") for group in groups],
        )
    else:
        note("There are no groups" + (" like that." if pattern or states else "."))
