"""What is in the records of many batches, as columns: numbers, and the positions of keys, values and headers.

    length · attributes (1) · timestamp delta · offset delta · key · value · headers

Invariant: every position lies within its record, and every record is filled exactly, up to its headers: these are
only counted here, and held against the room there is. `BadRow` names a record of which that is not true.
This module must not know batches or Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from flintmq.arrow.codec.record_spans import Spans
from flintmq.arrow.codec.varints import (
    WORD_SIZE,
    BadRow,
    Flags,
    Positions,
    VarintPayload,
    Words,
    first_varints,
    refuse,
    signed,
)

if TYPE_CHECKING:
    from librt.vecs import vec
    from mypy_extensions import i32, u8

    from flintmq.arrow.codec.record_fields import RecordFields

# As many rows as keep all columns of a step in the processor's own cache.
_STEP_ROWS: Final = 12 * 1024
_NULL: Final = 1  # -1, as it is written
_HEADER_SIZE_MIN: Final = 2
# A number of so many bytes cannot have too many bits.
_SIZE_SAFE: Final = 4


class Strings:
    """A column of byte strings within a payload: where each begins and ends. Null ones are empty and marked."""

    def __init__(self, positions: npt.NDArray[np.int32], nulls: Flags) -> None:
        self.positions = positions
        self.nulls = nulls

    @classmethod
    def unfilled(cls, count: int) -> Strings:
        return cls(np.empty((count, 2), np.int32), np.empty(count, np.bool_))

    @classmethod
    def of(cls, positions: vec[i32], nulls: vec[u8]) -> Strings:
        return cls(
            np.frombuffer(memoryview(positions), np.int32).reshape(-1, 2),
            np.frombuffer(memoryview(nulls), np.bool_),
        )

    def fill(self, rows: slice | Positions, starts: Positions, lengths: Words) -> Positions:
        """Put in those that begin there and have these lengths, as they are written; the positions after them."""
        nulls = lengths == _NULL
        refuse(((lengths & 1) != 0) != nulls)
        behind = starts + (lengths >> 1).view(np.int64)
        self.positions[rows, 0] = starts
        self.positions[rows, 1] = behind
        self.nulls[rows] = nulls
        return behind

    def keep(self, rows: Flags) -> None:
        self.positions = self.positions[rows]
        self.nulls = self.nulls[rows]


@dataclass(slots=True)
class Fields:
    """The columns. Without contents, keys, values and headers are not there, and were not looked at."""

    timestamps: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    keys: Strings
    values: Strings
    header_counts: npt.NDArray[np.int64]
    header_positions: Positions
    """Of the first header of a record that has headers."""
    ends: Positions
    """Of such a record."""

    @classmethod
    def in_steps(cls, payload: VarintPayload, spans: Spans, *, with_contents: bool) -> Fields:
        """Read them in steps over columns. Timestamps and offsets are deltas: batches are not known here."""
        count = len(spans.begins)
        contents = count if with_contents else 0
        fields = cls(
            timestamps=np.empty(count, np.int64),
            offsets=np.empty(count, np.int64),
            keys=Strings.unfilled(contents),
            values=Strings.unfilled(contents),
            header_counts=np.zeros(contents, np.int64),
            header_positions=np.empty(contents, np.int64),
            ends=spans.ends,
        )
        for first in range(0, count, _STEP_ROWS):
            rows = slice(first, first + _STEP_ROWS)
            try:
                fields._read(payload, rows, spans.begins[rows], spans.ends[rows], with_contents)
            except BadRow as bad:
                raise BadRow(first + bad.row) from None
        return fields

    @classmethod
    def of(cls, found: RecordFields) -> Fields:
        """Take them over from the loop that is compiled."""
        headers = (found.header_counts, found.header_positions, found.ends)
        counts, positions, ends = (
            np.frombuffer(memoryview(one), np.int64)
            if found.has_headers
            else np.zeros(len(found.key_nulls), np.int64)
            for one in headers
        )
        return cls(
            timestamps=np.frombuffer(memoryview(found.timestamps), np.int64),
            offsets=np.frombuffer(memoryview(found.offsets), np.int64),
            keys=Strings.of(found.keys, found.key_nulls),
            values=Strings.of(found.values, found.value_nulls),
            header_counts=counts,
            header_positions=positions,
            ends=ends,
        )

    def keep(self, rows: Flags) -> None:
        """Let all others go."""
        self.timestamps = self.timestamps[rows]
        self.offsets = self.offsets[rows]
        if len(self.header_counts):
            self.ends = self.ends[rows]
            self.keys.keep(rows)
            self.values.keep(rows)
            self.header_counts = self.header_counts[rows]
            self.header_positions = self.header_positions[rows]

    def _read(
        self, payload: VarintPayload, rows: slice, begins: Positions, ends: Positions, with_contents: bool
    ) -> None:
        length, timestamp_delta, offset_delta, key_length, position = _heads(payload, begins)
        refuse(((length | offset_delta) & 1) != 0)  # negative
        self.timestamps[rows] = signed(timestamp_delta)
        self.offsets[rows] = (offset_delta >> 1).view(np.int64)
        if not with_contents:
            return
        position = self.keys.fill(rows, position, key_length)
        value_length, position = payload.varints_at(position, bits=32)
        position = self.values.fill(rows, position, value_length)
        refuse(position >= ends)
        # Most records have no headers: their count is one byte, and nothing follows it.
        has_headers = payload.bytes[position] != 0
        if not has_headers.any():
            position += 1
            refuse(position != ends)
        else:
            counts, position = payload.varints_at(position, bits=32)
            counts_signed = signed(counts)
            room = ends - position
            refuse(
                (counts_signed < 0)
                | np.where(counts == 0, room != 0, counts_signed * _HEADER_SIZE_MIN > room)
            )
            self.header_counts[rows] = counts_signed
        self.header_positions[rows] = position


def _heads(payload: VarintPayload, begins: Positions) -> tuple[Words, Words, Words, Words, Positions]:
    """Length, timestamp delta, offset delta and key length of each record, and the positions after that."""
    words = payload.words_at(begins)
    length, used = first_varints(words)
    used += 1  # attributes, which have no meaning yet
    timestamp_delta, sizes = first_varints(_shifted(words, used))
    used += sizes
    offset_delta, sizes = first_varints(_shifted(words, used))
    used += sizes
    key_length, sizes = first_varints(_shifted(words, used))
    used += sizes
    # The zeros that a shift brings in look like the end of a number; but then more than the word seems to be used.
    # None of five bytes, which might have too many bits, is among four that fit.
    if used.max() <= WORD_SIZE:
        return length, timestamp_delta, offset_delta, key_length, begins + used
    length, timestamp_delta, position = _pairs(payload, begins, between=1, bits=64)
    offset_delta, key_length, position = _pairs(payload, position, between=0, bits=32)
    return length, timestamp_delta, offset_delta, key_length, position


def _pairs(
    payload: VarintPayload, positions: Positions, *, between: int, bits: int
) -> tuple[Words, Words, Positions]:
    """Two numbers that follow each other, with so many bytes between them, and the positions after them.

    The first has up to 32 bits, the second up to `bits`.
    """
    words = payload.words_at(positions)
    first, first_sizes = first_varints(words)
    used = first_sizes + np.uint8(between)
    second, second_sizes = first_varints(_shifted(words, used))
    used += second_sizes
    if max(first_sizes.max(), second_sizes.max()) <= _SIZE_SAFE and used.max() <= WORD_SIZE:
        return first, second, positions + used
    first, positions = payload.varints_at(positions, bits=32)
    second, positions = payload.varints_at(positions + between, bits=bits)
    return first, second, positions


def _shifted(words: Words, sizes: npt.NDArray[np.uint8]) -> Words:
    return words >> (sizes.astype(np.uint64) * 8)
