"""Where brokers are: `host:port`, lists of them, IPv6 in brackets. Pure."""

from __future__ import annotations

from typing import NamedTuple

from flintmq.errors import ConfigurationError
from flintmq.settings.listeners import DEFAULT_PORT


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host`, `host:port`, `[::1]` or `[::1]:port`; without a port, Kafka's usual one."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _unreadable(text)
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif text.count(":") > 1:  # IPv6 alone, as people write it
        host, port = text, str(DEFAULT_PORT)
    else:
        host, colon, port = text.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65535:
        raise _unreadable(text)
    return Address(host, int(port))


def parse_addresses(text: str) -> list[Address]:
    """A list separated by commas, of at least one."""
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise _unreadable(text)
    return list(dict.fromkeys(parse_address(part) for part in parts))


def _unreadable(text: str) -> ConfigurationError:
    return ConfigurationError(f"{text!r} is not an address; expected host:port, such as localhost:9092")
