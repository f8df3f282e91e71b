"""Records on their way into batches, partition by partition. Pure.

Invariant: the records of one partition leave in the order in which they came, and no batch is larger than
`batch_bytes` before compression unless it holds a single record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from flintmq.records.batch import HEADER_SIZE, advance_sequence
from flintmq.records.record import NewRecord

# Length, attributes, two deltas, the lengths of key and value and the header count, at their longest.
_RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD: Final = 5 + 5


def size_of(record: NewRecord) -> int:
    """An upper bound of the bytes that the record takes in a batch."""
    key, value, _, headers = record
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        # A character of a name may take up to four bytes.
        size += _HEADER_OVERHEAD + 4 * len(name) + len(content or b"")
    return size


class RecordAccumulator:
    """What waits to be sent to the partitions of one topic."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._waiting: dict[int, deque[list[NewRecord]]] = {}
        self._sizes: dict[int, int] = {}
        self.bytes = 0
        """All that waits, roughly."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, partition: int, record: NewRecord) -> None:
        size = size_of(record)
        batches = self._waiting.setdefault(partition, deque())
        self.bytes += size
        if batches and self._sizes[partition] + size <= self._batch_bytes:
            batches[-1].append(record)
            self._sizes[partition] += size
        else:
            batches.append([record])
            self._sizes[partition] = HEADER_SIZE + size

    def take(self) -> dict[int, list[NewRecord]]:
        """The next batch of every partition that has one."""
        taken: dict[int, list[NewRecord]] = {}
        for partition in list(self._waiting):
            batches = self._waiting[partition]
            taken[partition] = batches.popleft()
            if not batches:
                del self._waiting[partition], self._sizes[partition]
        self.bytes = self.bytes - sum(map(size_of, _all(taken))) if self._waiting else 0
        return taken

    def put_back(self, partition: int, records: list[NewRecord]) -> None:
        """A batch to be taken before all others of its partition."""
        batches = self._waiting.setdefault(partition, deque())
        if not batches:
            # It takes no more records: the batch it is part of was too large already.
            self._sizes[partition] = self._batch_bytes
        batches.appendleft(records)
        self.bytes += sum(map(size_of, records))


def _all(batches: dict[int, list[NewRecord]]) -> Sequence[NewRecord]:
    return [record for batch in batches.values() for record in batch]


class ProducerSequences:
    """The sequence numbers of an idempotent producer (KIP-98): one count for each partition."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def next(self, partition: int) -> int:
        return self._next.get(partition, 0)

    def acknowledged(self, partition: int, count: int) -> None:
        self._next[partition] = advance_sequence(self.next(partition), count)
