"""Principals: the identity behind a connection, as Kafka writes it (`User:alice`). Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    kind: str
    """`User` for every principal that a broker authenticates itself."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of connections without authentication."""


def parse_principal(text: str) -> Principal:
    """Read `User:alice`; raise ValueError if it is not of that form. The name may hold further colons."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"expected a principal such as User:alice, not {text!r}")
    return Principal(kind, name)
