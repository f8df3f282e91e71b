"""FindCoordinator (10), versions 0–6: which broker looks after a group or a transactional id. On one node, this one.

Whoever asks first makes the topic that they live in. Several keys from version 4 on. Share groups have no coordinator
in this version, which is said with INVALID_REQUEST, for a retriable code would have clients ask for ever.
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
        # Once for all keys: they have the same coordinator.
        answer = await _find(request, message.key_type, services)
        found = {name: denied or answer for name, denied in found.items()}
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


async def _find(request: Request, key_type: int, services: Services) -> FindCoordinatorResponse:
    try:
        await _make_topic(key_type, services)
    except FlintError as error:
        return _failure(error)
    endpoint = services.endpoints.of(request.session)[0]
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
