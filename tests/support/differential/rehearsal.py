"""The cases of `requests_by_api` on any broker that is reached over SASL, each with names of its own.

The requests of the cases act on topic `t`, group `g` and transactional id `x`. Here each run has other names, so that
runs on one broker do not see each other; they are replaced in requests, and in responses the other way round.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from flintmq.errors import ErrorCode
from flintmq.protocol import messages as m
from flintmq.protocol.codegen.structures import Message, Struct
from flintmq.records.record import build_batch
from flintmq.security.authorization.model import AclBinding
from flintmq.security.principal import Principal
from support.broker.secured import USERS, SaslWire
from support.broker.single_broker import NODE_ID
from support.wire.authorized_requests import (
    ADMIN,
    GROUP,
    NEW_TOPIC,
    TOPIC,
    TRANSACTION,
    Stage,
    acl_creation,
)
from support.wire.group_requests import commit_request, stable
from support.wire.requests_by_api import Case
from support.wire.transactional import TransactionalClient
from support.wire.wire import TIMESTAMP, produce_request

M = TypeVar("M", bound=Message)

REMOTE_NODE_ID = 0
_RETRY_S = 0.02
_RETRY_TIMEOUT_S = 15.0
_RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_METADATA_VERSION, _PRODUCE_VERSION = 12, 9
_ANY = 1
"""Of resources, patterns, operations and permissions alike."""
_WAIT_MS = 30_000

CLIENT = Principal("User", "alice")
"""Whose requests are compared."""


class RemoteBroker:
    """What `Stage` and its clients need of a broker, over connections of the principals that act."""

    path = ""

    def __init__(self, address: str) -> None:
        self._address = address
        self._wires: dict[str, SaslWire] = {}
        self.names: Mapping[str, str] = {}
        self._back: Mapping[str, str] = {}

    def rename(self, names: Mapping[str, str]) -> None:
        self.names, self._back = names, {new: old for old, new in names.items() if len(new) > 1}

    def close(self) -> None:
        for wire in self._wires.values():
            wire.sock.close()
        self._wires.clear()

    def versions(self) -> dict[int, range]:
        response = self.ask(
            m.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
            m.ApiVersionsResponse,
            3,
        )
        return {one.api_key: range(one.min_version, one.max_version + 1) for one in response.api_keys}

    def ask(self, message: Message, answer: type[M], version: int, *, principal: Principal = ADMIN) -> M:
        """Raise EOFError if the broker closes the connection instead."""
        if principal.name not in self._wires:
            wire = SaslWire(self._address)
            assert wire.authenticate(principal.name, USERS[principal.name]).error_code == 0
            self._wires[principal.name] = wire
        try:
            response = self._wires[principal.name].ask(renamed(message, self.names), version)
        except (EOFError, ConnectionError) as error:
            self._wires.pop(principal.name).sock.close()
            raise EOFError from error
        assert isinstance(response, answer)
        decoded: M = renamed(response, self._back)
        return decoded

    def ask_until_done(self, message: Message, version: int) -> Message:
        """As the admin, again while the broker is not ready for it."""
        deadline = time.monotonic() + _RETRY_TIMEOUT_S
        while True:
            response = self.ask(message, m.response_of(message.api_key), version)
            codes = error_codes(response)
            if not codes & _RETRIED:
                assert not codes - {ErrorCode.NONE}, response
                return response
            assert time.monotonic() < deadline, response
            time.sleep(_RETRY_S)

    def topic_id(self, name: str) -> bytes:
        topic = m.MetadataRequest.MetadataRequestTopic(name=name)
        request = m.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        response = self.ask(request, m.MetadataResponse, _METADATA_VERSION)
        return bytes(response.topics[0].topic_id)


class RemoteStage(Stage):
    """`Stage` on a broker that is reached over the network; the names of each stage are new."""

    _numbers = itertools.count(1)

    def __init__(self, broker: RemoteBroker) -> None:
        number = next(self._numbers)
        names = {name: f"{name}-{number:04}" for name in (TOPIC, NEW_TOPIC, GROUP, TRANSACTION)}
        names[str(NODE_ID)] = str(REMOTE_NODE_ID)
        broker.rename(names)
        self.remote = broker
        self.broker = broker  # type: ignore[assignment]
        topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        broker.ask_until_done(m.CreateTopicsRequest(topics=[topic], timeout_ms=_WAIT_MS), 7)
        batch = build_batch([(None, b"value", TIMESTAMP + i, ()) for i in range(2)])
        broker.ask_until_done(produce_request(TOPIC, batch), _PRODUCE_VERSION)
        for key_type, key in enumerate((GROUP, TRANSACTION)):
            request = m.FindCoordinatorRequest(key=key, key_type=key_type)
            broker.ask_until_done(request, 3)
        broker.ask_until_done(commit_request({TOPIC: {0: 1}}), 8)
        self.transaction = TransactionalClient(self.broker, TRANSACTION)
        while self.transaction.init() in _RETRIED:
            time.sleep(_RETRY_S)
        self.member = m.JoinGroupResponse()
        self.task_id = -1

    def join(self) -> None:
        self.member = stable(self.broker)

    def add_acl(self) -> None:
        self.remote.ask_until_done(acl_creation(self, 3), 3)

    def prepare(self, case: Case) -> None:
        """Prepare a case by the method of this class where it has one of that name."""
        name = getattr(case.prepare, "__name__", "")
        method = getattr(self, name, None) if name != "prepare" else None
        if method is not None:
            method()
        else:
            case.prepare(self)

    def permit(self, bindings: list[AclBinding]) -> None:
        creations = [
            m.CreateAclsRequest.AclCreation(
                resource_type=one.resource,
                resource_name=one.name,
                resource_pattern_type=one.pattern,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in bindings
        ]
        if creations:
            self.remote.ask_until_done(m.CreateAclsRequest(creations=creations), 3)
        self._wait_for_acls(len(bindings))

    def withdraw(self, principals: list[str]) -> None:
        """Delete every ACL of these principals."""
        filters = [
            m.DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=_ANY,
                resource_name_filter=None,
                host_filter=None,
                pattern_type_filter=_ANY,
                principal_filter=principal,
                operation=_ANY,
                permission_type=_ANY,
            )
            for principal in principals
        ]
        self.remote.ask_until_done(m.DeleteAclsRequest(filters=filters), 3)
        self._wait_for_acls(0)

    def _wait_for_acls(self, count: int) -> None:
        """Wait until the broker that is asked has them: Kafka's controller answers before its brokers know."""
        request = m.DescribeAclsRequest(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            host_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=str(CLIENT),
            operation=_ANY,
            permission_type=_ANY,
        )
        deadline = time.monotonic() + _RETRY_TIMEOUT_S
        while True:
            response = self.remote.ask(request, m.DescribeAclsResponse, 3)
            if sum(len(resource.acls) for resource in response.resources) == count:
                return
            assert time.monotonic() < deadline, response
            time.sleep(_RETRY_S)


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A copy with other names, also where long ones are part of a text. A request may take its time."""
    if isinstance(value, Struct):
        fields = {name: renamed(getattr(value, name), names) for name in value.__slots__}
        if fields.get("timeout_ms", _WAIT_MS) < _WAIT_MS:
            fields["timeout_ms"] = _WAIT_MS
        return type(value)(**fields)
    if value == [NODE_ID]:
        return [REMOTE_NODE_ID]
    if isinstance(value, list):
        return [renamed(one, names) for one in value]
    if isinstance(value, str):
        if value in names:
            return names[value]
        for old, new in names.items():
            if len(old) > 2 and old in value:
                value = value.replace(old, new)
    return value


def error_codes(value: Any) -> set[ErrorCode]:
    """Every field of a response that is an error code, at any depth."""
    found: set[ErrorCode] = set()
    if isinstance(value, list):
        for one in value:
            found |= error_codes(one)
    elif isinstance(value, Struct):
        for name in value.__slots__:
            field = getattr(value, name)
            if name.endswith("error_code"):
                found.add(ErrorCode(field))
            else:
                found |= error_codes(field)
    return found
