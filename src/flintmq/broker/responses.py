"""Responses as bytes, the error codes in them, and the text that explains an error to a client.

Kafka puts error codes at the top of a response, with each topic, with each partition, or at several of these. Where
they can stand is read from the message's schema once; a response without a field for one costs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from flintmq.broker.request import Request, ResponseBuffers
from flintmq.broker.throttling import throttle
from flintmq.protocol.codec import encoder
from flintmq.protocol.codegen.schema import MessageSchema
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.header import response_header, response_is_flexible

_SIZE: Final = struct.Struct(">i")
_NO_SIZE: Final = bytes(4)
_REASON_MAX: Final = 500
_CODE_FIELDS: Final = ("error_code", "partition_error_code")


def encode_response(request: Request, response: Message) -> ResponseBuffers:
    """Encode the response of a request, count the error codes in it, and throttle a client beyond its quotas."""
    for code in error_codes_in(response):
        request.failed(code)
    if request.limits is not None:
        delay_ms = throttle(request, request.limits)
        if delay_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = delay_ms
    out = start_response(request)
    encoder(type(response), request.version)(response, out)
    finish_response(out, len(out))
    return [out]


def start_response(request: Request) -> bytearray:
    """Return the beginning of a response: room for its size, then the header."""
    flexible = response_is_flexible(request.api.key, request.version)
    return bytearray(_NO_SIZE + response_header(request.correlation_id, flexible))


def finish_response(first: bytearray, size: int) -> None:
    """Set the size of a response of `size` bytes in all, which begins with `first`."""
    _SIZE.pack_into(first, 0, size - 4)


def reason_of(error: BaseException) -> str:
    """Return the error message that goes with an error code."""
    return cut(str(error))


def cut(text: str) -> str:
    """Cut to a readable length: it may quote what a client sent, and the wire takes at most 32 KiB."""
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}…"


# ---- error codes


class _CodeFields(NamedTuple):
    """The fields of one struct that hold error codes."""

    own: str
    """The name of its own field; empty if it has none."""
    nested: tuple[tuple[str, bool, _CodeFields], ...]
    """Fields that lead to more: name, whether it is an array, and the code fields of each element."""


_code_fields: Final[dict[int, _CodeFields | None]] = {}
"""By API key; filled as responses are encoded."""


def error_codes_in(response: Message) -> Iterator[int]:
    """Return the error codes other than 0, some perhaps repeatedly."""
    try:
        fields = _code_fields[response.api_key]
    except KeyError:
        fields = _code_fields[response.api_key] = _fields_of(response.schema, response.schema.name)
    return _codes(response, fields) if fields is not None else iter(())


def _codes(struct: Any, fields: _CodeFields) -> Iterator[int]:
    if fields.own and (code := getattr(struct, fields.own)):
        yield code
    for name, is_array, inner in fields.nested:
        value = getattr(struct, name)
        if not value:
            continue
        if not is_array:
            yield from _codes(value, inner)
        elif not inner.nested:
            for element in value:
                if code := getattr(element, inner.own):
                    yield code
        else:
            for element in value:
                yield from _codes(element, inner)


def _fields_of(schema: MessageSchema, struct: str) -> _CodeFields | None:
    fields = schema.structs[struct]
    nested = tuple(
        (field.name, field.array, inner)
        for field in fields
        if field.struct and (inner := _fields_of(schema, field.struct)) is not None
    )
    own = next((field.name for field in fields if field.name in _CODE_FIELDS), "")
    return _CodeFields(own, nested) if own or nested else None
