"""A request in flight, and what is known of the connection it came by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from flintmq.metrics import UNCOUNTED, ApiCounters
from flintmq.security.authentication.exchange import SaslExchange
from flintmq.security.authorization.authorizer import SessionRights
from flintmq.security.principal import ANONYMOUS, Principal
from flintmq.security.quotas.client_quotas import ClientLimits
from flintmq.storage.segment import FileRange

if TYPE_CHECKING:
    from flintmq.broker.apis import Api

ResponseBuffer = bytes | bytearray | memoryview | FileRange
ResponseBuffers = list[ResponseBuffer]


class ClientSession:
    """Who is at the other end of a connection: carried by every request."""

    __slots__ = (
        "client_software", "expires_at", "is_authenticated", "limits", "limits_client_id", "limits_epoch",
        "limits_principal", "listener", "local_host", "local_port", "peer", "peer_host", "principal", "rights",
        "sasl", "security_protocol", "ssl_peer", "token_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        listener: str,
        peer: str,
        local_host: str,
        local_port: int,
        security_protocol: str = "PLAINTEXT",
    ) -> None:
        self.listener = listener
        self.peer = peer
        self.peer_host = peer
        self.local_host = local_host
        self.local_port = local_port
        self.security_protocol = security_protocol
        self.principal: Principal = ANONYMOUS
        self.is_authenticated = True
        """False on SASL listeners until the client has authenticated, and while it authenticates again."""
        self.token_id = ""
        """The id of the delegation token that it authenticated with; empty if it used none."""
        self.expires_at: float | None = None
        """The monotonic time after which the client must authenticate again; None if never (KIP-368)."""
        self.ssl_peer: str | None = None
        """The distinguished name of the client's certificate."""
        self.sasl: SaslExchange | None = None
        if security_protocol.startswith("SASL_"):
            self.is_authenticated = False
            self.sasl = SaslExchange()
        self.rights: SessionRights | None = None
        """What the authorizer has decided for the principal; None until it is asked."""
        self.client_software: tuple[str, str] | None = None
        """Name and version, from ApiVersions (KIP-511)."""
        # The quotas of the last request's client id, for as long as the epoch is that of the quotas.
        self.limits: ClientLimits | None = None
        self.limits_client_id: str | None = None
        self.limits_principal: Principal = ANONYMOUS
        self.limits_epoch = -1

    @property
    def token_authenticated(self) -> bool:
        return bool(self.token_id)


class ResponseChannel(Protocol):
    """What dispatch and handlers need of a connection."""

    session: ClientSession

    def send_response(self, request: Request) -> None:
        """Send `request.response` as soon as the responses of all earlier requests are sent."""
        ...

    def refuse(self, reason: str) -> None:
        """Close the connection, because of what the client sent."""
        ...

    def authenticated(self) -> None:
        """Lift the limits of connections that are not authenticated: `session` says that this one is."""
        ...

    def throttle(self, delay_s: float) -> None:
        """Read nothing more for that long (KIP-219); responses are sent."""
        ...

    def reject(self, request: Request, response: ResponseBuffers, reason: str, delay_s: float) -> None:
        """Read and keep nothing more, send the response of `request` after the delay, and close.

        For a failed authentication: guessing takes the client time, and nothing else.
        """
        ...


class DelayedOperation(Protocol):
    """A request that waits for an event or for its timeout."""

    def cancel(self) -> None:
        """Stop waiting: the connection is gone and the response is not needed."""
        ...

    def expire(self) -> None:
        """Respond now with what there is."""
        ...


class Request:
    __slots__ = (
        "_failed", "api", "barrier", "began", "body_position", "charged_until", "client_id", "connection",
        "correlation_id", "counters", "delayed", "frame", "limits", "response", "size", "throttled_until", "version",
    )  # fmt: skip

    def __init__(
        self,
        connection: ResponseChannel,
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
        # Valid until the handler returns, then None: a handler that responds later copies what it needs.
        self.frame: memoryview | None = frame
        self.body_position = body_position
        self.response: ResponseBuffers | None = None
        """The encoded response; an empty list for a request that has none (Produce with acks=0)."""
        self.delayed: DelayedOperation | None = None
        """Set while the request waits; ended with the connection or the broker."""
        self.barrier = False
        """No later request of the connection is dispatched before this one has its response."""
        self.counters = counters
        self.began = began
        self.size = len(frame)
        self.limits: ClientLimits | None = None
        """The quotas of the client; None if it has none."""
        self.charged_until = began
        """Time on the loop up to here is counted in the client's `request_percentage`."""
        self.throttled_until = 0.0
        """Set by a handler that exceeded a quota of the client."""
        self._failed: set[int] | None = None

    @property
    def session(self) -> ClientSession:
        return self.connection.session

    def failed(self, code: int) -> None:
        """Count an error code of the response; once per request, however often the response holds it."""
        if self._failed is None:
            self._failed = set()
        if code not in self._failed:
            self._failed.add(code)
            self.counters.errors[code] += 1

    def respond(self, response: ResponseBuffers) -> None:
        """Set the response; once the handler has returned, send it too."""
        self.response = response
        if self.frame is None:
            self.connection.send_response(self)
