"""What a log remembers of idempotent and transactional producers (KIP-98). Pure.

For each producer id: its epoch, its last five batches (so that a retry gets its original offset), and the
first offset of its open transaction. The earliest open transaction bounds the last stable offset.
`check` and `check_marker` decide and change nothing; `record` and `end_transaction` are the only changes, for a
live append and in recovery alike.

Anybody may write under any id, so their number is bounded: when there are too many, the one that has not written
for the longest time is forgotten, unless it has an open transaction. One that comes back starts afresh.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.records.batch import MAX_INT32, NO_EPOCH, NO_SEQUENCE, BatchHeader
from flintmq.records.checksum import crc32c
from flintmq.records.markers import Marker
from flintmq.storage.limits import LOG_LIMITS

BATCHES_KEPT: Final = 5
EPOCH_MAX: Final = (1 << 15) - 1
SNAPSHOT_VERSION: Final = 1

_ENTRY: Final = struct.Struct(">qhiqiqiq")
_HEAD: Final = struct.Struct(">hIi")
_CRC_END: Final = 6


class ProducerBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


_NO_BATCH: Final = ProducerBatch(NO_SEQUENCE, NO_SEQUENCE, -1, -1, -1)


class ProducerEntry:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        # The oldest first. A deque would take a kilobyte for one entry.
        self.batches: list[ProducerBatch] = []
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.txn_first_offset = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """The producers of one log, in the order in which they last wrote."""

    def __init__(self, *, producers_max: int = LOG_LIMITS.producers_max) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._producers.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction began."""
        return min(self._open.values()) if self._open else None

    def check(self, batch: BatchHeader) -> ProducerBatch | None:
        """The batch this one repeats, or None if it is the next; RequestError if it is neither."""
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            # Nothing is known, perhaps because it expired or was deleted: any sequence starts afresh.
            return None
        if batch.producer_epoch < producer.epoch:
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {batch.producer_id} has epoch {producer.epoch}; {batch.producer_epoch} is stale.",
            )
        first, last = batch.base_sequence, batch.last_sequence
        if first == NO_SEQUENCE:
            # Of a coordinator, which writes for the producer and counts nothing.
            return None
        if batch.producer_epoch > producer.epoch:
            if first != 0 and producer.epoch != NO_EPOCH:
                raise RequestError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"A new epoch of producer {batch.producer_id} must start at sequence 0, not {first}.",
                )
        else:
            for known in producer.batches:
                if known.first_sequence == first and known.last_sequence == last:
                    return known
            # An entry that holds only a marker has no sequence, and so the next must be 0.
            expected = (producer.last_sequence + 1) & MAX_INT32
            if first != expected:
                raise RequestError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {batch.producer_id} sent sequence {first}; {expected} comes next.",
                )
        if producer.txn_first_offset >= 0 and not batch.is_transactional:
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {batch.producer_id} has an open transaction; this batch is outside it.",
            )
        return None

    def record(self, batch: BatchHeader, base_offset: int) -> None:
        """A data batch of a producer is now in the log at `base_offset`."""
        producer_id = batch.producer_id
        producer = self._move_to_end(producer_id, batch.producer_epoch)
        if batch.base_sequence != NO_SEQUENCE:
            if len(producer.batches) == BATCHES_KEPT:
                del producer.batches[0]
            producer.batches.append(
                ProducerBatch(
                    batch.base_sequence,
                    batch.last_sequence,
                    base_offset,
                    base_offset + batch.last_offset_delta,
                    batch.max_timestamp,
                )
            )
        producer.last_timestamp = batch.max_timestamp
        if producer.txn_first_offset < 0 and batch.is_transactional:
            producer.txn_first_offset = base_offset
            self._open[producer_id] = base_offset

    def _move_to_end(self, producer_id: int, epoch: int) -> ProducerEntry:
        """The producer that writes now, as the last of all; what it did in an earlier epoch is forgotten."""
        producer = self._producers.pop(producer_id, None)
        if producer is None:
            producer = ProducerEntry(producer_id, epoch)
            if len(self._producers) >= self._producers_max:
                self._evict_one()
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        self._producers[producer_id] = producer
        return producer

    def _evict_one(self) -> None:
        for producer_id in self._producers:
            if producer_id not in self._open:
                del self._producers[producer_id]
                return

    def check_marker(self, marker: Marker, *, bumps_epoch: bool) -> None:
        """RequestError if a marker is of the past. With `bumps_epoch` (KIP-890) each one has an epoch of its own."""
        producer, epoch = self._producers.get(marker.producer_id), marker.epoch
        if producer is None:
            return
        # A marker that comes again ends nothing, and where epochs have run out none can be higher.
        is_again = epoch == producer.epoch and (producer.txn_first_offset < 0 or epoch == EPOCH_MAX)
        if epoch < producer.epoch or (bumps_epoch and epoch == producer.epoch and not is_again):
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {marker.producer_id} has epoch {producer.epoch}; a marker of epoch {epoch} is stale.",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise RequestError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {producer.coordinator_epoch} is known; {marker.coordinator_epoch} is stale.",
            )

    def end_transaction(self, marker: Marker, timestamp: int) -> int | None:
        """A marker is now in the log; returns the first offset of the transaction it ends, if one was open."""
        producer_id = marker.producer_id
        producer = self._move_to_end(producer_id, marker.epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = timestamp
        producer.txn_first_offset = -1
        return self._open.pop(producer_id, None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has an open transaction in this log under this epoch."""
        return producer_id in self._open and self._producers[producer_id].epoch == epoch

    def is_in_transaction(self, producer_id: int) -> bool:
        """Whether this producer has an open transaction in this log, under any epoch."""
        return producer_id in self._open

    def is_known(self, producer_id: int) -> bool:
        return producer_id in self._producers

    def expire(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since `before_ms`; never one with an open transaction."""
        stale = [
            p.producer_id
            for p in self._producers.values()
            if p.last_timestamp < before_ms and p.txn_first_offset < 0
        ]
        for producer_id in stale:
            del self._producers[producer_id]

    def encode(self) -> bytes:
        """Kafka's snapshot, with an entry for each remembered batch, the oldest first.

        Kafka writes the last batch only, so that after a restart it refuses a retry of the four before it. Of
        several entries for one producer its loader keeps the last, which is what it would have written.
        """
        body = bytearray()
        for p in self._producers.values():
            for batch in p.batches or (_NO_BATCH,):
                body += _ENTRY.pack(
                    p.producer_id,
                    p.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.last_offset - batch.first_offset,
                    p.last_timestamp if batch is _NO_BATCH or batch is p.batches[-1] else batch.timestamp,
                    p.coordinator_epoch,
                    p.txn_first_offset,
                )
        count = len(body) // _ENTRY.size
        return _HEAD.pack(SNAPSHOT_VERSION, crc32c(count.to_bytes(4, "big") + body), count) + body

    @classmethod
    def decode(cls, data: bytes, *, producers_max: int = LOG_LIMITS.producers_max) -> ProducerState:
        if len(data) < _HEAD.size:
            raise CorruptionError("The producer snapshot is cut short.")
        version, crc, count = _HEAD.unpack_from(data)
        if version != SNAPSHOT_VERSION:
            raise CorruptionError(
                f"The producer snapshot has version {version}; {SNAPSHOT_VERSION} is known."
            )
        if crc32c(data[_CRC_END:]) != crc or len(data) != _HEAD.size + count * _ENTRY.size:
            raise CorruptionError("The producer snapshot fails its CRC.")
        states = cls(producers_max=producers_max)
        for (
            producer_id,
            epoch,
            sequence,
            offset,
            delta,
            timestamp,
            coordinator_epoch,
            txn,
        ) in _ENTRY.iter_unpack(data[_HEAD.size :]):
            p = states._producers.setdefault(producer_id, ProducerEntry(producer_id, epoch))
            p.last_timestamp = timestamp
            p.coordinator_epoch = coordinator_epoch
            if sequence != NO_SEQUENCE:
                p.batches.append(
                    ProducerBatch((sequence - delta) & MAX_INT32, sequence, offset - delta, offset, timestamp)
                )
            if txn >= 0:
                p.txn_first_offset = txn
                states._open[producer_id] = txn
        return states
