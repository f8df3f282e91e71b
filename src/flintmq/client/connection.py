"""One connection to one broker: versions are settled first, then requests are answered in their order.

Invariant: after ConnectionLost or a ProtocolError the connection is closed, for nobody knows what was
carried out. This module must not know other brokers, and retries nothing.
"""

from __future__ import annotations

from typing import TypeVar

from flintmq import __version__
from flintmq.client.addresses import Address
from flintmq.client.api_versions import ServedVersions, next_attempt
from flintmq.client.credentials.bearer_tokens import TokenError
from flintmq.client.credentials.login import Login
from flintmq.client.errors import AuthenticationFailed, ConnectionLost, NoBrokerReached, check
from flintmq.client.sasl import SaslClientError
from flintmq.client.security import PLAINTEXT
from flintmq.client.transport import Transport
from flintmq.client.wire import Allocate, ClientProtocol
from flintmq.effects import Clock
from flintmq.errors import ConfigurationError, ErrorCode, ProtocolError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

M = TypeVar("M", bound=Message)

_SOFTWARE = "flintmq"
_REAUTHENTICATE_AFTER = 0.85
"""Of a session's lifetime: as Java clients have it, so that the broker never finds it expired."""


class BrokerConnection:
    def __init__(
        self,
        address: Address,
        transport: Transport,
        *,
        clock: Clock,
        client_id: str,
        allocate: Allocate = bytearray,
        login: Login | None = None,
    ) -> None:
        self.address = address
        self.is_open = True
        self.greeting = ApiVersionsResponse()
        """What the broker said of itself: its APIs and the cluster's features."""
        self.served = ServedVersions({})
        self._transport = transport
        self._clock = clock
        self._login = login or Login(PLAINTEXT, clock)
        self._security = self._login.security
        self._reauthenticate_at: float | None = None
        self._is_accepted = False
        """Whether the broker answered anything but ApiVersions."""
        self._wire = ClientProtocol(client_id, allocate)

    def negotiate(self, timeout_s: float) -> None:
        """Ask what the broker serves. Nothing else can be sent before."""
        version: int | None = ApiVersionsRequest.versions[1]
        while version is not None:
            request = ApiVersionsRequest()
            if version >= 3:
                request.client_software_name, request.client_software_version = _SOFTWARE, __version__
            self._send(self._wire.request(request, version), timeout_s)
            self.greeting = self.receive(ApiVersionsResponse, timeout_s)
            version = next_attempt(self.greeting, version)
        check(self.greeting.error_code)
        self.served = ServedVersions.of(self.greeting)

    def authenticate(self, timeout_s: float) -> None:
        """Prove who the client is, if the listener asks for it (`negotiate` comes first)."""
        if not self._security.has_sasl:
            return
        self._handshake(timeout_s)
        try:
            client = self._login.begin()
        except TokenError as error:
            self.close()
            if error.is_final:
                raise AuthenticationFailed(self.address, str(error), by_broker=False) from None
            raise NoBrokerReached([(self.address, f"it requires a token: {error}")]) from None
        except ConfigurationError:
            self.close()
            raise
        token: bytes | None = client.first()
        while token is not None:
            version = self.served.choose(SaslAuthenticateRequest)
            self._send(self._wire.request(SaslAuthenticateRequest(auth_bytes=token), version), timeout_s)
            response = self.receive(SaslAuthenticateResponse, timeout_s)
            if response.error_code != ErrorCode.NONE:
                raise self._rejected(response.error_message or ErrorCode(response.error_code).name)
            try:
                token = client.next(bytes(response.auth_bytes))
            except SaslClientError as error:
                raise self._rejected(str(error)) from None
        lifetime_s = response.session_lifetime_ms / 1000
        self._reauthenticate_at = (
            self._clock.monotonic() + lifetime_s * _REAUTHENTICATE_AFTER if lifetime_s > 0 else None
        )

    def _handshake(self, timeout_s: float) -> None:
        mechanism = self._security.mechanism
        request = SaslHandshakeRequest(mechanism=mechanism)
        self._send(self._wire.request(request, self.served.choose(SaslHandshakeRequest)), timeout_s)
        response = self.receive(SaslHandshakeResponse, timeout_s)
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(response.mechanisms)
            raise self._rejected(f"it does not accept {mechanism}; set sasl.mechanism to one of {enabled}")
        if response.error_code != ErrorCode.NONE:
            protocol = "SSL" if self._security.has_tls else "PLAINTEXT"
            raise self._rejected(f"the listener has no SASL; set security.protocol={protocol}")

    def _rejected(self, reason: str) -> AuthenticationFailed:
        self.close()
        return AuthenticationFailed(self.address, reason)

    def call(
        self, request: Message, response_type: type[M], timeout_s: float, *, highest: int | None = None
    ) -> M:
        self.send(request, timeout_s, highest=highest)
        return self.receive(response_type, timeout_s)

    def send(
        self, request: Message, timeout_s: float, *, highest: int | None = None, expects_response: bool = True
    ) -> None:
        """Send without waiting. `highest` bounds the version chosen."""
        if self._reauthenticate_at is not None and not self._wire.in_flight:
            self._reauthenticate(timeout_s)
        version = self.served.choose(type(request), highest=highest)
        self._send(self._wire.request(request, version, expects_response=expects_response), timeout_s)

    def _reauthenticate(self, timeout_s: float) -> None:
        """Authenticate again before the session ends (KIP-368); only while no response is awaited."""
        if self._reauthenticate_at is not None and self._clock.monotonic() >= self._reauthenticate_at:
            self._reauthenticate_at = None
            self.authenticate(timeout_s)

    def receive(self, response_type: type[M], timeout_s: float) -> M:
        """The answer to the oldest request that has none yet."""
        deadline = self._clock.monotonic() + timeout_s
        try:
            while (message := self._wire.next_response()) is None:
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                count = self._transport.receive(self._wire.room(), left_s)
                if not count:
                    raise self._lost(self._why_closed(), by_broker=True)
                self._wire.received(count)
        except TimeoutError:
            raise self._lost(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise self._broken(error) from error
        except (ProtocolError, AuthenticationFailed):
            self.close()
            raise
        self._is_accepted = self._is_accepted or response_type is not ApiVersionsResponse
        if not isinstance(message, response_type):
            self.close()
            raise ProtocolError(f"{type(message).__name__} came where {response_type.__name__} was expected")
        return message

    def _why_closed(self) -> str:
        if len(self.served) and not self._is_accepted and not self._security.has_sasl:
            return (
                "the broker closed it at the first request; if the listener has SASL, set security.protocol"
            )
        return "the broker closed it"

    def _send(self, data: bytes, timeout_s: float) -> None:
        try:
            self._transport.send(data, timeout_s)
        except TimeoutError:
            raise self._lost(f"the broker took nothing for {timeout_s:g} s") from None
        except AuthenticationFailed:
            self.close()
            raise
        except OSError as error:
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> ConnectionLost:
        by_broker = isinstance(error, ConnectionResetError | BrokenPipeError)
        return self._lost(error.strerror or str(error), by_broker=by_broker)

    def _lost(self, reason: str, *, by_broker: bool = False) -> ConnectionLost:
        self.close()
        return ConnectionLost(self.address, reason, by_broker=by_broker)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._transport.close()
