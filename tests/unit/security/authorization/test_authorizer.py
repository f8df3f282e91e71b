"""Decisions of the standard authorizer, and what sessions remember of them."""

from __future__ import annotations

from time import perf_counter

import pytest

from flintmq.security.authorization.authorizer import REMEMBERED_MAX, SessionRights, StandardAuthorizer
from flintmq.security.authorization.hosts import canonical_host
from flintmq.security.authorization.model import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from flintmq.security.principal import Principal, parse_principal

ALICE = Principal("User", "alice")
TOPIC = AclResource.TOPIC


def acl(
    name: str,
    operation: AclOperation = AclOperation.READ,
    *,
    pattern: AclPattern = AclPattern.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: AclPermission = AclPermission.ALLOW,
    resource: AclResource = TOPIC,
) -> AclBinding:
    return AclBinding(resource, name, pattern, principal, host, operation, permission)


def allows(
    authorizer: StandardAuthorizer, operation: AclOperation, name: str, host: str = "10.0.0.1"
) -> bool:
    return bool(SessionRights(ALICE, host).operations(authorizer, TOPIC, name) >> operation & 1)


def test_a_change_is_in_force_in_sessions_that_have_asked_before() -> None:
    authorizer, rights = StandardAuthorizer(), SessionRights(ALICE, "10.0.0.1")
    assert rights.operations(authorizer, TOPIC, "orders") == 0
    authorizer.change(added=[acl("orders")])
    assert rights.operations(authorizer, TOPIC, "orders") >> AclOperation.READ & 1
    authorizer.change(removed=[acl("orders")])
    assert rights.operations(authorizer, TOPIC, "orders") == 0


def test_a_session_remembers_a_bounded_number_of_resources() -> None:
    authorizer, rights = StandardAuthorizer(), SessionRights(ALICE, "10.0.0.1")
    for number in range(3 * REMEMBERED_MAX):
        rights.operations(authorizer, TOPIC, f"t{number}")
        rights.remember_topic(f"t{number}", 0)
    assert len(rights.topics) <= REMEMBERED_MAX
    assert len(rights._known) <= REMEMBERED_MAX


def test_a_session_does_not_remember_long_names() -> None:
    """A client without any right may ask about names of 32 KB, a thousand of which would be kept."""
    authorizer, rights = StandardAuthorizer(), SessionRights(ALICE, "10.0.0.1")
    long = "x" * 32_000
    authorizer.change(added=[acl(long, resource=AclResource.GROUP)])
    assert rights.operations(authorizer, AclResource.GROUP, long) >> AclOperation.READ & 1
    rights.remember_topic(long, 0)
    assert (len(rights._known), len(rights.topics)) == (0, 0)


@pytest.mark.parametrize("host", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_an_ipv4_client_of_a_dual_stack_socket_matches_its_ipv4_acl(host: str) -> None:
    authorizer = StandardAuthorizer()
    authorizer.change(added=[acl("orders", host="10.0.0.1")])
    assert allows(authorizer, AclOperation.READ, "orders", host)
    assert not allows(authorizer, AclOperation.READ, "orders", "10.0.0.2")


def test_addresses_are_compared_however_they_are_written() -> None:
    # Kafka's tools and logs write IPv6 addresses in full.
    assert canonical_host("0:0:0:0:0:0:0:1") == canonical_host("::1") == "::1"
    assert canonical_host("fe80::1%eth0") == "fe80::1"
    assert canonical_host("*") == "*"


def test_two_spellings_of_a_host_are_two_acls() -> None:
    authorizer = StandardAuthorizer()
    both = [acl("orders", host="::1"), acl("orders", host="0:0:0:0:0:0:0:1")]
    authorizer.change(added=both)
    authorizer.change(removed=both[:1])
    assert allows(authorizer, AclOperation.READ, "orders", "::1")
    authorizer.change(removed=both[1:])
    assert not allows(authorizer, AclOperation.READ, "orders", "::1")


@pytest.mark.parametrize("name", ["it's", 'a "quoted" name', "*", "a*", "naïve-übergröße-日本", "a;b,c", " "])
def test_names_are_taken_as_they_are(name: str) -> None:
    authorizer = StandardAuthorizer()
    authorizer.change(added=[acl(name, resource=AclResource.GROUP)])
    rights = SessionRights(ALICE, "10.0.0.1")
    assert rights.operations(authorizer, AclResource.GROUP, name) >> AclOperation.READ & 1
    other = rights.operations(authorizer, AclResource.GROUP, name + "x")
    assert bool(other) == (name == "*"), "only the wildcard alone is about other names"


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        (AclFilter(), {"orders", "or", "*", "x"}),
        (AclFilter(name="orders"), {"orders"}),
        (AclFilter(name="orders", pattern=AclPattern.MATCH), {"orders", "or", "*"}),
        (AclFilter(pattern=AclPattern.PREFIXED), {"or"}),
        (AclFilter(name="or", pattern=AclPattern.LITERAL), set()),
        (AclFilter(principal="User:bob"), {"x"}),
        (AclFilter(operation=AclOperation.WRITE), {"x"}),
        (AclFilter(resource=AclResource.GROUP), set()),
        (AclFilter(permission=AclPermission.DENY), set()),
        (AclFilter(*acl("orders")), {"orders"}),
        (AclFilter(*acl("or")), set()),
    ],
)
def test_filters_select(selected: AclFilter, expected: set[str]) -> None:
    authorizer = StandardAuthorizer()
    authorizer.change(
        added=[
            acl("orders"),
            acl("or", pattern=AclPattern.PREFIXED),
            acl("*"),
            acl("x", AclOperation.WRITE, principal="User:bob"),
        ]
    )
    assert {one.name for one in authorizer.acls(selected)} == expected


def test_decisions_stay_cheap_with_ten_thousand_acls() -> None:
    def cost(count: int) -> float:
        authorizer = StandardAuthorizer()
        authorizer.change(
            added=[
                acl(
                    f"team-{number}-",
                    pattern=AclPattern.PREFIXED if number % 2 else AclPattern.LITERAL,
                    principal=f"User:u{number % 97}",
                )
                for number in range(count)
            ]
        )
        best = 1.0
        for _ in range(5):
            began = perf_counter()
            for number in range(200):
                authorizer.operations(ALICE, "10.0.0.1", TOPIC, f"team-{number}-x")
                authorizer.allows_somewhere(ALICE, "10.0.0.1", TOPIC, AclOperation.WRITE)
            best = min(best, perf_counter() - began)
        return best

    assert cost(10_000) < 10 * cost(100), "the cost must not grow with the number of ACLs"


def test_principals_are_written_and_read_alike() -> None:
    assert str(parse_principal("User:CN=a:b,O=c")) == "User:CN=a:b,O=c"
    for wrong in ("alice", "User:", ":alice", ""):
        with pytest.raises(ValueError, match="User:alice"):
            parse_principal(wrong)
