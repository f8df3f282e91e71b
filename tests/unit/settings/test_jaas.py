"""`sasl.jaas.config` in Kafka's syntax."""

from __future__ import annotations

import pytest

from flintmq.settings.jaas import jaas_users, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_and_the_own_login() -> None:
    text = f"""{MODULE} required
        username="admin" password="p" // the broker's own
        user_admin="p" user_alice='it''s' user_bob="a;b=\\"c\\"" user_plain=word;"""
    text = text.replace("'it''s'", "'single'")
    assert jaas_users(text) == {"admin": "p", "alice": "single", "bob": 'a;b="c"', "plain": "word"}
    assert parse_jaas(text)[0].options["username"] == "admin"


def test_several_entries_and_comments() -> None:
    entries = parse_jaas(f"{MODULE} REQUIRED a=b; /* x */ other.Module sufficient;")
    assert [(one.login_module, one.options) for one in entries] == [
        (MODULE, {"a": "b"}),
        ("other.Module", {}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        MODULE,
        f"{MODULE} required",
        f"{MODULE} sometimes a=b;",
        f"{MODULE} required a=b",
        f"{MODULE} required a;",
        f"{MODULE} required a=;",
        f'{MODULE} required a="secret;',
        f"{MODULE} required a=(secret);",
    ],
)
def test_mistakes_are_explained_without_the_secret(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_jaas(text)
    assert "secret" not in str(raised.value)
