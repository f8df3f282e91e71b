"""Sets of ACLs, and requests whose responses have the bits of the authorized operations."""

from __future__ import annotations

from flintmq.protocol import messages as m
from flintmq.security.authorization.model import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from support.differential.rehearsal import CLIENT
from support.wire.authorized_requests import GROUP, TOPIC, Stage
from support.wire.requests_by_api import Case

_NAMES = {AclResource.TOPIC: TOPIC, AclResource.GROUP: GROUP, AclResource.CLUSTER: CLUSTER_NAME}


def _metadata(stage: Stage, version: int) -> m.MetadataRequest:
    return m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=version <= 10,
        include_topic_authorized_operations=True,
    )


OPERATIONS_CASES = (
    Case(3, _metadata, name="operations", versions=(8, 99)),
    Case(
        15,
        lambda stage, version: m.DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True),
        name="operations",
        versions=(3, 99),
    ),
    Case(
        60,
        lambda stage, version: m.DescribeClusterRequest(include_cluster_authorized_operations=True),
        name="operations",
    ),
    Case(
        75,
        lambda stage, version: m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)]
        ),
        name="operations",
    ),
)


def _acls(
    operation: AclOperation,
    *,
    permission: AclPermission = AclPermission.ALLOW,
    pattern: AclPattern = AclPattern.LITERAL,
    principal: str = str(CLIENT),
    host: str = "*",
    name: str | None = None,
) -> tuple[AclBinding, ...]:
    """One on the topic, one on the group and one on the cluster, of the operations that each of them has."""
    return tuple(
        AclBinding(resource, name or own, pattern, principal, host, operation, permission)
        for resource, own in _NAMES.items()
        if operation in _OPERATIONS[resource] and not (resource is AclResource.CLUSTER and name)
    )


_OPERATIONS = {
    AclResource.TOPIC: {
        *(
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        ),
        *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL),
    },
    AclResource.GROUP: {
        *(AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE, AclOperation.ALL),
        *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
    },
    AclResource.CLUSTER: {
        *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION),
        *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE),
        AclOperation.ALL,
    },
}

_EVERY = sorted(set().union(*_OPERATIONS.values()))

ACL_SETS: dict[str, tuple[AclBinding, ...]] = {
    **{f"{operation.name} allowed": _acls(operation) for operation in _EVERY},
    **{
        f"{operation.name} denied, all others allowed": (
            *_acls(AclOperation.ALL),
            *_acls(operation, permission=AclPermission.DENY),
        )
        for operation in _EVERY
    },
    "READ on all names": _acls(AclOperation.READ, name="*"),
    "DESCRIBE on names with a prefix": _acls(AclOperation.DESCRIBE, pattern=AclPattern.PREFIXED, name="t-"),
    "READ from another host": _acls(AclOperation.READ, host="192.0.2.1"),
    "READ from this host": _acls(AclOperation.READ, host="127.0.0.1"),
}
