"""Options that `flintmq quota` commands share: entities, quotas, and how both are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.client.admin.quotas import EntityQuotas
from flintmq.errors import ConfigurationError
from flintmq.settings.kinds import Unit, plain_number

F = TypeVar("F", bound=Callable[..., Any])

USER, CLIENT_ID, IP = "user", "client-id", "ip"
DEFAULT = "<default>"
COLUMNS = (USER, CLIENT_ID, IP, "quota", "limit")

QUOTAS = {
    "producer_byte_rate": "Bytes per second that may be written, such as 1048576 or 1mb.",
    "consumer_byte_rate": "Bytes per second that may be read.",
    "request_percentage": "Share of the broker's event loop, in percent; 100 is all of it.",
    "controller_mutation_rate": "Partitions per second that may be created and deleted.",
    "connection_creation_rate": "Connections per second that may be created; for --ip and --default-ip only.",
}


def entity_options(command: F) -> F:
    """Add the options that name a user, a client id, both, or an address."""
    options = (
        click.option("--user", metavar="NAME", help="The user, as it is authenticated; without `User:`."),
        click.option("--default-user", is_flag=True, help="All users that have no quota of their own."),
        click.option("--client-id", metavar="ID", help="The client.id that clients give themselves."),
        click.option(
            "--default-client-id", is_flag=True, help="All client ids without a quota of their own."
        ),
        click.option("--ip", metavar="ADDRESS", help="The address that clients connect from."),
        click.option("--default-ip", is_flag=True, help="All addresses without a quota of their own."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_entity(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> dict[str, str | None]:
    """Return the names by type; None is the default."""
    entity: dict[str, str | None] = {}
    named = ((USER, user, default_user), (CLIENT_ID, client_id, default_client_id), (IP, ip, default_ip))
    for kind, name, is_default in named:
        if name is not None and is_default:
            raise UsageFailure(f"Give --{kind} or --default-{kind}, not both.")
        if name is not None or is_default:
            entity[kind] = name
    if IP in entity and len(entity) > 1:
        raise UsageFailure("A quota of an address is for all users and client ids: leave these out.")
    return entity


def read_limit(quota: str, text: str) -> float:
    """Read a number; sizes may have a unit."""
    unit = Unit.BYTES if quota.endswith("_byte_rate") else Unit.NONE
    try:
        return float(plain_number(unit, text))
    except (ValueError, ConfigurationError):
        example = "1048576 or 1mb" if unit is Unit.BYTES else "50"
        raise UsageFailure(f"{text!r} is not a number; write {example}.") from None


def rows_of(found: EntityQuotas) -> list[tuple[str, ...]]:
    names = [_shown(found.entity, kind) for kind in (USER, CLIENT_ID, IP)]
    return [(*names, quota, f"{limit:.15g}") for quota, limit in sorted(found.quotas.items())]


def _shown(entity: Mapping[str, str | None], kind: str) -> str:
    return (entity[kind] or DEFAULT) if kind in entity else ""


def json_of(found: EntityQuotas) -> dict[str, object]:
    return {"entity": found.entity, "quotas": found.quotas}
