"""Principals: the authenticated identity of a client."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    kind: str
    """`User` for every principal that a broker authenticates itself."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of connections without authentication."""


def parse_principal(text: str) -> Principal:
    """Read `User:alice`; raise ValueError if it is not of that form. The name may hold further colons."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not of the form User:name")
    return Principal(kind, name)
