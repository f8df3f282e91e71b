"""ListConfigResources (74), versions 0–1: what has settings (KIP-714, KIP-1142).

Version 0 knows subscriptions to client metrics only, of which there are none; from version 1 on types are
asked for, none meaning all: topics, brokers and their loggers, client metrics, groups. There are no settings of
groups. A type that the version does not know is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_cluster_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.metadata.config_changes import ResourceType
from flintmq.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Resource = ListConfigResourcesResponse.ConfigResource

_TYPES = {0: frozenset([ResourceType.CLIENT_METRICS]), 1: frozenset(ResourceType)}


def handle(
    request: Request, message: ListConfigResourcesRequest, services: Services
) -> ListConfigResourcesResponse:
    check_cluster_allowed(request, services, AclOperation.DESCRIBE_CONFIGS)
    known = _TYPES[request.version]
    wanted = set(message.resource_types) or known
    if not wanted <= known:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    node = str(services.node_id)
    names = {
        ResourceType.BROKER_LOGGER: [node],
        ResourceType.BROKER: [node],
        ResourceType.TOPIC: list(services.metadata.image.topics),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            Resource(resource_name=name, resource_type=kind)
            for kind, of_kind in names.items()
            if kind in wanted
            for name in of_kind
        ]
    )
