"""`flintmq user add`."""

from __future__ import annotations

import sys

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.output import warn
from flintmq.cli.user.stores import (
    DEFAULT_ITERATIONS,
    DEFAULT_MECHANISM,
    mechanism_option,
    open_store,
    store_options,
)
from flintmq.errors import ConfigurationError


@click.command(
    "add",
    cls=Command,
    examples=(
        "flintmq user add admin --data-dir ./flintmq-data       # before the first start; asks for the password",
        "flintmq user add alice --password-file alice.password --command-config admin.properties",
        "flintmq user add bob --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512",
        "flintmq user add carol --users-file users.txt",
    ),
)
@click.argument("name")
@click.option(
    "--password", help="The password. Others can see it in the list of processes: better leave it out."
)
@click.option(
    "--password-file", metavar="FILE", help="A file whose first line is the password; - is standard input."
)
@mechanism_option(f"The mechanism that the password is for; may be given twice. [{DEFAULT_MECHANISM}]")
@click.option(
    "--iterations",
    type=int,
    help=f"How often the password is hashed: 4096 to 16384. [{DEFAULT_ITERATIONS}; 50000 in a users file]",
)
@store_options
def command(
    name: str,
    password: str | None,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int | None,
    bootstrap: str,
    data_dir: str | None,
    users_file: str | None,
) -> None:
    """Add a user, or set its password.

    The password is hashed here; the broker never sees it. Without --password and --password-file it is asked for. The
    first user of a new broker is added with --data-dir before the broker starts; later ones through the broker.
    """
    secret = read_password(name, password, password_file)
    open_store(bootstrap, data_dir, users_file).add(name, secret, mechanisms, iterations)
    click.echo(f"Set the password of {name}.")


def read_password(name: str, password: str | None, password_file: str | None) -> str:
    if password is not None and password_file is not None:
        raise ConfigurationError("give --password or --password-file, not both")
    if password is not None:
        warn("a password on the command line can be seen by others; use --password-file, or the prompt")
    elif password_file is not None:
        password = _first_line(password_file)
    else:
        password = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise ConfigurationError("the password is empty")
    assert isinstance(password, str)
    return password


def _first_line(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.readline().rstrip("\r\n")
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None
