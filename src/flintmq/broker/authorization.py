"""Authorization of requests: the few questions that handlers ask before they do something.

Without `authorizer.class.name` there is no `services.authorizer`, and nothing is looked up. Which right an API needs
is in `broker/required_rights.py`. A denial is counted where a client named the resource, and not where a list is
only cut to what the client may see.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from flintmq.broker.request import ClientSession, Request
from flintmq.errors import RequestError
from flintmq.metadata.image import ClusterImage
from flintmq.security.authorization.acl_store import AclStore
from flintmq.security.authorization.authorizer import Authorizer, SessionRights
from flintmq.security.authorization.model import (
    AUTHORIZATION_ERRORS,
    CLUSTER_NAME,
    EVERY_OPERATION,
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclResource,
)

if TYPE_CHECKING:
    from flintmq.broker.services import Services

# Looked up once: a member of an enum costs a call each time.
_DESCRIBE: Final = AclOperation.DESCRIBE
_TOPIC: Final = AclResource.TOPIC
_CLUSTER: Final = AclResource.CLUSTER

NOT_ASKED: Final = -(2**31)
"""In a response: the client has not asked for its authorized operations."""


class Authorization:
    """Decides for sessions, which keep the decisions, and counts the denials."""

    __slots__ = ("_authorizer", "_denials", "_image", "acls")

    def __init__(
        self, authorizer: Authorizer, image: ClusterImage, denials: Counter[str], acls: AclStore | None = None
    ) -> None:
        self._authorizer = authorizer
        self._image = image
        self._denials = denials
        self.acls = acls

    def rights(self, session: ClientSession) -> SessionRights:
        """Return what the session knows in this generation of the authorizer."""
        rights = session.rights
        if rights is None or rights.principal != session.principal:
            rights = session.rights = SessionRights(session.principal, session.peer_host)
        rights.refresh(self._authorizer.generation)
        return rights

    def operations(self, session: ClientSession, resource: AclResource, name: str) -> int:
        """Return the operations that are allowed, as bits."""
        return self.rights(session).operations(self._authorizer, resource, name)

    def allows(
        self, session: ClientSession, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Decide about a resource that the client named."""
        if self.operations(session, resource, name) >> operation & 1:
            return True
        self.denied(operation)
        return False

    def allows_somewhere(
        self, session: ClientSession, operation: AclOperation, resource: AclResource
    ) -> bool:
        rights = self.rights(session)
        return self._authorizer.allows_somewhere(rights.principal, rights.host, resource, operation)

    def topic_operations(self, rights: SessionRights, topic: str | bytes) -> int:
        """Return the operations on a topic given by name or id. An unknown id protects nothing."""
        found = rights.topics.get(topic)
        if found is not None:
            return found
        if isinstance(topic, str):
            name = topic
        else:
            known = self._image.topics_by_id.get(topic)
            if known is None:
                return EVERY_OPERATION
            name = known.name
        operations = rights.operations(self._authorizer, _TOPIC, name)
        rights.remember_topic(topic, operations)
        return operations

    def denied(self, operation: AclOperation) -> None:
        """Count a denial."""
        self._denials[operation.name] += 1


def is_allowed(
    request: Request, services: Services, operation: AclOperation, resource: AclResource, name: str
) -> bool:
    """Decide about a resource that the client named."""
    authorizer = services.authorizer
    return authorizer is None or authorizer.allows(request.session, operation, resource, name)


def is_cluster_allowed(
    request: Request, services: Services, operation: AclOperation, *, counted: bool = True
) -> bool:
    """Decide about the cluster. Not `counted` where another right does as well."""
    authorizer = services.authorizer
    if authorizer is None:
        return True
    if not counted:
        return bool(authorizer.operations(request.session, _CLUSTER, CLUSTER_NAME) >> operation & 1)
    return authorizer.allows(request.session, operation, _CLUSTER, CLUSTER_NAME)


def is_visible(request: Request, services: Services, resource: AclResource, name: str) -> bool:
    """Decide whether a list that the client asked for may hold the resource."""
    authorizer = services.authorizer
    return authorizer is None or bool(authorizer.operations(request.session, resource, name) >> _DESCRIBE & 1)


def check_allowed(
    request: Request, services: Services, operation: AclOperation, resource: AclResource, name: str
) -> None:
    """Raise RequestError with the error code of the resource's type if the operation is not allowed."""
    if not is_allowed(request, services, operation, resource, name):
        raise denial(request, operation, resource, name)


def check_cluster_allowed(request: Request, services: Services, operation: AclOperation) -> None:
    check_allowed(request, services, operation, _CLUSTER, CLUSTER_NAME)


def denial(request: Request, operation: AclOperation, resource: AclResource, name: str) -> RequestError:
    kind = resource.name.lower().replace("_", " ")
    what = "the cluster" if resource is _CLUSTER else f"{kind} {name}"
    return RequestError(
        AUTHORIZATION_ERRORS[resource],
        f"{request.session.principal} needs an ACL that allows {operation.name} on {what}.",
    )


def authorized_operations(request: Request, services: Services, resource: AclResource, name: str) -> int:
    """Return the bit field of KIP-430."""
    authorizer = services.authorizer
    supported = SUPPORTED_OPERATIONS[resource]
    return (
        supported
        if authorizer is None
        else supported & authorizer.operations(request.session, resource, name)
    )


def cluster_authorized_operations(request: Request, services: Services) -> int:
    """Return the bit field of the cluster; 0 for a client that may not describe it."""
    if not is_cluster_allowed(request, services, _DESCRIBE):
        return 0
    return authorized_operations(request, services, _CLUSTER, CLUSTER_NAME)
