"""The record walk of compaction: where the records of a payload lie, and a payload made of some of them.

`walk` reads a whole payload at once and answers with columns, not with an object for each record; `locate` does less,
for one that was walked before; `rebuild` copies the bytes of those that stay, in runs where nothing in them changes.

Invariant: a record is read only within its own length and a payload only as exactly as many records as its
batch counts, with ascending offsets; anything else is a CorruptionError that names the record. This module must
not know batches, logs, or why a record stays.

It is compiled where a compiler is there when the wheel is built, and does the same uncompiled: so it is plain
typed functions over `bytes`, and the fixed-width integers are annotations only. They wrap where Python's do not,
therefore nothing here may leave 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from flintmq.errors import CorruptionError

if TYPE_CHECKING:
    from mypy_extensions import i64

_MASK_63: Final = 0x7FFF_FFFF_FFFF_FFFF
_BITS_32: Final = 32
_BITS_64: Final = 64


class RecordColumns:
    """The records of one payload, by number; a column that was not asked for is empty."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        """Where each one begins, and behind the last where that one ends."""
        self.offset_deltas: list[int] = []
        self.timestamp_deltas: list[int] = []
        self.keys: list[bytes | None] = []
        """Empty but for null, where the keys were not asked for."""
        self.tombstones: list[int] = []
        """The numbers of those whose value is null."""

    def __len__(self) -> int:
        return len(self.keys)


def walk(
    data: bytes,
    start: int,
    end: int,
    count: int,
    last_offset_delta: int,
    *,
    with_keys: bool = True,
    with_places: bool = True,
) -> RecordColumns:
    """The `count` records between `start` and `end`, none beyond the batch's last offset.

    Without places there are neither starts nor timestamp deltas.
    """
    columns = RecordColumns()
    starts = columns.starts
    offset_deltas = columns.offset_deltas
    timestamp_deltas = columns.timestamp_deltas
    keys = columns.keys
    tombstones = columns.tombstones
    position: i64 = start
    payload_end: i64 = end
    offset_max: i64 = last_offset_delta
    previous: i64 = -1
    size: i64 = 0
    timestamp_delta: i64 = 0
    offset_delta: i64 = 0
    index: i64 = 0
    records: i64 = count
    try:
        while index < records:
            if with_places:
                starts.append(position)
            size, position = _varint(data, position, _BITS_32)
            record_end: i64 = position + size
            if size < 0 or record_end > payload_end:
                _refuse(index, "claims an impossible length")
            timestamp_delta, position = _varint(data, position + 1, _BITS_64)
            offset_delta, position = _varint(data, position, _BITS_32)
            if offset_delta <= previous or offset_delta > offset_max:
                _refuse(index, "has an offset out of order")
            previous = offset_delta
            size, position = _varint(data, position, _BITS_32)
            if size >= 0:
                key_end: i64 = position + size
                # Never sliced beyond its record: a wrong length must not cost memory.
                if key_end > record_end:
                    _refuse(index, "holds a key that is too long")
                keys.append(data[position:key_end] if with_keys else b"")
                position = key_end
            elif size == -1:
                keys.append(None)
            else:
                _refuse(index, "holds a key of an impossible length")
            size, position = _varint(data, position, _BITS_32)
            if size >= 0:
                position += size
            elif size != -1:
                _refuse(index, "holds a value of an impossible length")
            if size < 0:
                tombstones.append(index)
            if with_places:
                timestamp_deltas.append(timestamp_delta)
            size, position = _varint(data, position, _BITS_32)
            if size:
                position = _skip_headers(data, position, record_end, size, index)
            if position != record_end:
                _refuse(index, "does not fill its length")
            offset_deltas.append(offset_delta)
            index += 1
    except IndexError:
        _refuse(index, "is cut short")
    except OverflowError:
        _refuse(index, "holds a number that is too long")
    if position != payload_end:
        raise CorruptionError(f"{end - position} bytes follow the {count} records of the batch.")
    starts.append(position)
    return columns


def locate(data: bytes, start: int, end: int, count: int) -> RecordColumns:
    """Starts and timestamp deltas only, of records that were walked before and are not looked into."""
    columns = RecordColumns()
    starts = columns.starts
    timestamp_deltas = columns.timestamp_deltas
    position: i64 = start
    payload_end: i64 = end
    size: i64 = 0
    timestamp_delta: i64 = 0
    _behind: i64 = 0
    index: i64 = 0
    records: i64 = count
    try:
        while index < records:
            starts.append(position)
            size, position = _varint(data, position, _BITS_32)
            if size < 0 or position + size > payload_end:
                _refuse(index, "claims an impossible length")
            timestamp_delta, _behind = _varint(data, position + 1, _BITS_64)
            timestamp_deltas.append(timestamp_delta)
            position += size
            index += 1
    except IndexError:
        _refuse(index, "is cut short")
    except OverflowError:
        _refuse(index, "holds a number that is too long")
    if position != payload_end:
        raise CorruptionError(f"{end - position} bytes follow the {count} records of the batch.")
    starts.append(position)
    return columns


def rebuild(
    data: bytes, columns: RecordColumns, kept: list[int], timestamp_deltas: list[int] | None = None
) -> bytes:
    """A payload of the records numbered in `kept`, ascending; with new timestamp deltas for these, where given."""
    starts = columns.starts
    pieces: list[bytes] = []
    if timestamp_deltas is not None:
        for place, number in enumerate(kept):
            _append_retimed(pieces, data, starts[number], starts[number + 1], timestamp_deltas[place])
        return b"".join(pieces)
    # Neighbours are copied together.
    first = -1
    last = -2
    for number in kept:
        if number != last + 1:
            if first >= 0:
                pieces.append(data[starts[first] : starts[last + 1]])
            first = number
        last = number
    if first >= 0:
        pieces.append(data[starts[first] : starts[last + 1]])
    return b"".join(pieces)


def _append_retimed(pieces: list[bytes], data: bytes, start: i64, end: i64, timestamp_delta: int) -> None:
    """A record that was walked before, with another timestamp delta and therefore perhaps another length."""
    position: i64 = start
    while data[position] >= 0x80:
        position += 1
    attributes: i64 = position + 1
    position = attributes + 1
    while data[position] >= 0x80:
        position += 1
    rest = data[position + 1 : end]
    delta = varint(timestamp_delta)
    pieces.append(varint(1 + len(delta) + len(rest)))
    pieces.append(data[attributes : attributes + 1])
    pieces.append(delta)
    pieces.append(rest)


# Not those of `records.varint`: compiled, a call within this module on 64-bit integers costs next to nothing, while a
# call into an interpreted module for every field would be most of a walk.


def varint(value: int) -> bytes:
    """A number of at most 64 bits as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = []
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _varint(data: bytes, position: i64, bits: i64) -> tuple[i64, i64]:
    """The zigzag varint at `position`, and the position behind it."""
    byte: i64 = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value: i64 = byte & 0x7F
    shift: i64 = 7
    while True:
        byte = data[position]
        position += 1
        if shift + 7 > bits and byte >> (bits - shift):
            raise OverflowError
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    # The mask makes it a logical shift where the sixty-fourth bit is a sign.
    return ((value >> 1) & _MASK_63) ^ -(value & 1), position


def _skip_headers(data: bytes, position: i64, end: i64, count: i64, index: i64) -> i64:
    # A header is at least two bytes, so a count is believed only as far as the record could hold it.
    if count < 0 or 2 * count > end - position:
        _refuse(index, "claims an impossible number of headers")
    size: i64 = 0
    while count > 0:
        size, position = _varint(data, position, _BITS_32)
        if size < 0:
            _refuse(index, "has a header without a key")
        size, position = _varint(data, position + size, _BITS_32)
        if size < -1:
            _refuse(index, "has a header of an impossible length")
        if size > 0:
            position += size
        count -= 1
    return position


def _refuse(index: int, why: str) -> NoReturn:
    raise CorruptionError(f"Record {index} of the batch {why}.")
