"""What generated codecs call off the common path: long strings, long arrays, tagged fields to skip.

The common case of each (a length below 128, a short array, no tags) is written out in the generated code
and never comes here. All functions take any buffer whose items are bytes, and a position in it; reading
past the end raises IndexError or struct.error, an impossible varint OverflowError, which the codec turns into a
ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from flintmq.effects import Buffer
from flintmq.records.varint import append_unsigned, read_unsigned_rest

UNKNOWN_TAGS_MAX: Final = 1000
"""Per struct. Nobody sends so many; each costs time to skip."""

REQUEST_ENTRIES_MAX: Final = 50_000
"""Elements of all arrays of one request, and its unknown tagged fields. Each costs time on the loop and many
times its bytes in memory; nobody has business with more partitions than this in one request."""

STRING_SIZE_MAX: Final = 32767
SHORT_ARRAY_COUNT: Final = 16
"""Arrays below this count have their struct compiled beforehand."""


class MalformedError(Exception):
    """Bytes that make no sense; the codec adds which field of which message, and says ProtocolError."""


class UnrepresentableError(Exception):
    """A value set in a field that the version written does not have."""


def string_size_rest(buffer: Buffer, first: int, position: int) -> tuple[int, int]:
    """The same for the length of a string, which Kafka bounds."""
    value, position = read_unsigned_rest(buffer, first, position)
    if value > STRING_SIZE_MAX + 1:
        raise MalformedError(f"a string of {value - 1} bytes")
    return value, position


def write_string_size(out: bytearray, value: int) -> None:
    """`value` is the size plus one, as compact strings have it."""
    if value > STRING_SIZE_MAX + 1:
        raise ValueError(f"a string of {value - 1} bytes is too long")
    append_unsigned(out, value)


def skip_tags(buffer: Buffer, position: int, count: int, end: int) -> int:
    """Past `count` tagged fields; `count` may be the first byte of a longer varint. Returns the position."""
    if count > 127:
        count, position = read_unsigned_rest(buffer, count, position)
    if count > UNKNOWN_TAGS_MAX:
        raise MalformedError(f"{count} unknown tagged fields")
    previous = -1
    for _ in range(count):
        tag = buffer[position]
        position += 1
        if tag > 127:
            tag, position = read_unsigned_rest(buffer, tag, position)
        if tag <= previous:
            raise MalformedError(f"tag {tag} after tag {previous}")
        previous = tag
        size = buffer[position]
        position += 1
        if size > 127:
            size, position = read_unsigned_rest(buffer, size, position)
        position += size
        if position > end:
            raise MalformedError("a tagged field reaches past the end")
    return position


FORMATS: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}


def array_packers(kind: str) -> tuple[Sequence[Callable[..., bytes]], Callable[[Sequence[Any]], bytes]]:
    """Packers of short arrays by count, and one for arrays of any count."""
    # A bool is packed as a number, for "?" would take None for false.
    code = "B" if kind == "bool" else FORMATS[kind]

    def pack_long(values: Sequence[Any]) -> bytes:
        return struct.pack(f">{len(values)}{code}", *values)

    return [struct.Struct(f">{n}{code}").pack for n in range(SHORT_ARRAY_COUNT)], pack_long


def array_unpackers(
    kind: str,
) -> tuple[Sequence[Callable[[Buffer, int], tuple[Any, ...]]], Callable[[Buffer, int, int], tuple[Any, ...]]]:
    """The same for reading; the long one also takes the count."""
    code = FORMATS[kind]

    def unpack_long(buffer: Buffer, position: int, count: int) -> tuple[Any, ...]:
        return struct.unpack_from(f">{count}{code}", buffer, position)

    return [struct.Struct(f">{n}{code}").unpack_from for n in range(SHORT_ARRAY_COUNT)], unpack_long


def pack_uuids(values: Sequence[bytes]) -> bytes:
    for value in values:
        if len(value) != 16:
            raise ValueError(f"a uuid of {len(value)} bytes")
    return b"".join(values)
