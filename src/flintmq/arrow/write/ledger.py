"""The ledger: which batch of which query is decided, and by which transactions. One compacted topic, one partition.

    key        query                               query/void
    value      batch, decision, transactions       the decision that does not hold
               or: batch, decision, finished

A decision is written before the first of its transactions is committed, and `finished` after the last. Only the last
record of each key counts, so the topic stays as small as the number of queries. A decision is voided under a key of
its own: whoever does so late names an old decision, and cannot hide the new one.

Invariant: what `last` returns was acknowledged, and nothing that was acknowledged before the call is newer. This
module must not know what becomes of transactions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from flintmq.client.admin.topics import EARLIEST, LATEST, create_topic, offsets
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.client.consumer import Consumer
from flintmq.client.metadata import TopicMetadata
from flintmq.client.producer import Producer
from flintmq.client.transaction import OpenedTransaction
from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.records.compression import Codec
from flintmq.records.record import Record

VERSION: Final = 1
_PARTITION: Final = 0
# Records read at first, from the end on; then so many times more, until the query is found or the start is reached.
_FIRST_WINDOW: Final = 64
_WIDENING: Final = 16
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


class LedgerEntry(NamedTuple):
    """The last that the ledger says of a query."""

    query: str
    batch: int
    decision: str
    """A name that no other decision has."""
    transactions: tuple[OpenedTransaction, ...] = ()
    finished: bool = False
    """All transactions are committed."""
    is_void: bool = False
    """The decision does not hold: nothing of the batch is committed by it."""

    @property
    def is_pending(self) -> bool:
        """Decided, and it is not sure that all of it is committed."""
        return not self.finished and not self.is_void

    def covers(self, batch: int) -> bool:
        """Whether this batch is decided: by this entry, or by one before it, since batches come in their order."""
        return self.batch > batch or (self.batch == batch and not self.is_void)


class Ledger:
    def __init__(self, client: ClusterClient, topic: str) -> None:
        self._client = client
        self._topic = topic

    # ---- reading

    def last(self, query: str) -> LedgerEntry | None:
        """What holds now. The newest records are read first."""
        try:
            topic = self._client.topic(self._topic)
        except NoSuchTopic:
            return None
        partition = (self._topic, _PARTITION)
        end = offsets(self._client, [partition], LATEST)[partition]
        start = end
        window = _FIRST_WINDOW
        wanted = query.encode(), _void_key(query)
        found: dict[bytes, Record] = {}
        while start > 0 and wanted[0] not in found:
            earliest = offsets(self._client, [partition], EARLIEST)[partition]
            if start <= earliest:
                break
            behind, start = start, max(earliest, start - window)
            # What was found behind this window is newer.
            found = self._read(topic, start, behind, wanted) | found
            window *= _WIDENING
        told = found.get(wanted[0])
        # An operator may write a tombstone to have a query forgotten.
        if told is None or told.value is None:
            return None
        entry = decode_entry(query, told.value)
        # A void is always written after the decision that it names: it is in no older window.
        void = found.get(wanted[1])
        return entry._replace(is_void=void is not None and void.value == entry.decision.encode())

    def _read(
        self, topic: TopicMetadata, start: int, end: int, wanted: Sequence[bytes]
    ) -> dict[bytes, Record]:
        consumer = Consumer(self._client, topic, {_PARTITION: start})
        found: dict[bytes, Record] = {}
        while consumer.positions[_PARTITION] < end:
            before = consumer.positions[_PARTITION]
            for _, record in consumer.poll():
                if record.key is not None and record.key in wanted and record.offset < end:
                    found[record.key] = record
            if consumer.positions[_PARTITION] == before:
                raise CorruptionError(f"{self._topic} ends at {before}, before its own end {end}")
        return found

    # ---- writing

    def write(self, entry: LedgerEntry) -> None:
        self._append(entry.query.encode(), encode_entry(entry))

    def void(self, entry: LedgerEntry) -> None:
        self._append(_void_key(entry.query), entry.decision.encode())

    def _append(self, key: bytes, value: bytes) -> None:
        producer = Producer(self._client, self._made(), codec=Codec.ZSTD)
        producer.send(value, key=key, partition=_PARTITION)
        producer.flush()

    def _made(self) -> TopicMetadata:
        try:
            return self._client.topic(self._topic)
        except NoSuchTopic:
            pass
        try:
            create_topic(self._client, self._topic, partitions=1, configs=_SETTINGS)
        except RequestError as error:
            # Another query was faster.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return self._client.topic(self._topic)


def _void_key(query: str) -> bytes:
    return f"{query}/void".encode()


def encode_entry(entry: LedgerEntry) -> bytes:
    document: dict[str, Any] = {"version": VERSION, "batch": entry.batch, "decision": entry.decision}
    if entry.finished:
        document["finished"] = True
    else:
        document["transactions"] = [list(one) for one in entry.transactions]
    return json.dumps(document, separators=(",", ":")).encode()


def decode_entry(query: str, value: bytes) -> LedgerEntry:
    try:
        document = json.loads(value)
        if document["version"] != VERSION:
            raise CorruptionError(
                f"the ledger's entry of {query} is of version {document['version']}: a newer FlintMQ wrote it; "
                "use that one"
            )
        return LedgerEntry(
            query,
            int(document["batch"]),
            str(document["decision"]),
            tuple(
                OpenedTransaction(str(name), int(producer_id), int(epoch))
                for name, producer_id, epoch in document.get("transactions", ())
            ),
            finished=bool(document.get("finished")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"the ledger's entry of {query} cannot be read: {error!r}") from error
