"""ACLs and filters as the protocol carries them, with Kafka's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from flintmq.security.authorization.acl_store import AclStore
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

if TYPE_CHECKING:
    from flintmq.broker.services import Services

ACLS_MAX = 10_000
"""ACLs that one request creates or deletes, as Kafka has it."""


def acl_store(services: Services) -> AclStore:
    """Return the store of ACLs. Raise RequestError if the broker has none."""
    if services.authorizer is None:
        raise RequestError(
            ErrorCode.SECURITY_DISABLED, "No authorizer is configured on the broker (authorizer.class.name)."
        )
    if services.authorizer.acls is None:
        raise RequestError(ErrorCode.SECURITY_DISABLED, "The broker's authorizer has no ACLs.")
    return services.authorizer.acls


def read_filter(message: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    try:
        return AclFilter(
            AclResource(message.resource_type_filter),
            message.resource_name_filter,
            AclPattern(message.pattern_type_filter),
            message.principal_filter,
            message.host_filter,
            AclOperation(message.operation),
            AclPermission(message.permission_type),
        )
    except ValueError as error:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"The filter has an unknown element: {error}."
        ) from None


def read_creation(message: CreateAclsRequest.AclCreation) -> AclBinding:
    try:
        acl = AclBinding(
            AclResource(message.resource_type),
            message.resource_name,
            AclPattern(message.resource_pattern_type),
            message.principal,
            message.host,
            AclOperation(message.operation),
            AclPermission(message.permission_type),
        )
    except ValueError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"The ACL has an unknown element: {error}.") from None
    if fault := _fault(acl):
        raise RequestError(ErrorCode.INVALID_REQUEST, fault)
    return acl


def _fault(acl: AclBinding) -> str | None:
    if acl.resource is AclResource.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}."
    if not acl.name:
        return "The resource name is empty."
    if acl.resource is AclResource.ANY:
        return "An ACL is about one type of resource, not ANY."
    if acl.pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        return f"The pattern type is LITERAL or PREFIXED, not {acl.pattern.name}."
    if acl.operation is AclOperation.ANY:
        return "An ACL is about one operation or ALL, not ANY."
    if acl.permission is AclPermission.ANY:
        return "The permission type is ALLOW or DENY, not ANY."
    if ":" not in acl.principal:
        return (
            f"The principal {acl.principal!r} has no colon between its type and its name: write User:alice."
        )
    return None
