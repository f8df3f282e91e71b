"""A request in flight, and what is known of the connection it came by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flintmq.metrics import UNCOUNTED, ApiCounters
from flintmq.storage.segment import FileRange

if TYPE_CHECKING:
    from flintmq.broker.apis import Api

Piece = bytes | bytearray | memoryview | FileRange
Pieces = list[Piece]


class Session:
    """Who is at the other end: carried by every request."""

    __slots__ = ("client_software", "listener", "local_host", "local_port", "peer", "peer_host", "principal")

    def __init__(self, *, listener: str, peer: str, local_host: str, local_port: int) -> None:
        self.listener = listener
        self.peer = peer
        self.peer_host = peer
        self.local_host = local_host
        self.local_port = local_port
        self.principal = "User:ANONYMOUS"
        self.client_software: tuple[str, str] | None = None
        """Name and version, as ApiVersions told them (KIP-511)."""


class Connection(Protocol):
    """What dispatch needs of a connection."""

    session: Session

    def answered(self, request: Request) -> None:
        """`request.pieces` is set: send it as soon as everything before it is sent."""
        ...

    def refuse(self, reason: str) -> None:
        """Close the connection, because of what the client sent."""
        ...


class DelayedOperation(Protocol):
    """A request that waits for something to happen, or for its time to pass."""

    def cancel(self) -> None:
        """The connection is gone: wait no longer, nobody takes the answer."""
        ...

    def expire(self) -> None:
        """Answer now, with what there is."""
        ...


class Request:
    __slots__ = (
        "_failed", "api", "barrier", "began", "body_position", "client_id", "connection", "correlation_id",
        "counters", "frame", "pieces", "poll", "version",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
        frame: memoryview,
        body_position: int,
        counters: ApiCounters = UNCOUNTED,
        began: float = 0.0,
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        # Valid until the handler returns: a handler that answers later takes what it needs out of it first.
        self.frame: memoryview | None = frame
        self.body_position = body_position
        self.pieces: Pieces | None = None
        """The answer; an empty list for a request that has none (Produce with acks=0)."""
        self.poll: DelayedOperation | None = None
        """Set while it waits, for the end of the connection or of the broker."""
        self.barrier = False
        """While this request is unanswered, none after it is dispatched."""
        self.counters = counters
        self.began = began
        self._failed: set[int] | None = None

    @property
    def session(self) -> Session:
        return self.connection.session

    def failed(self, code: int) -> None:
        """The answer holds an error; counted once for each code, in however many places it stands."""
        if self._failed is None:
            self._failed = set()
        if code not in self._failed:
            self._failed.add(code)
            self.counters.errors[code] += 1

    def answer(self, pieces: Pieces) -> None:
        """For answers that come after the handler has returned."""
        self.pieces = pieces
        self.connection.answered(self)
