"""The fields of the records of many batches, read one record after the other.

    length · attributes (1) · timestamp delta · offset delta · key · value · headers

It does what `record_spans` and `fields` do in steps over whole columns, in one loop over machine words. Compiled, the
loop takes a third of their time; uncompiled it would take very much longer, and is not used (`IS_COMPILED`).

Invariant: what comes out is what `fields.Fields` finds. Whatever is not a record as a producer writes it, damaged or
only unusual, makes `read` return None: those modules then decide what it is. This module must not know batches.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.vecs import vec
from mypy_extensions import i32, i64, u8

IS_COMPILED: Final = not __file__.endswith(".py")

_SIZE_MAX_32: Final = 5
_SIZE_MAX_64: Final = 8
"""A longer one is left to others: the sign of a machine word would be in its way."""
_MAX_32: Final = 0xFFFF_FFFF
_BASE_MAX: Final = 1 << 62
"""No delta that is read here makes more of it than a machine word holds."""
_HEADER_SIZE_MIN: Final = 2


class BatchFields(NamedTuple):
    """What is needed of the batches: a row for each."""

    starts: list[int]
    """Of their payloads."""
    ends: list[int]
    counts: list[int]
    base_offsets: list[int]
    base_timestamps: list[int]
    append_timestamps: list[int | None]
    """The time that stands for those of all records; None if they have their own."""


class RecordFields:
    """A row for each record. Keys and values have a start and an end; of a null one they are the same."""

    def __init__(self, rows: i64, content_rows: i64) -> None:
        self.timestamps: vec[i64] = _long_zeros(rows)
        self.offsets: vec[i64] = _long_zeros(rows)
        self.keys: vec[i32] = _int_zeros(content_rows * 2)
        self.key_nulls: vec[u8] = _byte_zeros(content_rows)
        self.values: vec[i32] = _int_zeros(content_rows * 2)
        self.value_nulls: vec[u8] = _byte_zeros(content_rows)
        self.has_headers = False
        self.header_counts: vec[i64] = _long_zeros(0)
        self.header_positions: vec[i64] = _long_zeros(0)
        self.ends: vec[i64] = _long_zeros(0)
        """Of the records. These three are empty unless a record has headers, and zero for one that has none."""


def read(data: bytes, batches: BatchFields, *, with_contents: bool) -> RecordFields | None:
    """Read the records of the batches. Without contents, only lengths and deltas are looked at."""
    rows: i64 = sum(batches.counts)
    found = RecordFields(rows, rows if with_contents else 0)
    try:
        return found if _read(data, batches, with_contents, found) else None
    except IndexError:
        return None


def _read(data: bytes, batches: BatchFields, with_contents: bool, found: RecordFields) -> bool:
    starts, ends, counts, base_offsets, base_timestamps, append_timestamps = batches
    # In variables of their own, which are machine words: an attribute would be looked up for each record.
    timestamps, offsets = found.timestamps, found.offsets
    keys, key_nulls, values, value_nulls = found.keys, found.key_nulls, found.values, found.value_nulls
    row: i64 = 0
    position: i64 = 0
    last: i64 = 0
    count: i64 = 0
    number: i64 = 0
    end: i64 = 0
    byte: i64 = 0
    base_offset: i64 = 0
    base_timestamp: i64 = 0
    for batch in range(len(starts)):
        position, last, count = starts[batch], ends[batch], counts[batch]
        base_offset, base_timestamp = base_offsets[batch], base_timestamps[batch]
        append_timestamp = append_timestamps[batch]
        if not -_BASE_MAX < base_timestamp < _BASE_MAX:
            return False
        for _ in range(count):
            # Numbers of one byte, and lengths of two, are read in place: a call costs as much as the rest of a field.
            number = data[position]
            position += 1
            if number >= 0x80:
                byte = data[position]
                if byte < 0x80:
                    number = number & 0x7F | byte << 7
                    position += 1
                else:
                    number, position = _rest(data, number, position, _SIZE_MAX_32)
            end = position + (number >> 1)
            if number & 1 or end > last:
                return False
            position += 1  # attributes, which have no meaning yet
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _rest(data, number, position, _SIZE_MAX_64)
            timestamps[row] = base_timestamp + ((number >> 1) ^ -(number & 1))
            number = data[position]
            position += 1
            if number >= 0x80:
                number, position = _rest(data, number, position, _SIZE_MAX_32)
            if number & 1:
                return False
            offsets[row] = base_offset + (number >> 1)
            if with_contents:
                number = data[position]
                position += 1
                if number >= 0x80:
                    number, position = _rest(data, number, position, _SIZE_MAX_32)
                keys[row * 2] = i32(position)
                if number == 1:
                    key_nulls[row] = 1
                elif number & 1 or number >> 1 > end - position:
                    return False
                else:
                    position += number >> 1
                keys[row * 2 + 1] = i32(position)
                number = data[position]
                position += 1
                if number >= 0x80:
                    byte = data[position]
                    if byte < 0x80:
                        number = number & 0x7F | byte << 7
                        position += 1
                    else:
                        number, position = _rest(data, number, position, _SIZE_MAX_32)
                values[row * 2] = i32(position)
                if number == 1:
                    value_nulls[row] = 1
                elif number & 1 or number >> 1 > end - position:
                    return False
                else:
                    position += number >> 1
                values[row * 2 + 1] = i32(position)
                number = data[position]
                position += 1
                if number:
                    if number >= 0x80:
                        number, position = _rest(data, number, position, _SIZE_MAX_32)
                    if number & 1 or (number >> 1) * _HEADER_SIZE_MIN > end - position or not number:
                        return False
                    _note_headers(found, row, number >> 1, position, end)
                elif position != end:
                    return False
            elif position > end:
                return False
            position = end
            row += 1
        if position != last:
            return False
        if append_timestamp is not None:
            for at in range(row - count, row):
                timestamps[at] = append_timestamp
    return True


def _rest(data: bytes, first: i64, position: i64, size_max: i64) -> tuple[i64, i64]:
    """Return the number whose first byte goes on, and the position after it; IndexError if it is too long."""
    number: i64 = first & 0x7F
    shift: i64 = 7
    byte: i64 = 0x80
    while byte >= 0x80:
        if shift == 7 * size_max:
            raise IndexError
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    if size_max == _SIZE_MAX_32 and number > _MAX_32:
        raise IndexError
    return number, position


def _note_headers(found: RecordFields, row: i64, count: i64, position: i64, end: i64) -> None:
    if not found.has_headers:
        found.has_headers = True
        rows: i64 = len(found.timestamps)
        found.header_counts = _long_zeros(rows)
        found.header_positions = _long_zeros(rows)
        found.ends = _long_zeros(rows)
    counts, positions, ends = found.header_counts, found.header_positions, found.ends
    counts[row], positions[row], ends[row] = count, position, end


class _Zeros:
    """Vectors to copy from: there is no other way to have a long one of a given length at once."""

    def __init__(self) -> None:
        self.longs: vec[i64] = vec[i64]()
        self.ints: vec[i32] = vec[i32]()
        self.bytes: vec[u8] = vec[u8]()


_zeros: Final = _Zeros()


def _long_zeros(count: i64) -> vec[i64]:
    if len(_zeros.longs) < count:
        _zeros.longs = vec[i64]([0] * count)
    return _zeros.longs[:count]


def _int_zeros(count: i64) -> vec[i32]:
    if len(_zeros.ints) < count:
        _zeros.ints = vec[i32]([0] * count)
    return _zeros.ints[:count]


def _byte_zeros(count: i64) -> vec[u8]:
    if len(_zeros.bytes) < count:
        _zeros.bytes = vec[u8]([0] * count)
    return _zeros.bytes[:count]
