"""The addresses that clients get (N8): one rule for every response that carries one. Pure.

In a cluster, each broker's registration says where it is reached, by listener. A standalone broker answers with
`advertised.listeners`, the one configured for the listener that the client came by; without them, with the address of
the client's own connection, so that localhost, a name on the network and IPv6 all work unconfigured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flintmq.broker.request import ClientSession
from flintmq.metadata.image import BrokerImage
from flintmq.protocol.leader_hints import NodeEndpoint
from flintmq.settings import Listener


def _standalone() -> Mapping[int, BrokerImage]:
    return {}


class Endpoints:
    def __init__(
        self,
        *,
        node_id: int,
        rack: str | None,
        advertised: Sequence[Listener],
        brokers: Callable[[], Mapping[int, BrokerImage]] = _standalone,
    ) -> None:
        """`brokers` returns the brokers that are registered now; none on a standalone broker."""
        self._node_id = node_id
        self._rack = rack
        self._brokers = brokers
        self.advertise(advertised)

    def advertise(self, advertised: Sequence[Listener]) -> None:
        self._advertised = {listener.name: listener for listener in advertised}

    def of(self, session: ClientSession) -> list[NodeEndpoint]:
        """Every broker that this client can reach."""
        brokers = self._brokers()
        if not brokers:
            return [self._own(session)]
        found = (_registered(brokers[node_id], session.listener) for node_id in sorted(brokers))
        return [endpoint for endpoint in found if endpoint is not None]

    def of_node(self, node_id: int, session: ClientSession) -> NodeEndpoint | None:
        """One broker as this client reaches it; None if it does not."""
        brokers = self._brokers()
        if not brokers:
            return self._own(session) if node_id == self._node_id else None
        broker = brokers.get(node_id)
        return None if broker is None else _registered(broker, session.listener)

    def _own(self, session: ClientSession) -> NodeEndpoint:
        listener = self._advertised.get(session.listener)
        if listener is not None:
            host, port = listener.host, listener.port
        else:
            # An IPv4 client of a dual-stack socket sees ::ffff:…, which it cannot always connect to.
            host, port = session.local_host.removeprefix("::ffff:"), session.local_port
        return NodeEndpoint(self._node_id, host, port, self._rack)


def _registered(broker: BrokerImage, listener: str) -> NodeEndpoint | None:
    for one in broker.value.listeners:
        if one.name == listener:
            return NodeEndpoint(broker.id, one.host, one.port, broker.value.rack)
    return None
