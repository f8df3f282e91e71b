"""PLAIN: tokens, users of settings and of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flintmq.errors import ConfigurationError
from flintmq.security.authentication.mechanism import SaslFailure, SaslStep
from flintmq.security.authentication.password_hash import (
    ITERATIONS_MIN,
    PasswordHash,
    hash_password,
    parse_password_hash,
)
from flintmq.security.authentication.plain import PlainServer
from flintmq.security.authentication.plain_users import PlainUsers
from flintmq.security.authentication.users_file import UsersFile, parse_users

SECRET = bytes(32)


def line(name: str, password: str) -> str:
    return f"{name}:{hash_password(password, b'salt' * 4, ITERATIONS_MIN)}\n"


def evaluate(token: bytes, passwords: Mapping[str, str], users_file: UsersFile | None = None) -> SaslStep:
    step = PlainServer(PlainUsers(passwords, users_file, SECRET)).evaluate(token)
    if isinstance(step, SaslStep):
        assert users_file is None, "hashing is for a thread"
        return step
    return step()


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_known_user(token: bytes) -> None:
    identity = evaluate(token, {"alice": "secret"}).identity
    assert identity is not None
    assert str(identity.principal) == "User:alice"


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0secret", "Invalid username or password"),
        (b"\0alice\0\0secret", "expected 3 tokens, got 4"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice", "expected 3 tokens, got 2"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "authorization id that is different"),
        (b"bob\0alice\0wrong", "Invalid username or password"),
        (b"\0alice\0\xff", "Invalid username or password"),
        (b"\0" + b"x" * 65000 + b"\0secret", "Invalid username or password"),
    ],
)
def test_tokens_that_fail(token: bytes, words: str) -> None:
    with pytest.raises(SaslFailure) as raised:
        evaluate(token, {"alice": "secret"})
    assert words in (raised.value.client_message or "")


def test_users_of_a_file_and_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# users\n\n" + line("carol", "hers") + line("d:e", "his"))
    users_file = UsersFile(str(path))
    for token in (b"\0carol\0hers", b"\0d:e\0his", b"\0alice\0secret"):
        assert evaluate(token, {"alice": "secret"}, users_file).identity is not None
    for token in (b"\0carol\0secret", b"\0nobody\0hers", b"\0alice\0hers"):
        with pytest.raises(SaslFailure):
            evaluate(token, {"alice": "secret"}, users_file)


def test_an_unknown_user_takes_no_longer_in_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The users are not walked through: that would tell a known user from an unknown one by the time."""
    path = tmp_path / "users"
    path.write_text("".join(line(f"user-{number}", "x") for number in range(3)))
    users_file = UsersFile(str(path))
    hashed: list[int] = []

    def matches(self: PasswordHash, password: str) -> bool:
        hashed.append(self.iterations)
        return False

    monkeypatch.setattr(PasswordHash, "matches", matches)

    class Users(dict[str, PasswordHash]):
        def values(self) -> Any:
            raise AssertionError("all users are looked at")

    users_file.users = Users(users_file.users)
    for token in (b"\0user-1\0guess", b"\0nobody\0guess"):
        with pytest.raises(SaslFailure):
            evaluate(token, {}, users_file)
    assert hashed == [ITERATIONS_MIN, ITERATIONS_MIN]


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    path.write_text(line("carol", "hers"))
    users_file = UsersFile(str(path))
    path.write_text(line("carol", "new") + line("dave", "his"))
    assert evaluate(b"\0carol\0new", {}, users_file).identity is not None
    path.write_text("carol:plaintext-password\n")
    assert evaluate(b"\0dave\0his", {}, users_file).identity is not None
    assert "line 1" in caplog.text
    assert "plaintext-password" not in caplog.text
    caplog.clear()
    assert evaluate(b"\0dave\0his", {}, users_file).identity is not None
    assert not caplog.text, "reported once"
    os.remove(path)
    assert evaluate(b"\0dave\0his", {}, users_file).identity is not None


def test_a_file_that_cannot_be_used_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"flint\.users\.file"):
        UsersFile(str(tmp_path / "none"))


@pytest.mark.parametrize(
    "text",
    [
        "alice",
        ":" + "x",
        "alice:secret",
        "alice:pbkdf2-sha512$1$AAAAAAAAAAAAAAAA$AAAA",
        "alice:pbkdf2-sha512$999999999$AAAAAAAAAAAAAAAA$AAAA",
        "alice:pbkdf2-sha512$20000$!$AAAA",
        "alice:pbkdf2-sha512$20000$AAAAAAAAAAAAAAAA$AAAA",
        line("alice", "a") + line("alice", "b"),
    ],
)
def test_lines_with_mistakes(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        parse_users(text)


def test_a_hash_is_read_as_it_is_written() -> None:
    hashed = hash_password("pässword", b"salt" * 4, ITERATIONS_MIN)
    assert parse_password_hash(str(hashed)) == hashed
    assert hashed.matches("pässword")
    assert not hashed.matches("password")
