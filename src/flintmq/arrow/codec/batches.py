"""The whole batches of a piece of the log: their headers as columns, and parts made of their payloads.

Only the length is read batch by batch, since it leads to the next one; all other fields are read at once.

Invariant: batches follow each other in ascending offsets and, unless that is not asked for, with a right CRC; the
base offset is outside the CRC, so the order is what it can be held against. A part is over its bounds by no more than
its last batch, which is bounded by itself. This module must not know what is inside a payload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from flintmq.arrow.codec.batch_positions import find_batches
from flintmq.arrow.codec.limits import DecodeLimits
from flintmq.arrow.codec.varints import WORD_SIZE, Flags, Positions, VarintPayload
from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    RECORD_SIZE_MIN,
)
from flintmq.records.checksum import crc32c
from flintmq.records.record import payload_of

Numbers = npt.NDArray[np.int64]
Headers = npt.NDArray[np.void]

_OFFSET_MAX: Final = (1 << 63) - (1 << 32)  # a delta may still be added in 64 bits
_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)


class BatchSource(NamedTuple):
    """Where the bytes come from, for whoever has to be told that they are damaged."""

    topic: str
    partition: int

    def damage(self, offset: int, why: str) -> CorruptionError:
        return CorruptionError(f"{self.topic}-{self.partition}: the batch at offset {offset} {why}")


class ScannedBatches:
    """Whole batches of the data, each a row of every column."""

    def __init__(self, data: bytes, source: BatchSource, positions: Positions, headers: Headers) -> None:
        self.data = data
        self.view = memoryview(data)
        self.source = source
        self.positions = positions
        self.ends: Positions = positions + headers["length"] + LENGTH_END
        self.base_offsets = headers["base_offset"].astype(np.int64)
        self.last_offsets: Numbers = self.base_offsets + headers["last_offset_delta"]
        self.attributes = headers["attributes"].astype(np.int64)
        self.counts = headers["record_count"].astype(np.int64)
        self.base_timestamps = headers["base_timestamp"].astype(np.int64)
        self.max_timestamps = headers["max_timestamp"].astype(np.int64)
        self._crcs = headers["crc"]

    def __len__(self) -> int:
        return len(self.positions)

    def whole(self, batch: int) -> memoryview:
        return self.view[int(self.positions[batch]) : int(self.ends[batch])]

    def damage(self, batch: int, why: str) -> CorruptionError:
        return self.source.damage(int(self.base_offsets[batch]), why)

    def check_crcs(self) -> None:
        view = self.view
        bounds = zip(
            (self.positions + CRC_START).tolist(), self.ends.tolist(), self._crcs.tolist(), strict=True
        )
        for batch, (start, end, crc) in enumerate(bounds):
            if crc32c(view[start:end]) != crc:
                raise self.damage(batch, "fails its CRC")

    def check_order(self) -> None:
        expected = np.zeros(len(self), np.int64)
        expected[1:] = self.last_offsets[:-1] + 1
        wrong = (self.base_offsets < expected) | (self.base_offsets > _OFFSET_MAX)
        wrong |= (self.last_offsets < self.base_offsets) | (self.counts < 0)
        if wrong.any():
            batch = int(wrong.argmax())
            raise self.damage(
                batch,
                f"is said to reach to {self.last_offsets[batch]} and to hold {self.counts[batch]} records, "
                f"where offset {expected[batch]} or a later one is expected",
            )


def scan(
    data: bytes, source: BatchSource, *, end_offset: int | None, check_crc: bool
) -> tuple[ScannedBatches, bool]:
    """The whole batches that begin below `end_offset`, and whether others follow them."""
    starts, has_garbage = find_batches(data)
    positions = np.array(starts, np.int64)
    # A header for every byte of the data, each overlapping the next.
    every: Headers = np.ndarray((max(0, len(data) - HEADER_SIZE + 1),), _HEADER, buffer=data, strides=(1,))
    headers = every[positions]
    count = len(headers)
    if end_offset is not None and (beyond := headers["base_offset"] >= end_offset).any():
        count = int(beyond.argmax())
    batches = ScannedBatches(data, source, positions[:count], headers[:count])
    others_follow = count < len(headers)
    if check_crc:
        batches.check_crcs()
    # Of those behind the range as well: a damaged base offset may look like the first of them.
    (ScannedBatches(data, source, positions, headers) if others_follow else batches).check_order()
    if has_garbage and not others_follow:
        expected = int(batches.last_offsets[-1]) + 1 if count else 0
        raise CorruptionError(
            f"{source.topic}-{source.partition}: what follows where offset {expected} or a later one "
            "is expected is not a record batch of magic 2"
        )
    return batches, others_follow


class BatchPart(NamedTuple):
    """Batches whose records become one Arrow batch: where each one's payload is, and what its header says."""

    payload: VarintPayload
    starts: Positions
    ends: Positions
    counts: Numbers
    base_offsets: Numbers
    base_timestamps: Numbers
    max_timestamps: Numbers
    append_times: Flags
    """Whether the broker's time stands for the records' own."""
    next_offset: int
    is_last: bool


