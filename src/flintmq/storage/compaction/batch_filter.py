"""What becomes of one batch: it stays as it is, loses records, stays without any, or goes. Pure.

The rules are Apache Kafka's. Of the records below the end of the pass only the newest of each key stays; a record
without a key does not. A tombstone stays until its batch's delete horizon has passed, which is set when it is met
for the first time (KIP-534): the base timestamp becomes the horizon and an attribute says so. A transaction's
marker stays while data of it is met, and then gets a horizon in the same way. Data of aborted transactions goes.
A batch that holds the last sequence number of a producer, or the last offset of the pass, stays without records if
need be.

Invariant: what stays keeps its offset, time, key, value and headers, and a batch its first and last offset, its
leader epoch and its producer's id, epoch and sequence. It must not know files.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from flintmq.records.compression import Codec, decompress
from flintmq.records.limits import COMPACTED_BYTES_MAX
from flintmq.records.markers import control_type
from flintmq.records.record import with_payload
from flintmq.records.record_walk import RecordColumns, locate, rebuild, walk
from flintmq.storage.compaction.offset_map import SPECIAL, SUPERSEDED, OffsetMap
from flintmq.storage.compaction.transactions import CleanedTransactions

_INT64: Final = 1 << 63


class BatchOutcome(Enum):
    UNCHANGED = "unchanged"
    REWRITTEN = "rewritten"
    EMPTIED = "emptied"
    DROPPED = "dropped"


class FilteredBatch(NamedTuple):
    outcome: BatchOutcome
    batch: bytes | memoryview
    """What is to be written, if anything."""
    records: int
    """How many of its records stay."""
    max_timestamp: int


_DROPPED: Final = FilteredBatch(BatchOutcome.DROPPED, b"", 0, NO_TIMESTAMP)


class BatchPayload(NamedTuple):
    """Uncompressed records, and where they lie in `data`."""

    data: bytes
    columns: RecordColumns


def read_payload(
    data: bytes, position: int, header: BatchHeader, *, with_keys: bool = True, with_places: bool = True
) -> BatchPayload:
    """The records of the batch at `position`, as `walk` gives them; CorruptionError where they cannot be read."""
    data, start, end = _unpacked(data, position, header)
    columns = walk(
        data,
        start,
        end,
        header.record_count,
        header.last_offset_delta,
        with_keys=with_keys,
        with_places=with_places,
    )
    return BatchPayload(data, columns)


def _unpacked(data: bytes, position: int, header: BatchHeader) -> tuple[bytes, int, int]:
    """Uncompressed records, and where they begin and end."""
    start, end = position + HEADER_SIZE, position + header.size
    if not header.codec or end <= start:
        return data, start, end
    try:
        view = memoryview(data)[start:end]
        unpacked = bytes(decompress(Codec(header.codec), view, limit=COMPACTED_BYTES_MAX))
    except (RequestError, ValueError) as error:
        raise CorruptionError(str(error)) from None
    return unpacked, 0, len(unpacked)


def is_whole(header: BatchHeader) -> bool:
    """Whether it has a record for each of its offsets."""
    return header.record_count == header.last_offset_delta + 1


def offsets_of(header: BatchHeader, columns: RecordColumns) -> list[int]:
    count = len(columns)
    base_offset = header.base_offset
    # Deltas ascend from 0 or more, so the last one says whether any is missing.
    if count and columns.offset_deltas[-1] == count - 1:
        return list(range(base_offset, base_offset + count))
    return [base_offset + delta for delta in columns.offset_deltas]


def marker_type(columns: RecordColumns) -> int | None:
    """What a control batch says, or None if it says nothing any more."""
    return control_type(columns.keys[0]) if len(columns) else None


class BatchFilter:
    """Told of every batch of the pass, in order."""

    def __init__(
        self,
        *,
        keys: OffsetMap,
        latest_offset: int,
        end_offset: int,
        transactions: CleanedTransactions,
        producers: Mapping[int, tuple[int, int]],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`latest_offset` is the last one that `keys` speaks for, `end_offset` the first that stays in any case."""
        self._keys = keys
        self._latest_offset = latest_offset
        self._end_offset = end_offset
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.keyless = 0
        """Records dropped for the lack of a key."""

    def apply(self, data: bytes, position: int, header: BatchHeader) -> FilteredBatch:
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        payload: BatchPayload | None = None
        if header.is_control:
            payload = read_payload(data, position, header)
            is_spent = self._transactions.pass_marker(header, marker_type(payload.columns))
            discards_all = is_spent and horizon is not None and horizon <= self._now_ms
        else:
            is_spent = False
            discards_all = self._transactions.pass_data(header)
        if header.base_offset >= self._end_offset:
            return _unchanged(data, position, header)
        stays_empty = self._holds_last_of_producer(header) or header.last_offset + 1 == self._end_offset
        if discards_all:
            return _emptied(header) if stays_empty else _DROPPED
        if payload is None:
            has_marks = self._keys.has_marks(header.base_offset, header.last_offset)
            if (
                has_marks
                and horizon is None
                and header.last_offset <= self._latest_offset
                and is_whole(header)
            ):
                marks = self._keys.marks(header.base_offset, header.last_offset)
                if SPECIAL not in marks:
                    return _marked(data, position, header, marks, stays_empty)
            # Where marks tell all, the keys are not made.
            payload = read_payload(data, position, header, with_keys=not has_marks)
        columns = payload.columns
        if header.is_control:
            kept = list(range(len(columns)))
        else:
            kept = self._survivors(columns, header, horizon is None or self._now_ms < horizon)
        if not kept:
            return _emptied(header) if stays_empty else _DROPPED
        gets_horizon = horizon is None and (is_spent or _meet(columns.tombstones, kept))
        if gets_horizon:
            horizon = self._now_ms + self._delete_retention_ms
        elif len(kept) == len(columns):
            return _unchanged(data, position, header)
        return _rewritten(payload, header, kept, horizon)

    def _survivors(self, columns: RecordColumns, header: BatchHeader, keeps_tombstones: bool) -> list[int]:
        keys = columns.keys
        expired = set() if keeps_tombstones else set(columns.tombstones)
        offsets = offsets_of(header, columns)
        superseded = self._keys.superseded(keys, offsets)
        latest = self._latest_offset
        kept: list[int] = []
        number = 0
        for offset in offsets:
            if offset > latest:
                kept.append(number)
            elif keys[number] is None:
                self.keyless += 1
            elif not superseded[number] and number not in expired:
                kept.append(number)
            number += 1  # noqa: SIM113 -- counted by hand, which is faster compiled
        return kept

    def _holds_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER_ID:
            return False
        known = self._producers.get(header.producer_id)
        if known is None:
            return False
        epoch, last_data_offset = known
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        # Of this one only a marker is known, which has the epoch that fences its predecessors.
        return header.is_control and header.producer_epoch == epoch


