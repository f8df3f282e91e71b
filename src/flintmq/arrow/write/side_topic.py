"""Writes records to a side topic, each once: quarantined records of tables, dead letters of pipelines.

    side_topic = SideTopic(client, SinkOptions((), topic="orders.dead"), transactional_id="…")
    side_topic.attempt(lambda transaction: transaction.commit(batches, [GroupOffsets(…)]))

All records of one attempt are one transaction, which also commits offsets of consumer groups: these say which records
the topic has. Invariant: an attempt takes the transactional id before it reads the offsets, so that nobody else can
end a transaction of that id any more. So each record is in the topic once, whichever process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa

from flintmq.arrow.write.options import SinkOptions
from flintmq.arrow.write.row_writer import RowWriter
from flintmq.client.admin.groups import committed_offsets
from flintmq.client.batch_producer import BatchProducer
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import CoordinatorType, call_coordinator
from flintmq.client.errors import check
from flintmq.client.transaction import OpenedTransaction, begin, end, longest_timeout_ms
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from flintmq.records.compression import Codec
from flintmq.records.topic_partition import TopicPartition

ROWS_PER_BATCH_MAX: Final = 10_000
_ATTEMPTS_MAX: Final = 5
_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Next offsets of a group, with metadata by topic that say what the offsets are of.

    A topic that was deleted and made again has another id: where that matters, it is the metadata.
    """

    group: str
    offsets: Mapping[TopicPartition, int]
    metadata: Mapping[str, str]


def read_group_offsets(
    client: ClusterClient, group: str, partitions: Iterable[TopicPartition], metadata: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Return those of the group's offsets that have this metadata."""
    found = committed_offsets(client, group, sorted(partitions))
    return {
        partition: one.offset for partition, one in found.items() if one.metadata == metadata[partition[0]]
    }


def commit_group_offsets(
    client: ClusterClient, transaction: OpenedTransaction, group_offsets: GroupOffsets
) -> None:
    """Add the offsets to the transaction."""
    group = group_offsets.group
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in group_offsets.offsets.items():
        by_topic.setdefault(topic, {})[partition] = offset
    request = TxnOffsetCommitRequest(
        transactional_id=transaction.id,
        group_id=group,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata=group_offsets.metadata[topic],
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for topic, partitions in by_topic.items()
        ],
    )

    def judge(response: TxnOffsetCommitResponse) -> None:
        for one in response.topics:
            for partition in one.partitions:
                check(partition.error_code, what=f"group {group}")

    call_coordinator(client, CoordinatorType.GROUP, group, request, TxnOffsetCommitResponse, judge)


class SideTransaction:
    """A transaction whose transactional id is taken, and in which nothing is written yet."""

    def __init__(self, client: ClusterClient, sink: SinkOptions, transaction: OpenedTransaction) -> None:
        self._client = client
        self._sink = sink
        self._transaction = transaction

    @property
    def producer_id(self) -> int:
        """The same for all transactions of one transactional id, until the broker forgets the id."""
        return self._transaction.producer_id

    def commit(self, batches: Iterable[pa.RecordBatch], group_offsets: Iterable[GroupOffsets]) -> int:
        """Write the rows, commit the offsets, end the transaction; return the number of rows."""
        producer = BatchProducer(self._client, codec=Codec.NONE, transaction=self._transaction)
        writer = RowWriter(self._client, producer, self._sink, first_partition=0)
        for batch in batches:
            writer.write(batch)
        writer.finish()
        for one in group_offsets:
            commit_group_offsets(self._client, self._transaction, one)
        for refused in end(self._client, [self._transaction], committed=True).values():
            raise refused
        return writer.row_count


class SideTopic:
    def __init__(
        self,
        client: ClusterClient,
        sink: SinkOptions,
        *,
        transactional_id: str,
        attempts_max: int = _ATTEMPTS_MAX,
    ) -> None:
        self._client = client
        self._sink = sink
        self._transactional_id = transactional_id
        self._attempts_max = attempts_max

    def attempt(self, write: Callable[[SideTransaction], T]) -> T:
        """Call `write` with a new transaction; again if another process takes the transactional id meanwhile.

        `write` reads the group's offsets and commits what is missing, or nothing.
        """
        for attempt in range(1, self._attempts_max + 1):
            transaction = begin(
                self._client, self._transactional_id, timeout_ms=longest_timeout_ms(self._client)
            )
            try:
                return write(SideTransaction(self._client, self._sink, transaction))
            except RequestError as error:
                if error.code not in _FENCED or attempt == self._attempts_max:
                    raise
        raise AssertionError("the last attempt returns or raises")