def parts_of(
    batches: ScannedBatches, chosen: Positions, *, bytes_max: int, rows_max: int, limits: DecodeLimits
) -> Iterator[BatchPart]:
    """The chosen batches, unpacked, in parts that end with the batch that fills them."""
    first = 0
    batch_rows_max = limits.batch_rows_max
    unpacked: dict[int, bytes | memoryview] = {}
    bytes_left, rows_left = bytes_max, rows_max
    sizes = (batches.ends - batches.positions)[chosen] - HEADER_SIZE
    codecs = batches.attributes[chosen] & CODEC_MASK
    columns = zip(
        chosen.tolist(), sizes.tolist(), codecs.tolist(), batches.counts[chosen].tolist(), strict=True
    )
    for row, (batch, size, codec, count) in enumerate(columns):
        if codec:
            unpacked[batch] = _unpacked(batches, batch, limits.unpacked_bytes_max)
            size = len(unpacked[batch])
        if count > batch_rows_max or count * RECORD_SIZE_MIN > size:
            raise batches.damage(batch, f"claims {count} records in {size} bytes")
        bytes_left -= size
        rows_left -= count
        is_last = row == len(chosen) - 1
        if is_last or bytes_left <= 0 or rows_left <= 0:
            yield _part(batches, chosen[first : row + 1], unpacked, is_last)
            first = row + 1
            unpacked.clear()
            bytes_left, rows_left = bytes_max, rows_max


def _unpacked(batches: ScannedBatches, batch: int, bytes_max: int) -> bytes | memoryview:
    try:
        return payload_of(batches.whole(batch), limit=bytes_max)
    except RequestError as error:
        raise batches.damage(batch, f"cannot be unpacked: {error}") from error


def _part(
    batches: ScannedBatches, chosen: Positions, unpacked: dict[int, bytes | memoryview], is_last: bool
) -> BatchPart:
    """`unpacked` are the payloads of those that were compressed."""
    starts, ends = batches.positions[chosen] + HEADER_SIZE, batches.ends[chosen]
    if not unpacked:
        payload = VarintPayload(batches.data)
    else:
        bounds = zip(chosen.tolist(), starts.tolist(), ends.tolist(), strict=True)
        pieces = [
            unpacked[batch] if batch in unpacked else batches.view[start:end] for batch, start, end in bounds
        ]
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        # Words are read up to the last byte.
        payload = VarintPayload(b"".join((*pieces, bytes(WORD_SIZE))))
    return BatchPart(
        payload=payload,
        starts=starts,
        ends=ends,
        counts=batches.counts[chosen],
        base_offsets=batches.base_offsets[chosen],
        base_timestamps=batches.base_timestamps[chosen],
        max_timestamps=batches.max_timestamps[chosen],
        append_times=(batches.attributes[chosen] & LOG_APPEND_TIME) != 0,
        next_offset=int(batches.last_offsets[chosen[-1]]) + 1,
        is_last=is_last,
    )
