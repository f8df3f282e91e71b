"""Sockets that are bound and listen, one for each address of `listeners`; nothing is accepted here."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from flintmq.errors import ConfigurationError
from flintmq.settings import BrokerConfig, Listener

BACKLOG = 1024
_PORT_ATTEMPTS = 16


def size_buffers(sock: socket.socket, config: BrokerConfig) -> None:
    """Accepted sockets inherit the sizes of the one that listens."""
    if config.socket_send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
    if config.socket_receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)


def bind_all(
    listeners: Sequence[Listener], *, others: int = 0
) -> list[tuple[Listener, Listener, socket.socket]]:
    """Bind every listener: as it is wanted, with the port that it got, and its socket.

    Port 0 is a free port, the same for all addresses of a name (another for an address that comes again). The IPv6
    loopback may be missing on this machine if there is another address, here or among `others`.
    """
    may_be_missing = len(listeners) + others > 1
    for attempt in range(_PORT_ATTEMPTS):
        bound: list[tuple[Listener, Listener, socket.socket]] = []
        try:
            for listener in listeners:
                sock = _bind_next(listener, bound, optional=may_be_missing and listener.host == "::1")
                if sock is not None:
                    got = Listener(listener.name, listener.host, sock.getsockname()[1])
                    bound.append((listener, got, sock))
        except ListenerPortTaken:
            for _, _, sock in bound:
                sock.close()
            # The port was free for one address and taken for another: only a port that was chosen may change.
            if attempt + 1 < _PORT_ATTEMPTS and any(listener.port == 0 for listener in listeners):
                continue
            raise
        except ConfigurationError:
            for _, _, sock in bound:
                sock.close()
            raise
        return bound
    raise AssertionError("the last attempt returns or raises")


class ListenerPortTaken(ConfigurationError):
    """Another socket listens on the address."""

    def __init__(self, listener: Listener, reason: str) -> None:
        super().__init__(
            f"Cannot listen on {listener}: {reason}. Another broker may be running; choose "
            "another port with --port."
        )
        self.listener = listener


def _bind_next(
    listener: Listener, bound: Sequence[tuple[Listener, Listener, socket.socket]], *, optional: bool
) -> socket.socket | None:
    port = listener.port
    if not port:
        taken = [one.port for _, one, _ in bound if one.name == listener.name and one.host == listener.host]
        offered = [one.port for _, one, _ in bound if one.name == listener.name and one.port not in taken]
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
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if optional and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        if error.errno == errno.EADDRINUSE:
            raise ListenerPortTaken(listener, error.strerror or "in use") from error
        raise ConfigurationError(f"Cannot listen on {listener}: {error.strerror}.") from error
    return sock
