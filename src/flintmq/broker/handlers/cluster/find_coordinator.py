"""FindCoordinator (10), versions 0–6: which broker coordinates a group or a transactional id.

It is the leader of their partition of the internal topic, which the first request creates. Several keys from version
4 on. Share groups have no coordinator in this version: the error is INVALID_REQUEST, because clients would repeat a
retriable one for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import denial, is_allowed
from flintmq.broker.request import Request
from flintmq.broker.responses import reason_of
from flintmq.errors import ErrorCode, FlintError, RequestError, error_code_of
from flintmq.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from flintmq.security.authorization.model import AclOperation, AclResource

if TYPE_CHECKING:
    from flintmq.broker.services import Services

_GROUP, _TRANSACTION = 0, 1
_FIRST_SEVERAL = 4
_RESOURCES = {_GROUP: AclResource.GROUP, _TRANSACTION: AclResource.TRANSACTIONAL_ID}

Coordinator = FindCoordinatorResponse.Coordinator


async def handle(
    request: Request, message: FindCoordinatorRequest, services: Services
) -> FindCoordinatorResponse:
    several = request.version >= _FIRST_SEVERAL
    names = message.coordinator_keys if several else [message.key]
    found = {name: _denied(request, message.key_type, name, services) for name in names}
    if not all(found.values()):
        failure = await _make_topic_if_missing(message.key_type, services)
        found = {
            name: denied or failure or _find(request, message.key_type, name, services)
            for name, denied in found.items()
        }
    if several:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=name,
                    node_id=one.node_id,
                    host=one.host,
                    port=one.port,
                    error_code=one.error_code,
                    error_message=one.error_message if one.error_code else "",
                )
                for name in names
                if (one := found[name]) is not None
            ]
        )
    return found[message.key] or FindCoordinatorResponse()


def _denied(request: Request, key_type: int, name: str, services: Services) -> FindCoordinatorResponse | None:
    """Return the response for a key that the client may not describe; None for one that it may."""
    resource = _RESOURCES.get(key_type)
    if resource is None or is_allowed(request, services, AclOperation.DESCRIBE, resource, name):
        return None
    return _failure(denial(request, AclOperation.DESCRIBE, resource, name))


async def _make_topic_if_missing(key_type: int, services: Services) -> FindCoordinatorResponse | None:
    """Return the response for all keys if the internal topic is not there and cannot be created."""
    try:
        await _make_topic(key_type, services)
    except FlintError as error:
        return _failure(error)
    return None


def _find(request: Request, key_type: int, name: str, services: Services) -> FindCoordinatorResponse:
    coordinator = services.transactions if key_type == _TRANSACTION else services.groups
    endpoint = services.endpoints.of_node(coordinator.coordinator_of(name), request.session)
    if endpoint is None:
        return _failure(
            RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker coordinates it at the moment.")
        )
    return FindCoordinatorResponse(
        # As Kafka has it in the versions with one key; with several it is empty.
        error_message="NONE",
        node_id=endpoint.node_id,
        host=endpoint.host,
        port=endpoint.port,
    )


def _failure(error: FlintError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error_code_of(error), error_message=reason_of(error), node_id=-1, host="", port=-1
    )


async def _make_topic(key_type: int, services: Services) -> None:
    """Of the coordinator that is asked for. RequestError if there is none of that kind."""
    if key_type == _TRANSACTION:
        await services.transactions.make_topic()
    elif key_type != _GROUP:
        raise RequestError(ErrorCode.INVALID_REQUEST, "Only groups and transactions have a coordinator.")
    elif services.configs.broker.flint_consumer_groups_enable:
        await services.groups.make_topic()
    else:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "Groups are switched off (flint.consumer.groups.enable)."
        )
