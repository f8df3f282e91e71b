"""How commands end: exit codes, and the one place where errors become messages for people."""

from __future__ import annotations

from enum import IntEnum
from typing import IO, Any

import click

from flintmq.errors import ConfigurationError, FlintError


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NO_BROKER = 3


LOCAL_CODES = {
    Exit.OK: "done",
    Exit.FAILED: "the operation failed",
    Exit.USAGE: "wrong usage or configuration",
}
REMOTE_CODES = {**LOCAL_CODES, Exit.NO_BROKER: "no broker answers, or it rejects the connection"}
"""Of commands that talk to a broker."""


_AUTHENTICATION_HINT = "Settings for TLS and SASL come from --command-config FILE and from the environment."


class CommandFailure(click.ClickException):
    """Ends the command with a message and without a traceback."""

    exit_code = int(Exit.FAILED)

    def show(self, file: IO[Any] | None = None) -> None:
        label = click.style("error:", fg="red", bold=True)
        click.echo(f"{label} {self.format_message()}", file=file, err=file is None)


class UsageFailure(CommandFailure):
    exit_code = int(Exit.USAGE)


class NoBrokerFailure(CommandFailure):
    exit_code = int(Exit.NO_BROKER)


def failure_of(error: FlintError) -> CommandFailure:
    """What an error means to whoever typed the command."""
    from flintmq.client.errors import AuthenticationFailed, NoBrokerReached

    if isinstance(error, ConfigurationError):
        return UsageFailure(str(error))
    if isinstance(error, NoBrokerReached):
        hint = "Start one with `flintmq serve`, or say where it is with --bootstrap-server HOST:PORT."
        return NoBrokerFailure(f"{error}\n{hint}")
    if isinstance(error, AuthenticationFailed):
        return NoBrokerFailure(f"{error}\n{_AUTHENTICATION_HINT}")
    return CommandFailure(str(error))
