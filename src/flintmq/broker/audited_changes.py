"""Administrative changes in the audit log: for each API that changes something, what a request asks for.

With an audit log the handlers of these APIs are wrapped when the dispatcher is created; without one nothing is.
Described are names: values of settings, salts, passwords and tokens are never taken from a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from flintmq.broker.apis import Api, Handler
from flintmq.broker.request import Request
from flintmq.broker.services import Services
from flintmq.errors import ErrorCode, error_code_of
from flintmq.metadata.config_changes import ResourceType
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.scram import ScramMechanism
from flintmq.security.audit import AuditLog
from flintmq.security.authorization.model import AclOperation, AclPattern, AclPermission, AclResource
from flintmq.settings.alter import AlterOperation

CHANGES_MAX: Final = 1000
"""Changes of one request that are described."""

_DENIALS: Final = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))
"""Denials are events of their own."""


class DescribedChange(NamedTuple):
    resource_type: str
    resource: str
    detail: str = ""
    key: object = None
    """What the error codes of the response are found by; None stands for the resource."""


Describe = Callable[[Any], Iterable[DescribedChange]]
ErrorCodes = Callable[[Any], Mapping[Any, int]]


def audited(api: Api, audit: AuditLog) -> Api:
    """Return the API with a handler that logs its changes; the same API if it changes nothing of that kind."""
    described = _APIS.get(api.name)
    if described is None or api.handler is None or not audit.logs_changes:
        return api
    return replace(api, handler=_wrapped(api.handler, *described, audit))


def _wrapped(handler: Handler, describe: Describe, codes: ErrorCodes, audit: AuditLog) -> Handler:
    def handle(request: Request, message: Any, services: Services) -> Message | Awaitable[Message] | None:
        # ORDER: described before the handler runs, for a message may hold views of a frame that is gone later.
        changes = list(_bounded(describe(message)))
        try:
            outcome = handler(request, message, services)
        except Exception as error:
            _log(request, changes, _Failed(error_code_of(error)), audit)
            raise
        if outcome is None:
            _log(request, changes, {}, audit)
            return None
        if isinstance(outcome, Message):
            _log(request, changes, codes(outcome), audit)
            return outcome
        return _finish(request, outcome, changes)

    async def _finish(
        request: Request, outcome: Awaitable[Message], changes: list[DescribedChange]
    ) -> Message:
        try:
            response = await outcome
        except Exception as error:
            _log(request, changes, _Failed(error_code_of(error)), audit)
            raise
        _log(request, changes, codes(response), audit)
        return response

    return handle


def _bounded(changes: Iterable[DescribedChange]) -> Iterator[DescribedChange]:
    for count, change in enumerate(changes):
        if count == CHANGES_MAX:
            yield DescribedChange("REQUEST", "", f"changes after the first {CHANGES_MAX} are not listed")
            return
        yield change


class _Failed(dict[Any, int]):
    """The error code of a whole request."""

    def __init__(self, code: int) -> None:
        self._code = code

    def get(self, key: Any, default: Any = None) -> Any:
        return self._code


def _log(request: Request, changes: list[DescribedChange], codes: Mapping[Any, int], audit: AuditLog) -> None:
    for change in changes:
        code = codes.get(change.resource if change.key is None else change.key, ErrorCode.NONE)
        if code in _DENIALS:
            continue
        audit.change(
            request.session,
            api=request.api.name,
            resource_type=change.resource_type,
            resource=change.resource,
            detail=change.detail,
            error=None if not code else _name(code),
        )


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


# ---- what each API changes


def _created_topics(message: Any) -> Iterator[DescribedChange]:
    """Topics, or partitions of topics."""
    if not message.validate_only:
        for one in message.topics:
            yield DescribedChange("TOPIC", one.name)


def _deleted_topics(message: Any) -> Iterator[DescribedChange]:
    names = [one.name or bytes(one.topic_id).hex() for one in message.topics] or message.topic_names
    return (DescribedChange("TOPIC", name) for name in names)


def _deleted_records(message: Any) -> Iterator[DescribedChange]:
    for topic in message.topics:
        for one in topic.partitions:
            yield DescribedChange(
                "TOPIC",
                topic.name,
                f"records of partition {one.partition_index} below {one.offset}",
                (topic.name, one.partition_index),
            )


def _member(kind: type[Any], value: int) -> str:
    return str(kind(value).name) if value in kind._value2member_map_ else str(value)


def _acl(one: Any) -> str:
    permission, operation = _member(AclPermission, one.permission_type), _member(AclOperation, one.operation)
    pattern = _member(
        AclPattern, getattr(one, "resource_pattern_type", 0) or getattr(one, "pattern_type_filter", 0)
    )
    principal = getattr(one, "principal", None) or getattr(one, "principal_filter", None) or "any principal"
    host = getattr(one, "host", None) or getattr(one, "host_filter", None) or "any host"
    return f"{permission} {operation} to {principal} from {host}, pattern {pattern}"


def _created_acls(message: Any) -> Iterator[DescribedChange]:
    for at, one in enumerate(message.creations):
        yield DescribedChange(_member(AclResource, one.resource_type), one.resource_name, _acl(one), at)


def _deleted_acls(message: Any) -> Iterator[DescribedChange]:
    for at, one in enumerate(message.filters):
        kind = _member(AclResource, one.resource_type_filter)
        yield DescribedChange(kind, one.resource_name_filter or "any", _acl(one), at)


def _replaced_configs(message: Any) -> Iterator[DescribedChange]:
    if not message.validate_only:
        for one in message.resources:
            names = "all settings replaced by: " + ", ".join(config.name for config in one.configs)
            yield _altered_resource(one, names)


def _altered_configs(message: Any) -> Iterator[DescribedChange]:
    if not message.validate_only:
        for one in message.resources:
            changes = ", ".join(
                f"{_member(AlterOperation, config.config_operation)} {config.name}" for config in one.configs
            )
            yield _altered_resource(one, changes)


def _altered_resource(one: Any, detail: str) -> DescribedChange:
    kind = _member(ResourceType, one.resource_type)
    return DescribedChange(kind, one.resource_name, detail, (one.resource_type, one.resource_name))


def _scram_users(message: Any) -> Iterator[DescribedChange]:
    changed: dict[str, list[str]] = {}
    for verb, credentials in (("delete", message.deletions), ("set", message.upsertions)):
        for one in credentials:
            mechanism = next((each.value for each in ScramMechanism if each.type == one.mechanism), "unknown")
            changed.setdefault(one.name, []).append(f"{verb} {mechanism}")
    return (DescribedChange("USER", name, ", ".join(verbs)) for name, verbs in changed.items())


def _quotas(message: Any) -> Iterator[DescribedChange]:
    if not message.validate_only:
        for at, entry in enumerate(message.entries):
            entity = ", ".join(f"{one.entity_type} {one.entity_name or '(default)'}" for one in entry.entity)
            changes = ", ".join(
                f"remove {one.key}" if one.remove else f"set {one.key}={one.value:g}" for one in entry.ops
            )
            yield DescribedChange("QUOTA", entity, changes, at)


def _groups(message: Any) -> Iterator[DescribedChange]:
    return (DescribedChange("GROUP", name) for name in message.groups_names)


def _offsets(message: Any) -> Iterator[DescribedChange]:
    yield DescribedChange(
        "GROUP", message.group_id, "offsets of " + ", ".join(one.name for one in message.topics)
    )


def _created_token(message: Any) -> Iterator[DescribedChange]:
    owner = message.owner_principal_name
    yield DescribedChange("DELEGATION_TOKEN", owner or "", "create")


def _token(verb: str) -> Describe:
    # The HMAC in the request is the token itself: never shown.
    return lambda message: [DescribedChange("DELEGATION_TOKEN", "", verb)]


def _aborted(message: Any) -> Iterator[DescribedChange]:
    yield DescribedChange("TRANSACTIONAL_ID", message.transactional_id or "", "abort")


def _maintained(message: Any) -> Iterator[DescribedChange]:
    yield DescribedChange("TOPIC", message.name, "maintenance")


def _by(names: str, field: str) -> ErrorCodes:
    """Return the codes of the response by a field of each result."""
    return lambda response: {getattr(one, field): one.error_code for one in getattr(response, names)}


def _in_order(names: str) -> ErrorCodes:
    return lambda response: {at: one.error_code for at, one in enumerate(getattr(response, names))}


def _one(response: Any) -> Mapping[Any, int]:
    return _Failed(response.error_code)


def _topic_codes(response: Any) -> Mapping[Any, int]:
    by_id = {bytes(one.topic_id).hex(): one.error_code for one in response.responses}
    return by_id | {one.name: one.error_code for one in response.responses}


def _record_codes(response: Any) -> Mapping[Any, int]:
    return {
        (topic.name, one.partition_index): one.error_code
        for topic in response.topics
        for one in topic.partitions
    }


def _config_codes(response: Any) -> Mapping[Any, int]:
    return {(one.resource_type, one.resource_name): one.error_code for one in response.responses}


_APIS: Final[dict[str, tuple[Describe, ErrorCodes]]] = {
    "CreateTopics": (_created_topics, _by("topics", "name")),
    "DeleteTopics": (_deleted_topics, _topic_codes),
    "CreatePartitions": (_created_topics, _by("results", "name")),
    "DeleteRecords": (_deleted_records, _record_codes),
    "CreateAcls": (_created_acls, _in_order("results")),
    "DeleteAcls": (_deleted_acls, _in_order("filter_results")),
    "AlterConfigs": (_replaced_configs, _config_codes),
    "IncrementalAlterConfigs": (_altered_configs, _config_codes),
    "AlterUserScramCredentials": (_scram_users, _by("results", "user")),
    "AlterClientQuotas": (_quotas, _in_order("entries")),
    "DeleteGroups": (_groups, _by("results", "group_id")),
    "OffsetDelete": (_offsets, _one),
    "CreateDelegationToken": (_created_token, _one),
    "RenewDelegationToken": (_token("renew"), _one),
    "ExpireDelegationToken": (_token("expire"), _one),
    "AbortTransaction": (_aborted, _one),
    "MaintainTopic": (_maintained, _one),
}
