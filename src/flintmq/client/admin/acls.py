"""ACLs over the wire: created, listed, deleted. The numbers are those of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import check
from flintmq.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_ANY = 1


class AclEntry(NamedTuple):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclSelection(NamedTuple):
    """Selects ACLs; what is left out selects everything."""

    resource_type: int = _ANY
    resource_name: str | None = None
    pattern_type: int = _ANY
    principal: str | None = None
    host: str | None = None
    operation: int = _ANY
    permission: int = _ANY


def create_acls(client: ClusterClient, acls: Sequence[AclEntry]) -> None:
    """Create ACLs; those that exist stay. RequestError for the first that the broker rejects."""
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )

    def judge(response: CreateAclsResponse) -> None:
        for one in response.results:
            check(one.error_code, one.error_message)

    client.call_controller(request, CreateAclsResponse, judge)


def list_acls(client: ClusterClient, selection: AclSelection) -> list[AclEntry]:
    request = DescribeAclsRequest(
        resource_type_filter=selection.resource_type,
        resource_name_filter=selection.resource_name,
        pattern_type_filter=selection.pattern_type,
        principal_filter=selection.principal,
        host_filter=selection.host,
        operation=selection.operation,
        permission_type=selection.permission,
    )

    def judge(response: DescribeAclsResponse) -> None:
        check(response.error_code, response.error_message)

    response = client.call(request, DescribeAclsResponse, judge)
    return sorted(
        AclEntry(
            found.resource_type,
            found.resource_name,
            found.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for found in response.resources
        for one in found.acls
    )


def delete_acls(client: ClusterClient, selections: Sequence[AclSelection]) -> list[AclEntry]:
    """Delete what is selected, and return it."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=one.resource_type,
                resource_name_filter=one.resource_name,
                pattern_type_filter=one.pattern_type,
                principal_filter=one.principal,
                host_filter=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in selections
        ]
    )

    def judge(response: DeleteAclsResponse) -> None:
        for one in response.filter_results:
            check(one.error_code, one.error_message)

    response = client.call_controller(request, DeleteAclsResponse, judge)
    deleted = {
        AclEntry(
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for one in response.filter_results
        for acl in one.matching_acls
    }
    return sorted(deleted)
