"""The index of ACLs decides as a walk over all ACLs does, whatever is added and removed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from flintmq.security.authorization.authorizer import SessionRights, StandardAuthorizer
from flintmq.security.authorization.model import (
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.principal import Principal

OPERATIONS = [one for one in AclOperation if one is not AclOperation.ANY]
ASKED = [one for one in OPERATIONS if one is not AclOperation.ALL]
RESOURCES = [AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER]
NAMES = ["a", "ab", "abc", "b", "*", "*a", "kafka-cluster", "hardcode", "h", "ä'\"", "ä"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice", "User:a:b"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
READ_IMPLIES = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}

acls = st.builds(
    AclBinding,
    st.sampled_from(RESOURCES),
    st.sampled_from(NAMES),
    st.sampled_from([AclPattern.LITERAL, AclPattern.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)


def is_of(acl: AclBinding, principal: Principal, host: str) -> bool:
    return acl.principal in (str(principal), "User:*") and acl.host in (host, "*")


def covers(acl: AclBinding, operation: AclOperation) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    if acl.permission is AclPermission.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return acl.operation in READ_IMPLIES
    return operation is AclOperation.DESCRIBE_CONFIGS and acl.operation is AclOperation.ALTER_CONFIGS


def naive(
    stored: Sequence[AclBinding],
    principal: Principal,
    host: str,
    resource: AclResource,
    name: str,
    operation: AclOperation,
    *,
    without_acls: bool,
) -> bool:
    matching = [acl for acl in stored if acl.applies_to(resource, name)]
    if not matching:
        return without_acls
    applying = [acl for acl in matching if is_of(acl, principal, host) and covers(acl, operation)]
    return bool(applying) and all(acl.permission is AclPermission.ALLOW for acl in applying)


def naive_somewhere(
    stored: Sequence[AclBinding],
    principal: Principal,
    host: str,
    resource: AclResource,
    operation: AclOperation,
    *,
    without_acls: bool,
) -> bool:
    if naive(stored, principal, host, resource, "hardcode", operation, without_acls=without_acls):
        return True
    own = [
        acl
        for acl in stored
        if acl.resource is resource
        and is_of(acl, principal, host)
        and acl.operation in (operation, AclOperation.ALL)
    ]
    denied = {(acl.pattern, acl.name) for acl in own if acl.permission is AclPermission.DENY}
    allowed = {(acl.pattern, acl.name) for acl in own if acl.permission is AclPermission.ALLOW}
    if (AclPattern.LITERAL, "*") in denied:
        return False
    if (AclPattern.LITERAL, "*") in allowed:
        return True
    return any(
        not (pattern is AclPattern.LITERAL and (pattern, name) in denied)
        and not any((AclPattern.PREFIXED, name[:size]) in denied for size in range(1, len(name) + 1))
        for pattern, name in allowed
    )


@given(
    added=st.lists(acls, max_size=12),
    removed=st.sets(st.integers(0, 11)),
    without_acls=st.booleans(),
    super_user=st.booleans(),
)
def test_decisions_are_those_of_a_walk_over_all_acls(
    added: list[AclBinding], removed: set[int], without_acls: bool, super_user: bool
) -> None:
    supers = [Principal("User", "bob")] if super_user else []
    authorizer = StandardAuthorizer(super_users=supers, allow_without_acls=without_acls)
    authorizer.change(added=added)
    gone = [acl for at, acl in enumerate(added) if at in removed]
    authorizer.change(removed=gone)
    stored = [acl for acl in dict.fromkeys(added) if acl not in gone]
    assert len(authorizer) == len(stored)
    for principal in (Principal("User", "alice"), Principal("User", "bob"), Principal("User", "a:b")):
        for host in ("10.0.0.1", "10.0.0.3"):
            rights = SessionRights(principal, host)
            is_super = principal in supers
            for resource in RESOURCES:
                for name in NAMES:
                    bits = rights.operations(authorizer, resource, name)
                    for operation in ASKED:
                        expected = is_super or naive(
                            stored, principal, host, resource, name, operation, without_acls=without_acls
                        )
                        assert bool(bits >> operation & 1) == expected, (principal, resource, name, operation)
                for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
                    assert authorizer.allows_somewhere(principal, host, resource, operation) == (
                        is_super
                        or naive_somewhere(
                            stored, principal, host, resource, operation, without_acls=without_acls
                        )
                    )