def _marked(
    data: bytes, position: int, header: BatchHeader, marks: bytes, stays_empty: bool
) -> FilteredBatch:
    """A batch whose records the keys were taken from, and in which nothing counts but whether they are superseded."""
    superseded = marks.count(SUPERSEDED)
    if not superseded:
        return _unchanged(data, position, header)
    if superseded == len(marks):
        return _emptied(header) if stays_empty else _DROPPED
    kept: list[int] = []
    number = 0
    for mark in marks:
        if not mark:
            kept.append(number)
        number += 1  # noqa: SIM113 -- counted by hand, which is faster compiled
    unpacked, start, end = _unpacked(data, position, header)
    return _rewritten(BatchPayload(unpacked, locate(unpacked, start, end, len(marks))), header, kept, None)


def _unchanged(data: bytes, position: int, header: BatchHeader) -> FilteredBatch:
    batch = memoryview(data)[position : position + header.size]
    return FilteredBatch(BatchOutcome.UNCHANGED, batch, header.record_count, header.max_timestamp)


def _emptied(header: BatchHeader) -> FilteredBatch:
    emptied = header._replace(
        attributes=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return FilteredBatch(
        BatchOutcome.EMPTIED, with_payload(emptied, b"", Codec.NONE), 0, header.max_timestamp
    )


def _rewritten(
    payload: BatchPayload, header: BatchHeader, kept: list[int], horizon: int | None
) -> FilteredBatch:
    """Times are kept as they are, relative to the same base, unless that becomes a horizon."""
    columns = payload.columns
    deltas = [columns.timestamp_deltas[number] for number in kept]
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME:
        max_timestamp = max(NO_TIMESTAMP, header.base_timestamp + max(deltas))
    base_timestamp = header.base_timestamp if horizon is None else horizon
    new_deltas: list[int] | None = None
    if base_timestamp != header.base_timestamp:
        if header.attributes & LOG_APPEND_TIME:
            new_deltas = [max_timestamp - base_timestamp] * len(kept)
        else:
            shift = header.base_timestamp - base_timestamp
            new_deltas = [delta + shift for delta in deltas]
        if not -_INT64 <= min(new_deltas) <= max(new_deltas) < _INT64:
            raise CorruptionError("A record of the batch has an impossible timestamp.")
    records = rebuild(payload.data, columns, kept, new_deltas)
    attributes = header.attributes & ~DELETE_HORIZON
    if horizon is not None:
        attributes |= DELETE_HORIZON
    rewritten = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    batch = with_payload(rewritten, records, Codec(header.codec))
    return FilteredBatch(BatchOutcome.REWRITTEN, batch, len(kept), max_timestamp)


def _meet(numbers: list[int], others: list[int]) -> bool:
    return bool(numbers) and not set(numbers).isdisjoint(others)
