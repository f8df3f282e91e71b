"""The listeners that are open, and how they change while the broker runs.

A change is made in two steps. `prepare` does all that may fail: it loads certificates and binds the new sockets,
while everything open stays as it is. Then the change is committed or abandoned. Connections of a listener that is
closed get the responses to what was dispatched, and are closed then.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flintmq.effects import Executor
from flintmq.errors import ConfigurationError
from flintmq.server.binding import BACKLOG, ListenerPortTaken, bind_all, size_buffers
from flintmq.server.connection import Connection
from flintmq.server.context import ServerContext
from flintmq.settings import BrokerConfig, Listener
from flintmq.settings.listeners import protocols_of

if TYPE_CHECKING:
    from flintmq.server.tls.certificates import Certificates, ListenerTls
    from flintmq.server.tls.connection import TlsBuffers

logger = logging.getLogger(__name__)

DRAIN_S = 5.0
_DRAIN_STEP_S = 0.01
_EVERY_INTERFACE = ("::", "0.0.0.0")  # nosec B104


class OpenListener:
    """One address that is listened on."""

    __slots__ = ("bound", "server", "sock", "sockname", "wanted")

    def __init__(
        self, wanted: Listener, bound: Listener, sock: socket.socket, server: asyncio.AbstractServer
    ) -> None:
        self.wanted = wanted
        """As the settings name it: the port may be 0."""
        self.bound = bound
        self.sock = sock
        self.sockname: tuple[str, int] = sock.getsockname()[:2]
        self.server = server

    def accepted(self, connection: Connection) -> bool:
        session = connection.session
        host, port = self.sockname
        return (
            session.listener == self.bound.name
            and session.local_port == port
            and host in (*_EVERY_INTERFACE, session.local_host)
        )


class OpenListeners:
    def __init__(self, shared: ServerContext, executor: Executor, config: Callable[[], BrokerConfig]) -> None:
        self._shared = shared
        self._executor = executor
        self._config = config
        self._tls_buffers: TlsBuffers | None = None
        self._draining: set[asyncio.Task[None]] = set()
        self.certificates: Certificates | None = None
        """None until there is a listener with TLS: a broker without starts sooner."""
        self.open: list[OpenListener] = []

    @property
    def bound(self) -> list[Listener]:
        return [one.bound for one in self.open]

    async def prepare(self, config: BrokerConfig) -> ListenerChange:
        """Raise ConfigurationError if these settings cannot be served; nothing is changed then."""
        certificates, added_tls = await self._prepare_certificates(config)
        kept, added = self._compare(config.listeners)
        change = ListenerChange(self, config, kept, certificates, added_tls)
        try:
            await self._bind(added, change)
        except BaseException:
            change.abandon()
            raise
        return change

    def close(self) -> None:
        """Accept nothing more."""
        for one in self.open:
            one.server.close()
        for task in self._draining:
            task.cancel()

    # ---- the steps of a change

    async def _prepare_certificates(
        self, config: BrokerConfig
    ) -> tuple[Certificates | None, dict[str, ListenerTls]]:
        certificates = self.certificates
        if certificates is None:
            if not any(protocol.has_tls for protocol in protocols_of(config).values()):
                return None, {}
            from flintmq.server.tls.certificates import Certificates

            certificates = Certificates(self._config, self._executor.run)
        return certificates, await certificates.check(config)

    def _compare(self, wanted: Sequence[Listener]) -> tuple[list[OpenListener], list[Listener]]:
        """Return the open listeners that stay, and the addresses that are to be opened."""
        candidates = list(self.open)
        kept: list[OpenListener] = []
        added: list[Listener] = []
        for listener in wanted:
            # The address that a port 0 became may be named, too.
            found = next((one for one in candidates if listener in (one.wanted, one.bound)), None)
            if found is None:
                added.append(listener)
            else:
                candidates.remove(found)
                kept.append(found)
        return kept, added

    async def _bind(self, added: Sequence[Listener], change: ListenerChange) -> None:
        free: list[Listener] = []
        for listener in added:
            sock = self._inherited(listener, change)
            if sock is None:
                free.append(listener)
            else:
                await change.add(listener, listener, sock)
        try:
            # In a thread: a host name may have to be looked up.
            others = len(change.kept) + len(added) - len(free)
            bound = await self._executor.run(partial(bind_all, free, others=others)) if free else []
        except ListenerPortTaken as error:
            if not self.open:
                raise
            own = next((one.bound for one in self.open if one.bound.port == error.listener.port), None)
            reason = (
                "another process listens on this port; choose another port"
                if own is None
                else f"the broker itself listens on {own}; write that address as it is, or choose another port"
            )
            raise ConfigurationError(
                f"Cannot listen on {error.listener}: {reason}. Nothing has been changed."
            ) from error
        for at, (wanted, got, sock) in enumerate(bound):
            try:
                await change.add(wanted, got, sock)
            except BaseException:
                for _, _, unused in bound[at:]:
                    unused.close()
                raise

    def _inherited(self, listener: Listener, change: ListenerChange) -> socket.socket | None:
        """Return the socket of a listener that is closed, if another one takes over its address."""
        for one in self.open:
            if one not in change.kept and (one.bound.host, one.bound.port) == (listener.host, listener.port):
                return one.sock.dup()
        return None

    def connection_factory(
        self, name: str, config: BrokerConfig, tls: ListenerTls | None
    ) -> Callable[[], Connection]:
        """Return what is called for each new connection."""
        protocol = protocols_of(config)[name]
        if tls is None:
            return partial(Connection, self._shared, name, protocol.value)
        from flintmq.server.tls.connection import TlsBuffers, TlsConnection

        if self._tls_buffers is None:
            self._tls_buffers = TlsBuffers()
        return partial(TlsConnection, self._shared, name, protocol.value, tls, self._tls_buffers)

    async def create_server(
        self, factory: Callable[[], Connection], sock: socket.socket, config: BrokerConfig
    ) -> asyncio.AbstractServer:
        size_buffers(sock, config)
        return await self._shared.loop.create_server(factory, sock=sock, backlog=BACKLOG, start_serving=False)

    def drain(self) -> None:
        """Close the connections of listeners that are not open any more, once what was dispatched is answered."""
        orphans = [one for one in self._shared.connections if not any(at.accepted(one) for at in self.open)]
        if not orphans:
            return
        for connection in orphans:
            connection.finish()
        task = self._shared.loop.create_task(self._close_answered(orphans))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _close_answered(self, connections: Sequence[Connection]) -> None:
        loop = self._shared.loop
        deadline = loop.time() + DRAIN_S
        left = list(connections)
        while left:
            is_over = loop.time() >= deadline
            for connection in left:
                if is_over or not connection.is_writing:
                    connection.close()
            left = [one for one in left if not one.transport.is_closing()]
            if left:
                await asyncio.sleep(_DRAIN_STEP_S)
        logger.info("closed %d connections of listeners that are closed", len(connections))


class ListenerChange:
    """A change that is prepared: its new sockets are bound and nothing is accepted from them yet."""

    def __init__(
        self,
        listeners: OpenListeners,
        config: BrokerConfig,
        kept: list[OpenListener],
        certificates: Certificates | None,
        added_tls: dict[str, ListenerTls],
    ) -> None:
        self._listeners = listeners
        self._config = config
        self._certificates = certificates
        self._added_tls = added_tls
        self._added: list[OpenListener] = []
        self.kept = kept

    @property
    def is_empty(self) -> bool:
        return not self._added and len(self.kept) == len(self._listeners.open)

    async def add(self, wanted: Listener, bound: Listener, sock: socket.socket) -> None:
        name, config, certificates = wanted.name, self._config, self._certificates
        tls = self._added_tls.get(name)
        if tls is None and certificates is not None:
            tls = certificates.listeners.get(name)
        factory = self._listeners.connection_factory(name, config, tls)
        server = await self._listeners.create_server(factory, sock, config)
        self._added.append(OpenListener(wanted, bound, sock, server))

    async def commit(self) -> None:
        """Open the new listeners, and close those that are not wanted any more."""
        if self.is_empty:
            return
        owner = self._listeners
        before, added = owner.open, self._added
        closed = [one for one in before if one not in self.kept]
        self._take_certificates()
        order = [*self._config.listeners]
        owner.open = sorted([*self.kept, *added], key=lambda one: _position(order, one))
        self._added = []
        # ORDER: an address that is taken over has one server at a time; its clients wait in the backlog.
        for one in closed:
            one.server.close()
        for one in added:
            await one.server.start_serving()
        owner.drain()
        if before:
            _log_change(added, closed)

    def abandon(self) -> None:
        """Close what was bound. Does nothing after `commit`."""
        for one in self._added:
            one.server.close()
        self._added = []

    def _take_certificates(self) -> None:
        certificates = self._certificates
        if certificates is None:
            return
        certificates.take(self._added_tls, {listener.name for listener in self._config.listeners})
        self._listeners.certificates = certificates


def _position(order: Sequence[Listener], one: OpenListener) -> int:
    return next(at for at, listener in enumerate(order) if listener in (one.wanted, one.bound))


def _log_change(added: Sequence[OpenListener], closed: Sequence[OpenListener]) -> None:
    if added:
        logger.info("listening on %s as well", ", ".join(str(one.bound) for one in added))
    if closed:
        logger.info("not listening on %s any more", ", ".join(str(one.bound) for one in closed))
