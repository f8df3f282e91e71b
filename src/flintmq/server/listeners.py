"""The sockets that listen, and all connections that came by them."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import select
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flintmq.broker.request import ClientSession
from flintmq.effects import Executor
from flintmq.errors import ConfigurationError
from flintmq.metrics import ConnectionCounters
from flintmq.server.closed_connections import CloseReason
from flintmq.server.connection import Connection
from flintmq.server.context import RequestDispatcher, ServerContext
from flintmq.server.inbound_budget import InboundBudget
from flintmq.settings import BrokerConfig, Listener
from flintmq.settings.listeners import protocols_of

if TYPE_CHECKING:
    from flintmq.server.tls.certificates import Certificates

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_SWEEPS_PER_IDLE_TIME = 20
_HUNG_UP = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
_DRAIN_STEP_S = 0.01
_CLOSING_S = 1.0
_PORT_ATTEMPTS = 16
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
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._finished = 0
        self._stuck_sweeps = 0
        self.bound: list[Listener] = []
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
        self._executor = executor
        self._certificates: Certificates | None = None
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

    async def start(self) -> None:
        config = self._config()
        factories = await self._connection_factories(config)
        for listener, sock in bind_all(config.listeners):
            _size_buffers(sock, config)
            server = await self._loop.create_server(factories[listener.name], sock=sock, backlog=_BACKLOG)
            self._servers.append(server)
            self.bound.append(listener)
        self._schedule_sweep()

    async def _connection_factories(self, config: BrokerConfig) -> dict[str, Callable[[], Connection]]:
        """What is called for each new connection, by the name of the listener."""
        protocols = protocols_of(config)
        factories: dict[str, Callable[[], Connection]] = {}
        for name, protocol in protocols.items():
            if not protocol.has_tls:
                factories[name] = partial(Connection, self._shared, name, protocol.value)
        if any(protocol.has_tls for protocol in protocols.values()):
            # Only here: a broker without TLS starts sooner.
            from flintmq.server.tls.certificates import Certificates
            from flintmq.server.tls.connection import TlsBuffers, TlsConnection

            self._certificates = certificates = Certificates(self._config, self._executor.run)
            await certificates.load()
            buffers = TlsBuffers()
            for name, tls in certificates.listeners.items():
                factories[name] = partial(
                    TlsConnection, self._shared, name, protocols[name].value, tls, buffers
                )
        return factories

    # ---- certificates

    async def check_settings(self, config: BrokerConfig) -> None:
        """Raise ConfigurationError if TLS cannot be served with these settings."""
        if self._certificates is not None:
            await self._certificates.check(config)
            # The same path once more is a way to ask for a changed file to be loaded.
            self.refresh_certificates()

    def refresh_certificates(self) -> None:
        """Load keys and certificates whose settings or files changed; connections stay."""
        if self._certificates is None:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._loop.create_task(self._certificates.refresh())
        else:
            self._certificates.look_again()

    def certificate_expiry(self) -> dict[str, float]:
        """When the certificate of each listener with TLS expires, in seconds since the epoch."""
        if self._certificates is None:
            return {}
        return {name: one.context.certificate.not_after for name, one in self._certificates.listeners.items()}

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
        for server in self._servers:
            server.close()
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


def _size_buffers(sock: socket.socket, config: BrokerConfig) -> None:
    """Accepted sockets inherit the sizes of the one that listens."""
    if config.socket_send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
    if config.socket_receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)


def bind_all(listeners: Sequence[Listener]) -> list[tuple[Listener, socket.socket]]:
    """A socket for every listener, with the port that it got.

    Port 0 is a free port, the same for all addresses of a name (another for an address that comes again).
    """
    for attempt in range(_PORT_ATTEMPTS):
        bound: list[tuple[Listener, socket.socket]] = []
        try:
            for listener in listeners:
                sock = _bind_next(listener, bound, optional=len(listeners) > 1 and listener.host == "::1")
                if sock is not None:
                    bound.append((Listener(listener.name, listener.host, sock.getsockname()[1]), sock))
        except _PortTaken as error:
            for _, sock in bound:
                sock.close()
            # The port was free for one address and taken for another: only a port that was chosen may change.
            if attempt + 1 < _PORT_ATTEMPTS and any(listener.port == 0 for listener in listeners):
                continue
            raise ConfigurationError(str(error)) from error
        except ConfigurationError:
            for _, sock in bound:
                sock.close()
            raise
        return bound
    raise AssertionError("the last attempt returns or raises")


class _PortTaken(ConfigurationError):
    """Somebody else listens there."""


def _bind_next(
    listener: Listener, bound: Sequence[tuple[Listener, socket.socket]], *, optional: bool
) -> socket.socket | None:
    port = listener.port
    if not port:
        taken = [one.port for one, _ in bound if one.name == listener.name and one.host == listener.host]
        offered = [one.port for one, _ in bound if one.name == listener.name and one.port not in taken]
        port = offered[-1] if offered else 0
    return _bind(listener, port, optional=optional)


def _bind(listener: Listener, port: int, *, optional: bool) -> socket.socket | None:
    """A bound socket; None if the address may be missing on this machine and is."""
    host = listener.host
    family = socket.AF_INET6 if ":" in host or (not host and socket.has_ipv6) else socket.AF_INET
    try:
        info = socket.getaddrinfo(host or None, port, family, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)[0]
        sock = socket.socket(info[0], socket.SOCK_STREAM)
    except OSError as error:
        if optional:
            return None
        raise ConfigurationError(f"Cannot listen on {listener}: {error}.") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if info[0] == socket.AF_INET6:
            # Every interface means both families; an IPv6 address alone must leave IPv4's port free.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        sock.bind(info[4])
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if optional and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        if error.errno == errno.EADDRINUSE:
            raise _PortTaken(
                f"Cannot listen on {listener}: {error.strerror}. Another broker may be running; choose "
                "another port with --port."
            ) from error
        raise ConfigurationError(f"Cannot listen on {listener}: {error.strerror}.") from error
    return sock
