"""`flintmq user list`."""

from __future__ import annotations

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import json_option
from flintmq.cli.common.output import note, print_json, print_table
from flintmq.cli.user.stores import open_store, store_options


@click.command(
    "list",
    cls=Command,
    examples=("flintmq user list", "flintmq user list --json", "flintmq user list --data-dir ./flintmq-data"),
)
@store_options
@json_option
def command(bootstrap: str, data_dir: str | None, users_file: str | None, as_json: bool) -> None:
    """List the users and their mechanisms.

    Users in `sasl.jaas.config` are not listed: only the broker's settings hold them.
    """
    users = open_store(bootstrap, data_dir, users_file).users()
    if as_json:
        print_json([{"name": one.name, "iterations": one.iterations} for one in users])
    elif users:
        rows = [
            (one.name, mechanism, str(count)) for one in users for mechanism, count in one.iterations.items()
        ]
        print_table(("user", "mechanism", "iterations"), rows, numbers=("iterations",))
    else:
        note("There are no users.")
