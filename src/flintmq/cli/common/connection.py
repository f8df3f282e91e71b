"""The options of commands that talk to a broker, and the client they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from flintmq.client.addresses import parse_addresses
from flintmq.client.cluster import ClusterClient

F = TypeVar("F", bound=Callable[..., Any])

BOOTSTRAP_VARIABLE = "FLINTMQ_BOOTSTRAP_SERVERS"
DEFAULT_BOOTSTRAP = "localhost:9092"


def bootstrap_option(command: F) -> F:
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
    return ClusterClient(parse_addresses(bootstrap))
