"""The options of commands that talk to a broker, and the client they make."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from flintmq.client.addresses import parse_addresses
from flintmq.client.cluster import ClusterClient
from flintmq.client.security import (
    ClientSecurity,
    environment_properties,
    parse_security,
)
from flintmq.errors import ConfigurationError
from flintmq.settings.properties import parse_properties
from flintmq.settings.references import resolve_all

F = TypeVar("F", bound=Callable[..., Any])

BOOTSTRAP_VARIABLE = "FLINTMQ_BOOTSTRAP_SERVERS"
DEFAULT_BOOTSTRAP = "localhost:9092"
COMMAND_CONFIG_VARIABLE = "FLINTMQ_COMMAND_CONFIG"

_command_config: str | None = None
"""The file of this process's one command."""


def bootstrap_option(command: F) -> F:
    """Add the options of a command that uses `open_client`."""
    return address_option(
        click.option(
            "--command-config",
            metavar="FILE",
            envvar=COMMAND_CONFIG_VARIABLE,
            expose_value=False,
            callback=_remember_command_config,
            help="Client settings as Kafka's tools take them (security.protocol, sasl.mechanism, sasl.username, "
            f"sasl.password). [{COMMAND_CONFIG_VARIABLE}]",
        )(command)
    )


def _remember_command_config(_: click.Context, __: click.Parameter, path: str | None) -> None:
    global _command_config
    _command_config = path


def address_option(command: F) -> F:
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        default=DEFAULT_BOOTSTRAP,
        help=f"A broker, or several separated by commas. [{BOOTSTRAP_VARIABLE}, or {DEFAULT_BOOTSTRAP}]",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(command)


def open_client(bootstrap: str) -> ClusterClient:
    """Nothing is sent before the first question."""
    return ClusterClient(parse_addresses(bootstrap), security=client_security())


def client_security() -> ClientSecurity:
    """Return how to connect: by the file of `--command-config`, over the environment."""
    properties = environment_properties(os.environ)
    path = _command_config
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                properties.update(parse_properties(file.read()))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise ConfigurationError(f"{path} cannot be read: {reason}") from None
    return parse_security(resolve_all(properties))
