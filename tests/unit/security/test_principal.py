"""Principals as text and back."""

from __future__ import annotations

import pytest

from flintmq.security.principal import ANONYMOUS, Principal, parse_principal


def test_a_principal_is_written_as_kafka_writes_it() -> None:
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a:b,O=c", "Group:*"])
def test_a_principal_is_read_as_it_is_written(text: str) -> None:
    assert str(parse_principal(text)) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as User:alice"):
        parse_principal(text)
