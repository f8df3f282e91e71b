"""DescribeAcls (29), versions 1–3: the ACLs that a filter selects.

A filter without a name selects every resource. The pattern type MATCH selects the ACLs that apply to the resource of
that name; ANY selects those of that name whatever their type (KIP-290).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.handlers.security.acl_messages import acl_store, read_filter
from flintmq.broker.request import Request
from flintmq.protocol.messages import DescribeAclsRequest, DescribeAclsResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Resource = DescribeAclsResponse.DescribeAclsResource
Description = DescribeAclsResponse.AclDescription


def handle(request: Request, message: DescribeAclsRequest, services: Services) -> DescribeAclsResponse:
    check_cluster_allowed(request, services, AclOperation.DESCRIBE)
    resources: dict[tuple[int, str, int], Resource] = {}
    for acl in acl_store(services).acls(read_filter(message)):
        pattern = acl.resource, acl.name, acl.pattern
        described = resources.get(pattern)
        if described is None:
            described = resources[pattern] = Resource(
                resource_type=acl.resource, resource_name=acl.name, pattern_type=acl.pattern
            )
        described.acls.append(
            Description(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))
