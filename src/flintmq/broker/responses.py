"""Responses as bytes, and the text that explains an error to a client."""

from __future__ import annotations

import struct

from flintmq.broker.request import Pieces, Request
from flintmq.protocol.codec import encoder
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import response_header, response_is_flexible

_SIZE = struct.Struct(">i")
_ROOM = bytes(4)
_REASON_MAX = 500


def encode_response(request: Request, response: Message) -> Pieces:
    out = start_response(request)
    encoder(type(response), request.version)(response, out)
    finish_response(out, len(out))
    return [out]


def start_response(request: Request) -> bytearray:
    """Room for the size, then the header."""
    flexible = response_is_flexible(request.api.key, request.version)
    return bytearray(_ROOM + response_header(request.correlation_id, flexible))


def finish_response(first: bytearray, size: int) -> None:
    """Set the size of an answer that has `size` bytes in all, beginning with `first`."""
    _SIZE.pack_into(first, 0, size - 4)


def reason_of(error: BaseException) -> str:
    """What a client is told beside the code."""
    return cut(str(error))


def cut(text: str) -> str:
    """To a readable length: it may quote what a client sent, and the wire takes no more than 32 KiB."""
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}…"
