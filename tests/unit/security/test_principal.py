"""Principals."""

from __future__ import annotations

import pytest

from flintmq.security.principal import ANONYMOUS, Principal, parse_principal


def test_a_principal_is_read_as_it_is_written() -> None:
    for principal in (ANONYMOUS, Principal("User", "a:b"), Principal("User", "CN=alice,O=x")):
        assert parse_principal(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_what_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="User"):
        parse_principal(text)
