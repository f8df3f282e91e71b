"""Bytes to a broker and back: the one place of the client that knows sockets, beside `tls`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from flintmq.client.addresses import Address
from flintmq.effects import Buffer


class Transport(Protocol):
    """Raises OSError, and TimeoutError where the other side says nothing for too long."""

    def send(self, data: Buffer, timeout_s: float) -> None: ...

    def receive(self, room: memoryview, timeout_s: float) -> int:
        """Put there what has arrived, and say how many bytes; none at all if the other side has closed."""
        ...

    def close(self) -> None: ...


Connect = Callable[[Address, float], Transport]
"""Opens a transport to an address, within so many seconds."""


class SocketTransport:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, data: Buffer, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        self._socket.sendall(data)

    def receive(self, room: memoryview, timeout_s: float) -> int:
        self._socket.settimeout(timeout_s)
        return self._socket.recv_into(room)

    def close(self) -> None:
        self._socket.close()


def connect(address: Address, timeout_s: float) -> SocketTransport:
    return SocketTransport(open_socket(address, timeout_s))


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    sock = socket.create_connection(address, timeout_s)
    # Requests are small and each waits for its response: nothing is gained by collecting them.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
