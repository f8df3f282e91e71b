"""One connection to one broker: versions are settled first, then requests are answered in their order.

Invariant: after ConnectionLost or a ProtocolError the connection is closed, for nobody knows what was
carried out. This module must not know other brokers, and retries nothing.
"""

from __future__ import annotations

from typing import TypeVar

from flintmq import __version__
from flintmq.client.addresses import Address
from flintmq.client.api_versions import ServedVersions, next_attempt
from flintmq.client.errors import ConnectionLost, check
from flintmq.client.transport import Transport
from flintmq.client.wire import Allocate, ClientProtocol
from flintmq.effects import Clock
from flintmq.errors import ProtocolError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

M = TypeVar("M", bound=Message)

_SOFTWARE = "flintmq"


class BrokerConnection:
    def __init__(
        self,
        address: Address,
        transport: Transport,
        *,
        clock: Clock,
        client_id: str,
        allocate: Allocate = bytearray,
    ) -> None:
        self.address = address
        self.is_open = True
        self.greeting = ApiVersionsResponse()
        """What the broker said of itself: its APIs and the cluster's features."""
        self.served = ServedVersions({})
        self._transport = transport
        self._clock = clock
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

    def call(
        self, request: Message, response_type: type[M], timeout_s: float, *, highest: int | None = None
    ) -> M:
        self.send(request, timeout_s, highest=highest)
        return self.receive(response_type, timeout_s)

    def send(
        self, request: Message, timeout_s: float, *, highest: int | None = None, expects_response: bool = True
    ) -> None:
        """Send without waiting. `highest` bounds the version chosen."""
        version = self.served.choose(type(request), highest=highest)
        self._send(self._wire.request(request, version, expects_response=expects_response), timeout_s)

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
                    raise self._lost("the broker closed it", by_broker=True)
                self._wire.received(count)
        except TimeoutError:
            raise self._lost(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            raise self._broken(error) from error
        except ProtocolError:
            self.close()
            raise
        if not isinstance(message, response_type):
            self.close()
            raise ProtocolError(f"{type(message).__name__} came where {response_type.__name__} was expected")
        return message

    def _send(self, data: bytes, timeout_s: float) -> None:
        try:
            self._transport.send(data, timeout_s)
        except TimeoutError:
            raise self._lost(f"the broker took nothing for {timeout_s:g} s") from None
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
