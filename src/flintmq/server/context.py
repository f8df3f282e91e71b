"""What all connections of a server have in common."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.effects import Executor
from flintmq.metrics import ConnectionCounters
from flintmq.server.closed_connections import ClosedConnectionLog
from flintmq.server.inbound import GROWTH_MIN, SHARED_BYTES, UNLIMITED
from flintmq.server.inbound_budget import InboundBudget
from flintmq.server.outbound_budget import OutboundBudget
from flintmq.server.unauthenticated import UnauthenticatedConnections
from flintmq.settings import BrokerConfig

if TYPE_CHECKING:
    from flintmq.broker.request import ClientSession, Request
    from flintmq.server.connection import Connection

logger: Final = logging.getLogger("flintmq.server.connection")

# What all clients together may let pile up in memory.
BACKLOGS_BYTES_MAX: Final = 64 * 1024 * 1024


class RequestDispatcher(Protocol):
    def dispatch(self, connection: Connection, frame: memoryview) -> Request | None:
        """Handle one frame. A request that is not answered yet will call `connection.send_response`."""
        ...


class ServerContext:
    """What all connections of a server have in common."""

    __slots__ = (
        "admits", "backlog", "budget", "buffer", "connections", "counters", "dispatcher", "draining", "executor",
        "frame_size_max", "in_flight_max", "loop", "on_closed", "on_handshake", "ordinary_frame_size_max",
        "refusals", "throttled", "turned_away", "turned_away_s", "unauthenticated", "unauthenticated_frame_size_max",
    )  # fmt: skip

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        dispatcher: RequestDispatcher,
        executor: Executor,
        budget: InboundBudget,
        frame_size_max: int,
        in_flight_max: int,
        admits: Callable[[Connection], str | None],
        on_closed: Callable[[Connection], object],
        turned_away_s: Callable[[Connection], float] | None = None,
        ordinary_frame_size_max: int = UNLIMITED,
        unauthenticated_frame_size_max: int = GROWTH_MIN,
        counters: ConnectionCounters | None = None,
        config: Callable[[], BrokerConfig] = BrokerConfig,
        on_handshake: Callable[[ClientSession, str | None], object] | None = None,
    ) -> None:
        self.loop = loop
        self.on_handshake = on_handshake
        """Called with None when a client has shown its certificate, and with the reason when a handshake failed."""
        self.dispatcher = dispatcher
        self.executor = executor
        self.budget = budget
        self.frame_size_max = frame_size_max
        self.in_flight_max = in_flight_max
        self.admits = admits
        self.on_closed = on_closed
        self.turned_away_s = turned_away_s
        """After how long a connection is closed because its client connects too often; 0 if it does not."""
        self.ordinary_frame_size_max = ordinary_frame_size_max
        """For all but those that write records."""
        self.unauthenticated_frame_size_max = unauthenticated_frame_size_max
        self.counters = counters or ConnectionCounters()
        self.connections: dict[Connection, None] = {}
        self.buffer = memoryview(bytearray(SHARED_BYTES))
        self.draining = False
        """The server stops: what is dispatched is answered, nothing more is dispatched or read."""
        self.backlog: OutboundBudget[Connection] = OutboundBudget(BACKLOGS_BYTES_MAX)
        self.throttled: dict[Connection, None] = {}
        """Not read from, because their clients exceeded a quota."""
        self.turned_away: dict[Connection, None] = {}
        """Never read from, and closed soon."""
        self.refusals = ClosedConnectionLog(loop, logger)
        self.unauthenticated: UnauthenticatedConnections[Connection] = UnauthenticatedConnections(
            loop, config
        )
        """Of listeners with TLS or SASL; one that is known leaves it."""
