"""Authorized operations as the bit fields that Metadata and DescribeCluster carry (KIP-430). Pure."""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's ACL operations."""

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


_O = AclOperation
NOT_ASKED = -(2**31)
ON_TOPIC = (
    _O.READ,
    _O.WRITE,
    _O.CREATE,
    _O.DELETE,
    _O.ALTER,
    _O.DESCRIBE,
    _O.DESCRIBE_CONFIGS,
    _O.ALTER_CONFIGS,
)
ON_GROUP = (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
ON_CLUSTER = (
    _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    _O.IDEMPOTENT_WRITE,
)  # fmt: skip


def bits(operations: tuple[AclOperation, ...]) -> int:
    return sum(1 << operation for operation in operations)
