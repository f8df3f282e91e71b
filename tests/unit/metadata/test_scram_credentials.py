"""SCRAM credentials in the store, by Kafka's rules (KIP-554)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from flintmq.app.offline_metadata import with_credentials
from flintmq.errors import ErrorCode, RequestError
from flintmq.metadata.scram_credentials import (
    ALTERATIONS_MAX,
    ScramCredentials,
    ScramDeletion,
    ScramDescription,
    ScramUpsertion,
)
from flintmq.protocol.scram import ScramMechanism

T = TypeVar("T")
Work = Callable[[Callable[[ScramCredentials], Awaitable[T]]], T]

SHA_256, SHA_512 = ScramMechanism.SHA_256.type, ScramMechanism.SHA_512.type


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("credentials") / "data")


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, b"salt", b"salted")


def alter(
    directory: str, deletions: list[ScramDeletion], upsertions: list[ScramUpsertion]
) -> dict[str, ErrorCode]:
    results = with_credentials(directory, lambda one: one.alter(deletions, upsertions))
    return {user: ErrorCode.NONE if error is None else error.code for user, error in results.items()}


def describe(directory: str, users: list[str] | None = None) -> dict[str, list[int] | ErrorCode]:
    async def ask(credentials: ScramCredentials) -> list[ScramDescription | tuple[str, RequestError]]:
        await asyncio.sleep(0)
        return credentials.describe(users)

    found: dict[str, list[int] | ErrorCode] = {}
    for one in with_credentials(directory, ask):
        if isinstance(one, ScramDescription):
            found[one.user] = [mechanism.type for mechanism, _ in one.iterations]
        else:
            found[one[0]] = one[1].code
    return found


def test_credentials_are_set_changed_and_deleted(directory: str) -> None:
    assert alter(directory, [], [upsertion("a/b"), upsertion("c", SHA_512)]) == {"a/b": 0, "c": 0}
    assert alter(directory, [], [upsertion("a/b", SHA_512, 16384)]) == {"a/b": 0}
    assert describe(directory) == {"a/b": [SHA_256, SHA_512], "c": [SHA_512]}
    assert alter(directory, [ScramDeletion("a/b", SHA_256)], []) == {"a/b": 0}
    assert describe(directory) == {"a/b": [SHA_512], "c": [SHA_512]}
    assert describe(directory, ["c", "d", "a/b", "a/b"]) == {
        "c": [SHA_512],
        "d": ErrorCode.RESOURCE_NOT_FOUND,
        "a/b": ErrorCode.DUPLICATE_RESOURCE,
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("a", SHA_256, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a", SHA_256, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a" * 5000), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramUpsertion("a", SHA_256, 4096, bytes(2000), b"x"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramDeletion("a", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramDeletion("a", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_what_is_refused(directory: str, change: ScramUpsertion | ScramDeletion, code: ErrorCode) -> None:
    deletions = [change] if isinstance(change, ScramDeletion) else []
    upsertions = [change] if isinstance(change, ScramUpsertion) else []
    assert alter(directory, deletions, [*upsertions, upsertion("good")]) == {change.user: code, "good": 0}
    assert describe(directory) == {"good": [SHA_256]}


def test_a_user_changes_once_in_a_request(directory: str) -> None:
    changes = [upsertion("a"), upsertion("a", SHA_512), upsertion("b")]
    assert alter(directory, [], changes) == {"a": ErrorCode.DUPLICATE_RESOURCE, "b": 0}
    assert alter(directory, [ScramDeletion("b", SHA_256)], [upsertion("b")]) == {
        "b": ErrorCode.DUPLICATE_RESOURCE
    }
    assert describe(directory) == {"b": [SHA_256]}


def test_many_credentials_in_one_request(directory: str) -> None:
    many = [upsertion(f"u{n}") for n in range(ALTERATIONS_MAX)]
    assert set(alter(directory, [], many).values()) == {ErrorCode.NONE}
    assert len(describe(directory)) == ALTERATIONS_MAX
    assert set(alter(directory, [], [*many, upsertion("one more")]).values()) == {ErrorCode.INVALID_REQUEST}
