"""Requests from this broker to the other brokers of its cluster.

    response = await peers.call(2, FetchRequest(...), FetchResponse, version=17)

Each user has a `Peer` of its own, and so a connection of its own: a fetch that waits for records must not hold up the
markers of a transaction. Invariant: a call either returns the response to its own request, or raises PeerUnreachable,
and then the request may have been carried out. The next call after a failure connects again.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, TypeVar

from flintmq.effects import Buffer, Network, PeerConnection
from flintmq.errors import FlintError, ProtocolError
from flintmq.protocol.codec import decode, encode_into
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import FIRST_FLEXIBLE, response_is_flexible

M = TypeVar("M", bound=Message)

_HEADER: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_MAX: Final = 0x7FFFFFFF
REQUEST_TIMEOUT_S: Final = 30.0


class PeerUnreachable(FlintError):
    """Another broker did not answer. Its answer is not known; the request may have been carried out."""


class Peer:
    """One connection to one broker, made when it is needed. One call at a time."""

    def __init__(
        self, network: Network, node_id: int, client_id: str, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.node_id = node_id
        self._network = network
        self._client_id = client_id.encode()
        self._timeout_s = timeout_s
        self._connection: PeerConnection | None = None
        self._correlation_id = 0

    async def call(self, request: Message, response_type: type[M], version: int) -> M:
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        frame = request_frame(request, version, self._correlation_id, self._client_id)
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._connection is None:
                    self._connection = await self._network.connect(self.node_id)
                response = await self._connection.request(frame)
            return read_response(response, request.api_key, version, self._correlation_id, response_type)
        except (OSError, TimeoutError, ProtocolError) as error:
            self.close()
            raise PeerUnreachable(f"Broker {self.node_id} did not answer: {error or 'timeout'}.") from error
        except asyncio.CancelledError:
            # The response to this request must not be taken for that of the next.
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def request_frame(request: Message, version: int, correlation_id: int, client_id: bytes) -> bytes:
    """Return a request with its header, without its length."""
    out = bytearray(_HEADER.pack(request.api_key, version, correlation_id, len(client_id)))
    out += client_id
    if version >= FIRST_FLEXIBLE[request.api_key]:
        out.append(0)
    encode_into(request, version, out)
    return bytes(out)


def read_response(
    frame: Buffer, api_key: int, version: int, correlation_id: int, response_type: type[M]
) -> M:
    """Return the message of a response that has its header and no length."""
    try:
        (found,) = _CORRELATION_ID.unpack_from(frame)
    except struct.error:
        raise ProtocolError("a response that is too short for its header") from None
    if found != correlation_id:
        raise ProtocolError(f"the response {found} came in place of {correlation_id}")
    # Brokers of ours send no tagged fields in a response's header.
    position = _CORRELATION_ID.size + (1 if response_is_flexible(api_key, version) else 0)
    return decode(response_type, frame, version, position)[0]
