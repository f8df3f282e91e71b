"""Which address a client is told (N8). One rule for every answer that carries one. Pure.

With `advertised.listeners`, the one configured for the listener that the client came by; without, the address
of its own connection, so that localhost, a name on the network and IPv6 all work unconfigured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flintmq.broker.request import ClientSession
from flintmq.settings import Listener


@dataclass(frozen=True, slots=True)
class Endpoint:
    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoints:
    def __init__(self, *, node_id: int, rack: str | None, advertised: Sequence[Listener]) -> None:
        self._node_id = node_id
        self._rack = rack
        self.advertise(advertised)

    def advertise(self, advertised: Sequence[Listener]) -> None:
        self._advertised = {listener.name: listener for listener in advertised}

    def of(self, session: ClientSession) -> list[Endpoint]:
        """Every broker, as this client reaches it."""
        listener = self._advertised.get(session.listener)
        if listener is not None:
            host, port = listener.host, listener.port
        else:
            # An IPv4 client of a dual-stack socket sees ::ffff:…, which it cannot always connect to.
            host, port = session.local_host.removeprefix("::ffff:"), session.local_port
        return [Endpoint(self._node_id, host, port, self._rack)]
