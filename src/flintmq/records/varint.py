"""Variable-length integers: seven bits a byte, the lowest first, the top bit set in all bytes but the last. Pure.

Records hold signed ones in zigzag (`read_varint`, `append_varint`); the protocol's flexible versions hold unsigned
ones of 32 bits (`read_unsigned_rest`, `append_unsigned`). Each function is written out instead of built on another:
they are called for every field, and one more call would be most of their time. Two relatives live elsewhere for the
same reason: `record_walk` is compiled and has typed copies, `arrow.codec.varints` reads many at once with NumPy.
"""

from __future__ import annotations


def read_varint(data: bytes | bytearray | memoryview, position: int, bits: int) -> tuple[int, int]:
    """Return the zigzag varint at `position` and the position after it.

    IndexError where the data ends first, OverflowError where it is longer than an integer of `bits` bits.
    """
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise OverflowError
    if value >> bits:
        raise OverflowError
    return (value >> 1) ^ -(value & 1), position


def append_varint(out: bytearray, value: int) -> None:
    """Write `value`, of at most 64 bits, as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_unsigned_rest(buffer: bytes | bytearray | memoryview, first: int, position: int) -> tuple[int, int]:
    """Return an unsigned varint whose first byte, 128 or more, is at `position - 1`, and the position after it.

    IndexError where the data ends first, OverflowError where it is longer than 32 bits.
    """
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise OverflowError("a varint of more than 32 bits")


def append_unsigned(out: bytearray, value: int) -> None:
    """Write `value` as an unsigned varint."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
