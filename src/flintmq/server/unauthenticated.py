"""Connections in the TLS handshake or in authentication: how many there may be, and for how long.

A client that is not known yet may hold little and not for long. Connections are kept in the order of their arrival,
so that one timer serves all of them. Beyond a limit the oldest gives way if it had a fair time, else the new
one is refused: thousands of half-open handshakes do not keep others out until they time out. Beyond the limit of an
address it is the oldest of that address, for many clients may share one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from flintmq.effects import Timer
from flintmq.settings import BrokerConfig

FAIR_S: Final = 1.0
"""How long a connection is left alone, whatever others want."""


class UnknownClient(Protocol):
    @property
    def host(self) -> str: ...

    def give_up(self, reason: str) -> None:
        """Close the connection; `UnauthenticatedConnections.leave` has been called already."""
        ...


class LoopTime(Protocol):
    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer: ...


C = TypeVar("C", bound=UnknownClient)


class UnauthenticatedConnections(Generic[C]):
    def __init__(self, loop: LoopTime, config: Callable[[], BrokerConfig]) -> None:
        self._loop = loop
        self._config = config
        self._since: dict[C, float] = {}
        # By address, the oldest first.
        self._by_host: dict[str, dict[C, None]] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, connection: C) -> str | None:
        """Return why the connection cannot be taken, or None."""
        config, now, host = self._config(), self._loop.time(), connection.host
        of_host = self._by_host.get(host)
        if of_host is not None and len(of_host) >= config.flint_max_unauthenticated_connections_per_ip:
            reason = (
                f"{host} has {len(of_host)} connections that are not authenticated yet "
                "(flint.max.unauthenticated.connections.per.ip)"
            )
            if not self._make_room(next(iter(of_host)), now, reason):
                return reason
        if len(self._since) >= config.flint_max_unauthenticated_connections:
            reason = f"{len(self._since)} connections are not authenticated (flint.max.unauthenticated.connections)"
            if not self._make_room(next(iter(self._since)), now, reason):
                return reason
        self._since[connection] = now
        self._by_host.setdefault(host, {})[connection] = None
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._expire)
        return None

    def _make_room(self, oldest: C, now: float, reason: str) -> bool:
        """Close the connection if it had a fair time."""
        if now - self._since[oldest] < FAIR_S:
            return False
        self.leave(oldest)
        oldest.give_up(reason)
        return True

    def leave(self, connection: C) -> None:
        """The client is known now, or its connection is gone."""
        if self._since.pop(connection, None) is None:
            return
        of_host = self._by_host[connection.host]
        del of_host[connection]
        if not of_host:
            del self._by_host[connection.host]

    @property
    def _timeout_s(self) -> float:
        return self._config().flint_authentication_timeout_ms / 1000

    def _expire(self) -> None:
        self._timer = None
        timeout_s, now = self._timeout_s, self._loop.time()
        while self._since:
            connection, since = next(iter(self._since.items()))
            left_s = since + timeout_s - now
            if left_s > 0:
                self._timer = self._loop.call_later(left_s, self._expire)
                return
            self.leave(connection)
            connection.give_up(
                f"it was not authenticated within {timeout_s:g} s (flint.authentication.timeout.ms)"
            )
