"""The options that `flintmq acl` commands share, and ACLs as people read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.client.admin.acls import AclEntry
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.authorization.words import operation_named, operation_word
from flintmq.security.principal import parse_principal

F = TypeVar("F", bound=Callable[..., Any])


class NamedResource(NamedTuple):
    kind: AclResource
    name: str


def resource_options(command: F) -> F:
    """Add --topic, --group, --transactional-id, --cluster and --user-principal."""
    for option in reversed(
        (
            click.option(
                "--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is every topic."
            ),
            click.option(
                "--group", "groups", multiple=True, metavar="NAME", help="A group; * is every group."
            ),
            click.option(
                "--transactional-id",
                "transactional_ids",
                multiple=True,
                metavar="ID",
                help="A transactional id; * is every one.",
            ),
            click.option("--cluster", is_flag=True, help="The cluster itself."),
            click.option(
                "--delegation-token", "tokens", multiple=True, metavar="ID", help="A delegation token."
            ),
            click.option(
                "--user-principal",
                "users",
                multiple=True,
                metavar="PRINCIPAL",
                help="A user whose tokens are created or described.",
            ),
        )
    ):
        command = option(command)
    return command


def operation_option(command: F) -> F:
    return click.option(
        "--operation",
        "operations",
        multiple=True,
        metavar="OPERATION",
        help="An operation: "
        + ", ".join(operation_word(one) for one in AclOperation if one is not AclOperation.ANY)
        + ". [All]",
    )(command)


def read_resources(
    topics: Sequence[str],
    groups: Sequence[str],
    transactional_ids: Sequence[str],
    cluster: bool,
    tokens: Sequence[str],
    users: Sequence[str],
) -> list[NamedResource]:
    return [
        *(NamedResource(AclResource.TOPIC, name) for name in topics),
        *(NamedResource(AclResource.GROUP, name) for name in groups),
        *(NamedResource(AclResource.TRANSACTIONAL_ID, name) for name in transactional_ids),
        *([NamedResource(AclResource.CLUSTER, CLUSTER_NAME)] if cluster else []),
        *(NamedResource(AclResource.DELEGATION_TOKEN, name) for name in tokens),
        *(NamedResource(AclResource.USER, name) for name in users),
    ]


def read_operations(texts: Sequence[str]) -> list[AclOperation]:
    try:
        return [operation_named(text) for text in texts]
    except ValueError as error:
        raise UsageFailure(f"--operation: {error}.") from None


def read_principals(option: str, texts: Sequence[str]) -> list[str]:
    try:
        return [str(parse_principal(text)) for text in texts]
    except ValueError as error:
        raise UsageFailure(f"{option}: {error}.") from None


def row_of(acl: AclEntry) -> tuple[str, str, str, str, str, str, str]:
    """Return permission, principal, operation, host, resource, name and pattern in words."""
    return (
        AclPermission(acl.permission).name.capitalize(),
        acl.principal,
        operation_word(AclOperation(acl.operation)),
        acl.host,
        AclResource(acl.resource_type).name.lower().replace("_", " "),
        acl.resource_name,
        AclPattern(acl.pattern_type).name.lower(),
    )


COLUMNS = ("permission", "principal", "operation", "host", "resource", "name", "pattern")


def json_of(acl: AclEntry) -> dict[str, str]:
    return dict(zip(COLUMNS, row_of(acl), strict=True))
