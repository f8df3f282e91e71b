"""What a consumer of committed records makes of what it is sent (KIP-98), by other means than the log's own.

It knows the bytes of a fetch and the aborted transactions that came with them, and nothing of other fetches: for each
producer whose aborted transaction has begun, records are passed over until an abort marker of that producer comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flintmq.records.markers import ABORT, control_type
from flintmq.records.record import Record, records_of
from flintmq.storage import reader
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.log import Log
from flintmq.storage.visibility import Isolation
from support.wire.batches import split

_UNPACKED_MAX = 1 << 20


class Fetched(NamedTuple):
    records: list[Record]
    """Those that count."""
    end: int
    """From where the consumer goes on."""
    aborted: list[AbortedTransaction]


def fetch(log: Log, offset: int, max_bytes: int = 1 << 30) -> Fetched | None:
    """What one fetch at `offset` gives to a reader of committed records; None if nothing may be seen there yet."""
    part = reader.read(log, offset, max_bytes, Isolation.READ_COMMITTED, at_least_one=True)
    if part is None:
        return None
    aborted = reader.aborted_transactions(log, part, offset)
    records, end = without_aborted(part.read(), aborted)
    return Fetched([record for record in records if record.offset >= offset], end, aborted)


def without_aborted(data: bytes, aborted: Iterable[AbortedTransaction]) -> tuple[list[Record], int]:
    """The records of whole batches that are not of the aborted transactions, and the offset after those batches."""
    coming = sorted(aborted, key=lambda one: one.first_offset)
    dead: set[int] = set()
    found: list[Record] = []
    end = -1
    for header, batch in split(data):
        end = header.last_offset + 1
        while coming and coming[0].first_offset <= header.last_offset:
            dead.add(coming.pop(0).producer_id)
        records = list(records_of(batch, limit=_UNPACKED_MAX))
        if header.is_control:
            if records and control_type(records[0].key) == ABORT:
                dead.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dead):
            found += records
    return found, end


def read_committed(log: Log, offset: int | None = None, max_bytes: int = 1 << 30) -> list[Record]:
    """Everything from there to the last stable offset, fetch by fetch."""
    offset = log.start_offset if offset is None else offset
    found: list[Record] = []
    while (fetched := fetch(log, offset, max_bytes)) is not None:
        found += fetched.records
        offset = fetched.end
    return found
