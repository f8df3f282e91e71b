"""The right that configs need: that of the topic or group, or of the cluster for brokers and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import check_allowed
from flintmq.broker.request import Request
from flintmq.metadata.config_changes import ResourceType
from flintmq.security.authorization.model import CLUSTER_NAME, AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_NAMED = {ResourceType.TOPIC: AclResource.TOPIC, ResourceType.GROUP: AclResource.GROUP}


def check_config_access(
    request: Request, operation: AclOperation, resource_type: int, name: str, services: Services
) -> None:
    """Raise RequestError if the client may not do this to the configs of a resource."""
    for kind, resource in _NAMED.items():
        if resource_type == kind:
            check_allowed(request, services, operation, resource, name)
            return
    check_allowed(request, services, operation, AclResource.CLUSTER, CLUSTER_NAME)
