"""A server: its listeners, and all connections that came by them, with their limits."""

from __future__ import annotations

import asyncio
import logging
import resource
import select
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flintmq.broker.request import ClientSession
from flintmq.effects import Executor
from flintmq.metrics import ConnectionCounters
from flintmq.server.closed_connections import CloseReason
from flintmq.server.connection import Connection
from flintmq.server.context import RequestDispatcher, ServerContext
from flintmq.server.inbound_budget import InboundBudget
from flintmq.server.open_listeners import ListenerChange, OpenListeners
from flintmq.settings import BrokerConfig, Listener

logger = logging.getLogger(__name__)

_SWEEPS_PER_IDLE_TIME = 20
_HUNG_UP = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
_DRAIN_STEP_S = 0.01
_CLOSING_S = 1.0
_DESCRIPTORS_RESERVED = 256
_UNLIMITED = 1 << 31


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """How long quiet connections keep memory. The `pressed` ones hold while others wait for memory."""

    interval_s: float = 5.0
    pressed_interval_s: float = 1.0
    frame_stall_s: float = 30.0
    """How long a client may stop in the middle of a request."""
    pressed_frame_stall_s: float = 2.0
    stuck_sweeps_max: int = 3
    memory_kept_s: float = 5.0


class Server:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        dispatcher: RequestDispatcher,
        executor: Executor,
        config: Callable[[], BrokerConfig],
        counters: ConnectionCounters | None = None,
        turned_away_s: Callable[[Connection], float] | None = None,
        sweep_limits: SweepLimits | None = None,
        on_handshake: Callable[[ClientSession, str | None], object] | None = None,
    ) -> None:
        settings = config()
        self._sweep_limits = sweep_limits or SweepLimits()
        self._loop = loop
        self._config = config
        self._per_peer: Counter[str] = Counter()
        self._connections_max = _connections_max(settings.flint_segment_descriptors)
        self._sweep: asyncio.TimerHandle | None = None
        self._finished = 0
        self._stuck_sweeps = 0
        self._shared = ServerContext(
            loop=loop,
            dispatcher=dispatcher,
            executor=executor,
            budget=InboundBudget(settings.queued_max_request_bytes),
            frame_size_max=settings.socket_request_max_bytes,
            ordinary_frame_size_max=settings.flint_request_max_bytes,
            in_flight_max=settings.flint_max_requests_in_flight_per_connection,
            admits=self._admits,
            on_closed=self._closed,
            turned_away_s=turned_away_s,
            unauthenticated_frame_size_max=settings.sasl_server_max_receive_size,
            counters=counters,
            config=config,
            on_handshake=on_handshake,
        )
        self._listeners = OpenListeners(self._shared, executor, config)
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def connections(self) -> Sequence[Connection]:
        return list(self._shared.connections)

    @property
    def budget(self) -> InboundBudget:
        return self._shared.budget

    @property
    def throttled(self) -> int:
        """Connections that are not read from because their clients exceeded a quota."""
        return len(self._shared.throttled)

    def unthrottle(self, is_limited: Callable[[Connection], bool]) -> None:
        """Quotas have changed: throttled clients that have none any more need not wait for the end of their time."""
        for connection in list(self._shared.throttled):
            if not is_limited(connection):
                connection.unthrottle()

    @property
    def unauthenticated(self) -> int:
        """Connections in the TLS handshake or in authentication."""
        return len(self._shared.unauthenticated)

    @property
    def bound(self) -> list[Listener]:
        """The addresses that are listened on, with the ports that they got."""
        return self._listeners.bound

    async def start(self) -> None:
        change = await self._listeners.prepare(self._config())
        await change.commit()
        self._schedule_sweep()

    async def prepare(self, config: BrokerConfig) -> ListenerChange:
        """Prepare to serve other settings; raise ConfigurationError if that cannot be, which changes nothing."""
        change = await self._listeners.prepare(config)
        # The same path once more is a way to ask for a changed file to be loaded.
        self.refresh_certificates()
        return change

    # ---- certificates

    def refresh_certificates(self) -> None:
        """Load keys and certificates whose settings or files changed; connections stay."""
        certificates = self._listeners.certificates
        if certificates is None:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._loop.create_task(certificates.refresh())
        else:
            certificates.look_again()

    def certificate_expiry(self) -> dict[str, float]:
        """When the certificate of each listener with TLS expires, in seconds since the epoch."""
        certificates = self._listeners.certificates
        if certificates is None:
            return {}
        return {name: one.context.certificate.not_after for name, one in certificates.listeners.items()}

    def _admits(self, connection: Connection) -> str | None:
        """Why a new connection is not taken, or None."""
        config = self._config()
        peer = connection.session.peer_host
        if len(self._shared.connections) >= config.max_connections:
            return f"{config.max_connections} connections are open (max.connections)"
        if len(self._shared.connections) >= self._connections_max:
            return f"{self._connections_max} connections are open, and the other descriptors are for files"
        if self._per_peer[peer] >= config.max_connections_per_ip:
            return f"{peer} has {config.max_connections_per_ip} connections (max.connections.per.ip)"
        self._per_peer[peer] += 1
        return None

    def _closed(self, connection: Connection) -> None:
        peer = connection.session.peer_host
        self._per_peer[peer] -= 1
        if self._per_peer[peer] <= 0:
            del self._per_peer[peer]

    # ---- idle connections

    def _schedule_sweep(self) -> None:
        limits = self._sweep_limits
        delay_s = limits.pressed_interval_s if self.budget.waiting else limits.interval_s
        idle_s = self._config().connections_max_idle_ms / 1000
        if idle_s > 0:
            delay_s = min(max(idle_s / _SWEEPS_PER_IDLE_TIME, 0.05), delay_s)
        self._sweep = self._loop.call_later(delay_s, self._sweep_idle)

    def _close_deserted(self) -> None:
        """A connection that is not read from does not see its client go, and might wait for years to answer it."""
        unread = {one.fileno: one for one in self.connections if one.is_paused and one.fileno >= 0}
        if unread:
            poll = select.poll()
            for fd in unread:
                poll.register(fd, _HUNG_UP)
            for fd, _ in poll.poll(0):
                unread[fd].close()

    def _relieve(self, pressed: bool) -> None:
        """Unfinished requests fill the memory for them, and for a while none of them got finished."""
        finished = self.budget.finished
        self._stuck_sweeps = self._stuck_sweeps + 1 if pressed and finished == self._finished else 0
        self._finished = finished
        if self._stuck_sweeps > self._sweep_limits.stuck_sweeps_max:
            self._stuck_sweeps = 0
            for owner in self.budget.heaviest():
                assert isinstance(owner, Connection)
                owner.refuse(
                    "large requests fill queued.max.request.bytes and do not go on; this is one of the largest",
                    CloseReason.STALLED,
                )

    def _sweep_idle(self) -> None:
        limits = self._sweep_limits
        idle_s = self._config().connections_max_idle_ms / 1000
        now = self._loop.time()
        self.refresh_certificates()
        self._close_deserted()
        pressed = self.budget.waiting > 0
        self._relieve(pressed)
        for connection in self.connections:
            if connection.outbound.progressed:
                connection.outbound.progressed = False
                connection.active_at = now
            quiet_s = now - connection.active_at
            holds_up_others = pressed and self.budget.is_charged(connection)
            stall_s = limits.pressed_frame_stall_s if holds_up_others else limits.frame_stall_s
            if quiet_s > stall_s and connection.is_stalled:
                connection.refuse(f"a request stopped arriving {quiet_s:.0f} s ago", CloseReason.STALLED)
            elif quiet_s > idle_s > 0 and not connection.in_flight:
                connection.close()
            elif quiet_s > limits.memory_kept_s:
                connection.release_memory()
        self._schedule_sweep()

    # ---- the end

    async def stop(self, grace_s: float) -> None:
        """Take nothing new, let what is being written be answered, then close."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._listeners.close()
        self._shared.draining = True
        for connection in self.connections:
            connection.finish()
        deadline = self._loop.time() + grace_s
        # Polled: to be told would cost every answer something, for the sake of the last.
        while self._loop.time() < deadline and any(c.is_writing for c in self.connections):  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_STEP_S)
        for connection in (*self.connections, *self._shared.turned_away):
            connection.close()
        deadline = self._loop.time() + _CLOSING_S
        while self._shared.connections and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_STEP_S)


def _connections_max(segment_descriptors: int) -> int:
    """How many connections leave descriptors enough for the log files, whatever `max.connections` says.

    A connection may take two, while its client does not take an answer; that one is given up if none is left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _UNLIMITED
    return max(limit - segment_descriptors - _DESCRIPTORS_RESERVED, limit // 4)
