"""Messages to bytes and back. The codec of a message and version is compiled when first used, then kept.

Decoding raises ProtocolError for bytes that cannot be that message, whatever the bytes are. Encoding
raises UnsupportedVersion for a value that the version has no field for (unless Kafka says that it may be
dropped), and ValueError for a value that its field cannot hold: both name message, version and field.
This module must not know what any message means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from flintmq.effects import Buffer
from flintmq.errors import UnsupportedVersion
from flintmq.protocol.codegen.decoder import build_decoder
from flintmq.protocol.codegen.encoder import build_encoder
from flintmq.protocol.codegen.structures import Message

M = TypeVar("M", bound=Message)

Encoder = Callable[[M, bytearray], None]
"""Appends the message to the buffer; leaves the buffer alone if it raises."""

Decoder = Callable[[Buffer, int], tuple[M, int]]
"""Reads a message at a position; returns it and the position after it."""

_encoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}
_decoders: dict[tuple[type[Message], int], Callable[..., Any]] = {}


def encode(message: Message, version: int) -> bytes:
    """The message's bytes in that version."""
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Appends the message's bytes to `out`, which stays as it was if that fails."""
    encoder(type(message), version)(message, out)


def decode(cls: type[M], buffer: Buffer, version: int, position: int = 0) -> tuple[M, int]:
    """The message at `position` and the position after it.

    A field of type `records` is a view of `buffer`, not a copy: it keeps the buffer and changes with it.
    """
    return decoder(cls, version)(buffer, position)


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The compiled function itself, for callers that encode the same message and version often."""
    try:
        return _encoders[cls, version]
    except KeyError:
        _check_version(cls, version)
        return cast(Encoder[M], _encoders.setdefault((cls, version), build_encoder(cls, version)))


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The compiled function itself, for callers that decode the same message and version often."""
    try:
        return _decoders[cls, version]
    except KeyError:
        _check_version(cls, version)
        return cast(Decoder[M], _decoders.setdefault((cls, version), build_decoder(cls, version)))


def _check_version(cls: type[Message], version: int) -> None:
    lowest, highest = cls.versions
    if not lowest <= version <= highest:
        raise UnsupportedVersion(f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
