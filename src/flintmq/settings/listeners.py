"""Listener addresses: `NAME://host:port`, a list of them separated by commas.

A name may appear with several addresses (the default binds IPv4 and IPv6 loopback), which Kafka does not
allow; everything else is Kafka's syntax. An empty host means every interface.
This module must not know sockets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DEFAULT_PORT = 9092
LOOPBACK = ("127.0.0.1", "::1")

_ADDRESS = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%a-zA-Z0-9]*)\]|([0-9A-Za-z\-%._]*)):([0-9]+)")


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """ValueError says which part is wrong."""
    listeners: list[Listener] = []
    for part in text.split(",") if text.strip() else []:
        match = _ADDRESS.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not of the form NAME://host:port")
        name, ipv6, host, port = match.groups()
        if int(port) > 65535:
            raise ValueError(f"port {port} is above 65535")
        listeners.append(Listener(name.upper(), ipv6 or host or "", int(port)))
    return tuple(listeners)


def listeners_on(
    hosts: Iterable[str], ports: Sequence[int], *, name: str = "PLAINTEXT"
) -> tuple[Listener, ...]:
    """Every host with every port."""
    return tuple(Listener(name, host, port) for port in ports for host in hosts)


def parse_protocols(text: str) -> dict[str, str]:
    """`CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT` as a mapping of listener names to security protocols."""
    protocols: dict[str, str] = {}
    for part in text.split(",") if text.strip() else []:
        name, colon, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not colon or not name:
            raise ValueError(f"{part.strip()!r} is not of the form NAME:PROTOCOL")
        if name in protocols:
            raise ValueError(f"{name} appears twice")
        protocols[name] = protocol
    return protocols


def listener_faults(
    listeners: Sequence[Listener], advertised: Sequence[Listener], protocols_text: str
) -> str | None:
    """What is wrong with these settings taken together, or None."""
    protocols = {"PLAINTEXT": "PLAINTEXT", **parse_protocols(protocols_text)}
    for listener in listeners:
        if listener.name not in protocols:
            return (
                f"no security protocol for listener {listener.name}; "
                f"set listener.security.protocol.map={listener.name}:PLAINTEXT"
            )
    addresses = [(item.host, item.port) for item in listeners if item.port]
    if len(set(addresses)) != len(addresses):
        return "two listeners have the same address"
    names = [item.name for item in listeners]
    advertised_names = [item.name for item in advertised]
    if len(set(advertised_names)) != len(advertised_names):
        return "advertised.listeners names a listener twice"
    for listener in advertised:
        if listener.name not in names:
            return f"advertised.listeners names {listener.name}, which is not among the listeners"
        if listener.host in ("", "0.0.0.0", "::") or not listener.port:
            return f"advertised.listeners has {listener}, an address that no client can connect to"
    return None
