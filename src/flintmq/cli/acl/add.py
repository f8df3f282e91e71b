"""`flintmq acl add`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from flintmq.cli.acl.options import (
    COLUMNS,
    NamedResource,
    json_of,
    operation_option,
    read_operations,
    read_principals,
    read_resources,
    resource_options,
    row_of,
)
from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import bootstrap_option, json_option, open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import print_json, print_table
from flintmq.client.admin.acls import AclEntry, create_acls
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.authorization.words import operation_word

_O = AclOperation
_PRODUCER = {
    AclResource.TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE),
    AclResource.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}
_CONSUMER = {AclResource.TOPIC: (_O.READ, _O.DESCRIBE), AclResource.GROUP: (_O.READ,)}


@click.command(
    "add",
    cls=Command,
    examples=(
        "flintmq acl add --allow-principal User:alice --operation Read --operation Write --topic orders",
        "flintmq acl add --allow-principal User:alice --producer --topic orders --transactional-id orders-1",
        "flintmq acl add --allow-principal User:bob --consumer --topic orders --group billing",
        "flintmq acl add --allow-principal User:ops --operation Describe --cluster",
        "flintmq acl add --deny-principal User:bob --deny-host 10.0.0.9 --operation Read --topic orders",
        "flintmq acl add --allow-principal User:etl --operation All --topic etl. --resource-pattern-type prefixed",
    ),
)
@click.option(
    "--allow-principal", "allowed", multiple=True, metavar="PRINCIPAL", help="Allow this principal."
)
@click.option("--deny-principal", "denied", multiple=True, metavar="PRINCIPAL", help="Deny this principal.")
@click.option(
    "--allow-host", "allowed_hosts", multiple=True, metavar="IP", help="Only from this address. [any]"
)
@click.option(
    "--deny-host", "denied_hosts", multiple=True, metavar="IP", help="Only from this address. [any]"
)
@operation_option
@resource_options
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["literal", "prefixed"], case_sensitive=False),
    default="literal",
    help="Whether the names are whole names or the beginnings of names. [literal]",
)
@click.option("--producer", is_flag=True, help="What a producer needs: Write, Describe, Create on --topic.")
@click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster too.")
@click.option(
    "--consumer", is_flag=True, help="What a consumer needs: Read, Describe on --topic, Read on --group."
)
@bootstrap_option
@json_option
def command(
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    denied_hosts: tuple[str, ...],
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    tokens: tuple[str, ...],
    users: tuple[str, ...],
    pattern: str,
    producer: bool,
    idempotent: bool,
    consumer: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Allow or deny a principal operations on topics, groups and more.

    Principals are written User:alice; User:* is everyone. Every principal gets every operation on every resource
    that is named. ACLs are in force at once, on connections that are open too; one that exists already stays.
    """
    resources = read_resources(topics, groups, transactional_ids, cluster, tokens, users)
    if producer or consumer:
        rules = _for_clients(resources, operations, denied, producer, idempotent, consumer)
    else:
        rules = _named(resources, read_operations(operations) or [AclOperation.ALL])
    clients = [
        (principal, host or "*", AclPermission.ALLOW)
        for principal in read_principals("--allow-principal", allowed)
        for host in allowed_hosts or ("*",)
    ] + [
        (principal, host or "*", AclPermission.DENY)
        for principal in read_principals("--deny-principal", denied)
        for host in denied_hosts or ("*",)
    ]
    if not clients:
        raise UsageFailure("Name a principal: --allow-principal User:alice, or --deny-principal User:alice.")
    acls = [
        AclEntry(
            resource.kind, resource.name, _pattern(resource, pattern), principal, host, operation, permission
        )
        for resource, operation in rules
        for principal, host, permission in clients
    ]
    acls = list(dict.fromkeys(acls))
    with open_client(bootstrap) as client:
        create_acls(client, acls)
    if as_json:
        print_json([json_of(acl) for acl in acls])
    else:
        print_table(COLUMNS, [row_of(acl) for acl in acls])


def _pattern(resource: NamedResource, pattern: str) -> AclPattern:
    """The cluster has one name, whatever the pattern type of the others is."""
    return AclPattern.LITERAL if resource.kind is AclResource.CLUSTER else AclPattern[pattern.upper()]


def _named(
    resources: Sequence[NamedResource], operations: Sequence[AclOperation]
) -> list[tuple[NamedResource, AclOperation]]:
    if not resources:
        raise UsageFailure("Name a resource: --topic, --group, --transactional-id, --cluster.")
    for resource in resources:
        for operation in operations:
            if operation is not AclOperation.ALL and not SUPPORTED_OPERATIONS[resource.kind] >> operation & 1:
                kind = resource.kind.name.lower().replace("_", " ")
                known = [
                    operation_word(one)
                    for one in AclOperation
                    if SUPPORTED_OPERATIONS[resource.kind] >> one & 1
                ]
                raise UsageFailure(
                    f"{operation_word(operation)} means nothing for a {kind}; use All, {', '.join(known)}."
                )
    return [(resource, operation) for resource in resources for operation in operations]


def _for_clients(
    resources: Sequence[NamedResource],
    operations: Sequence[str],
    denied: Sequence[str],
    producer: bool,
    idempotent: bool,
    consumer: bool,
) -> list[tuple[NamedResource, AclOperation]]:
    kinds = {resource.kind for resource in resources}
    if operations or denied:
        raise UsageFailure(
            "--producer and --consumer choose the operations: leave out --operation and --deny-*."
        )
    if AclResource.TOPIC not in kinds:
        raise UsageFailure("--producer and --consumer need a --topic.")
    if consumer and AclResource.GROUP not in kinds:
        raise UsageFailure("--consumer needs a --group.")
    if not consumer and AclResource.GROUP in kinds:
        raise UsageFailure("A producer needs no --group; add --consumer for a client that also reads.")
    if not producer and AclResource.TRANSACTIONAL_ID in kinds:
        raise UsageFailure(
            "A consumer needs no --transactional-id; add --producer for a client that also writes."
        )
    rules = [
        (resource, operation)
        for needed, is_wanted in ((_PRODUCER, producer), (_CONSUMER, consumer))
        if is_wanted
        for resource in resources
        for operation in needed.get(resource.kind, ())
    ]
    if idempotent:
        rules.append((NamedResource(AclResource.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE))
    return rules
