"""`flintmq user delete`."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.user.stores import mechanism_option, open_store, store_options


@click.command(
    "delete",
    cls=Command,
    examples=(
        "flintmq user delete alice",
        "flintmq user delete alice --mechanism SCRAM-SHA-256",
        "flintmq user delete carol --users-file users.txt",
    ),
)
@click.argument("name")
@mechanism_option("Delete the credential of this mechanism only; may be given twice. [all]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@store_options
def command(
    name: str,
    mechanisms: tuple[str, ...],
    yes: bool,
    bootstrap: str,
    data_dir: str | None,
    users_file: str | None,
) -> None:
    """Delete a user's credentials.

    Connections that are open stay open until they must authenticate again (connections.max.reauth.ms); new ones are
    rejected.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete the credentials of {name}?", abort=True, err=True)
    deleted = open_store(bootstrap, data_dir, users_file).delete(name, mechanisms)
    click.echo(f"Deleted {name} ({', '.join(deleted)}).")
