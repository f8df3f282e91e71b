"""Listener addresses: `NAME://host:port`, a list of them separated by commas.

A name may appear with several addresses (the default binds IPv4 and IPv6 loopback), which Kafka does not
allow; everything else is Kafka's syntax. An empty host means every interface.
This module must not know sockets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.settings.broker import BrokerConfig

DEFAULT_PORT = 9092
LISTENERS_MAX = 100
LOOPBACK = ("127.0.0.1", "::1")

_ADDRESS = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%a-zA-Z0-9]*)\]|([0-9A-Za-z\-%._]*)):([0-9]+)")


class SecurityProtocol(Enum):
    """How the clients of a listener are encrypted and authenticated; Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


DEFAULT_PROTOCOL_MAP = ",".join(f"{one.value}:{one.value}" for one in SecurityProtocol)


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


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    """`CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT` as a mapping of listener names to security protocols."""
    protocols: dict[str, SecurityProtocol] = {}
    for part in text.split(",") if text.strip() else []:
        name, colon, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not colon or not name:
            raise ValueError(f"{part.strip()!r} is not of the form NAME:PROTOCOL")
        if name in protocols:
            raise ValueError(f"{name} appears twice")
        if protocol not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ValueError(f"{protocol} is not a security protocol; use one of {known}")
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def all_protocols(text: str) -> dict[str, SecurityProtocol]:
    """Return the mapping with the names of the protocols themselves, which need no entry."""
    return {**SecurityProtocol.__members__, **parse_protocols(text)}


def protocols_of(config: BrokerConfig) -> dict[str, SecurityProtocol]:
    """Return the security protocol of every listener, by its name."""
    protocols = all_protocols(config.listener_security_protocol_map)
    return {listener.name: protocols[listener.name] for listener in config.listeners}


def listener_setting(config: BrokerConfig, listener_name: str, setting_name: str) -> Any:
    """Return the value of a setting for one listener: its override, else the value for all listeners.

    The setting of a mechanism (`plain.sasl.jaas.config`) falls back to the one without a mechanism.
    """
    overrides = config.listener_overrides
    if (listener_name, setting_name) in overrides:
        return overrides[listener_name, setting_name]
    attribute = setting_name.replace(".", "_")
    if hasattr(config, attribute):
        return getattr(config, attribute)
    return listener_setting(config, listener_name, setting_name.partition(".")[2])


def _overlap(one: Listener, other: Listener) -> bool:
    """Whether both would need the same port of the same interface."""
    if one.port != other.port or not one.port:
        return False
    hosts = {one.host, other.host}
    # An empty host is every interface of both families.
    if len(hosts) == 1 or "" in hosts:
        return True
    same_family = (":" in one.host) == (":" in other.host)
    return same_family and bool(hosts & {"0.0.0.0", "::"})  # nosec B104


def listener_faults(
    listeners: Sequence[Listener], advertised: Sequence[Listener], protocols_text: str
) -> str | None:
    """What is wrong with these settings taken together, or None."""
    protocols = all_protocols(protocols_text)
    if len(listeners) > LISTENERS_MAX:
        return f"there are {len(listeners)} listeners; at most {LISTENERS_MAX} are possible"
    for listener in listeners:
        if listener.name not in protocols:
            return (
                f"no security protocol for listener {listener.name}; "
                f"add {listener.name}:PLAINTEXT or another protocol to listener.security.protocol.map"
            )
    for at, listener in enumerate(listeners):
        other = next((one for one in listeners[:at] if _overlap(one, listener)), None)
        if other is not None:
            return f"two listeners have the same address: {other} and {listener}; give them different ports"
    names = [item.name for item in listeners]
    advertised_names = [item.name for item in advertised]
    if len(set(advertised_names)) != len(advertised_names):
        return "advertised.listeners names a listener twice"
    for listener in advertised:
        if listener.name not in names:
            return (
                f"advertised.listeners names {listener.name}, which is not among the listeners; change both"
            )
        if listener.host in ("", "0.0.0.0", "::") or not listener.port:  # nosec B104
            return f"advertised.listeners has {listener}, an address that no client can connect to"
    return None
