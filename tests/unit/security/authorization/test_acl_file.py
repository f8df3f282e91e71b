"""The ACL file: what it stands for, and faults with their lines (F9)."""

from __future__ import annotations

import pytest

from flintmq.errors import ConfigurationError
from flintmq.security.authorization.acl_file import parse_acl_file
from flintmq.security.authorization.model import (
    AclBinding,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)

OPERATION, R, ALLOW, DENY = AclOperation, AclResource, AclPermission.ALLOW, AclPermission.DENY


def test_an_entry_stands_for_all_its_combinations() -> None:
    text = """
acls:
- principal: [User:alice, "User:CN=b, O=c"]
  allow: [Read, describe-configs]
  deny: Write
  topic: [orders, "it's"]
  pattern: prefixed
  host: [10.0.0.1, "*"]
- principal: User:*
  allow: ALL
  cluster: true
"""
    acls = parse_acl_file(text, "acls.yaml")
    expected = {
        AclBinding(R.TOPIC, name, AclPattern.PREFIXED, principal, host, operation, permission)
        for principal in ("User:alice", "User:CN=b, O=c")
        for operation, permission in (
            (OPERATION.READ, ALLOW),
            (OPERATION.DESCRIBE_CONFIGS, ALLOW),
            (OPERATION.WRITE, DENY),
        )
        for name in ("orders", "it's")
        for host in ("10.0.0.1", "*")
    }
    everyone = AclBinding(R.CLUSTER, "kafka-cluster", AclPattern.LITERAL, "User:*", "*", OPERATION.ALL, ALLOW)
    assert set(acls) == {*expected, everyone}
    assert len(acls) == len(set(acls))


def test_an_empty_list_is_no_acl() -> None:
    assert parse_acl_file("acls: []", "acls.yaml") == []


ENTRY = "acls:\n- principal: User:a\n  allow: Read\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("acls:\n- [", 2, "not valid YAML"),
        ("acls: &a [*a]\n", 1, ""),
        ("\x00", 1, "not valid YAML"),
        ("rules: []", 1, "'rules'"),
        ("[]", 1, "key: value"),
        ("{}", 1, "`acls:` is missing"),
        ("acls: 7", 1, "list"),
        ("acls:\n- 7", 2, "key: value"),
        ("acls:\n- allow: Read\n  topic: t\n", 2, "principal"),
        ("acls:\n- principal: alice\n  allow: Read\n  topic: t\n", 2, "User:alice"),
        ("acls:\n- principal: User:a\n  topic: t\n", 2, "allow"),
        (ENTRY, 2, "topic"),
        (ENTRY + "  topic: t\n  group: g\n", 2, "topic and group"),
        (ENTRY + "  topic: ''\n", 4, "empty"),
        (ENTRY + "  topic: []\n", 4, "empty"),
        (ENTRY + "  topic: {a: b}\n", 4, "text"),
        (ENTRY + "  topic: t\n  topic: u\n", 5, "twice"),
        (ENTRY + "  topic: t\n  pattern: match\n", 5, "literal or prefixed"),
        (ENTRY + "  cluster: yes\n", 4, "cluster: true"),
        (ENTRY + "  topics: t\n", 4, "'topics'"),
        ("acls:\n- principal: User:a\n  allow: [Read,\n    Reed]\n  topic: t\n", 4, "'Reed'"),
    ],
)
def test_a_fault_is_reported_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigurationError) as fault:
        parse_acl_file(text, "acls.yaml")
    assert str(fault.value).startswith(f"acls.yaml, line {line}: ")
    assert words in str(fault.value)


def test_a_small_file_cannot_stand_for_more_acls_than_the_bound() -> None:
    many = "[" + ", ".join(f"n{number}" for number in range(2000)) + "]"
    with pytest.raises(ConfigurationError, match="more than"):
        parse_acl_file(ENTRY + f"  topic: {many}\n  host: {many}\n", "acls.yaml")
