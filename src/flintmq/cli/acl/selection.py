"""ACLs selected by options, for `flintmq acl list` and `flintmq acl delete`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from flintmq.cli.acl.options import (
    NamedResource,
    operation_option,
    read_operations,
    read_principals,
    resource_options,
)
from flintmq.client.admin.acls import AclSelection
from flintmq.security.authorization.model import AclOperation, AclPattern, AclPermission, AclResource

F = TypeVar("F", bound=Callable[..., Any])


def selection_options(command: F) -> F:
    for option in reversed(
        (
            resource_options,
            click.option(
                "--resource-pattern-type",
                "pattern",
                type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
                default="any",
                help="any: ACLs of exactly that name; match: all that apply to a resource of that name, prefixes and "
                "* among them. [any]",
            ),
            click.option(
                "--principal", "principals", multiple=True, metavar="PRINCIPAL", help="Only of this one."
            ),
            click.option("--host", "hosts", multiple=True, metavar="IP", help="Only for this host."),
            operation_option,
            click.option(
                "--permission",
                type=click.Choice(["any", "allow", "deny"], case_sensitive=False),
                default="any",
                help="Only ACLs that allow, or that deny. [any]",
            ),
        )
    ):
        command = option(command)
    return command


def selections(
    resources: Sequence[NamedResource],
    pattern: str,
    principals: Sequence[str],
    hosts: Sequence[str],
    operations: Sequence[str],
    permission: str,
) -> list[AclSelection]:
    """Return a selection for each combination of what is given."""
    everyone: list[str | None] = [None]
    named: list[tuple[AclResource, str | None]] = [(one.kind, one.name) for one in resources]
    return [
        AclSelection(
            kind,
            name,
            AclPattern[pattern.upper()],
            principal,
            host,
            operation,
            AclPermission[permission.upper()],
        )
        for kind, name in named or [(AclResource.ANY, None)]
        for principal in read_principals("--principal", principals) or everyone
        for host in list(hosts) or everyone
        for operation in read_operations(operations) or [AclOperation.ANY]
    ]
