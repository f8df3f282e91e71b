"""ACLs as Kafka has them: a pattern of resources, a principal, a host, an operation, and allow or deny. Pure.

The numbers are those of Kafka's protocol. `ANY` and `MATCH` stand in filters only.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from flintmq.errors import ErrorCode

WILDCARD: Final = "*"
"""As a literal resource name: every resource of the type. As a host: every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"


class AclOperation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResource(IntEnum):
    """The type of a resource."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    ANY = 1
    MATCH = 2
    """In a filter: every pattern that applies to the resource of that name."""
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    resource: AclResource
    name: str
    pattern: AclPattern
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def applies_to(self, resource: AclResource, name: str) -> bool:
        """Return whether the pattern covers the resource of that name."""
        if self.resource is not resource:
            return False
        if self.pattern is AclPattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclFilter(NamedTuple):
    """Selects ACLs; None and ANY select everything."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: AclPattern = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @property
    def exact(self) -> AclBinding | None:
        """The only ACL that is selected; None if there may be several."""
        if (
            self.name is None
            or self.principal is None
            or self.host is None
            or self.pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED)
            or AclResource.ANY is self.resource
            or AclOperation.ANY is self.operation
            or AclPermission.ANY is self.permission
        ):
            return None
        return AclBinding(
            self.resource,
            self.name,
            self.pattern,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource in (AclResource.ANY, acl.resource)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern is AclPattern.MATCH:
            return self.name is None or acl.applies_to(acl.resource, self.name)
        return self.pattern in (AclPattern.ANY, acl.pattern) and self.name in (None, acl.name)


AUTHORIZATION_ERRORS: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


# ---- sets of operations, as the bit fields of KIP-430

_O = AclOperation


def operation_bits(operations: Iterable[AclOperation]) -> int:
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


EVERY_OPERATION: Final = operation_bits(one for one in AclOperation if one > _O.ALL)

SUPPORTED_OPERATIONS: Final = {
    AclResource.TOPIC: operation_bits(
        (_O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
    ),
    AclResource.GROUP: operation_bits(
        (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
    ),
    AclResource.CLUSTER: operation_bits(
        (
            _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER,
            _O.DESCRIBE,
        )
    ),
    AclResource.TRANSACTIONAL_ID: operation_bits((_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT)),
    AclResource.DELEGATION_TOKEN: operation_bits((_O.DESCRIBE,)),
    AclResource.USER: operation_bits((_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS)),
}  # fmt: skip
"""The operations that make sense on each type of resource."""

_IMPLIED: Final = {
    _O.ALL: EVERY_OPERATION,
    _O.READ: operation_bits((_O.DESCRIBE,)),
    _O.WRITE: operation_bits((_O.DESCRIBE,)),
    _O.DELETE: operation_bits((_O.DESCRIBE,)),
    _O.ALTER: operation_bits((_O.DESCRIBE,)),
    _O.ALTER_CONFIGS: operation_bits((_O.DESCRIBE_CONFIGS,)),
}


def allowed_bits(operation: AclOperation) -> int:
    """Return the operations that an ACL allows: its own, and those it implies."""
    return 1 << operation | _IMPLIED.get(operation, 0)


def denied_bits(operation: AclOperation) -> int:
    """Return the operations that an ACL denies. A denied operation implies no other."""
    return EVERY_OPERATION if operation is _O.ALL else 1 << operation
