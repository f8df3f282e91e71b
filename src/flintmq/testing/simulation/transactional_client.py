"""Transactional producers of a simulated cluster, by the protocol of KIP-890.

    producer = TransactionalWorldProducer(client, "payments")
    await producer.open()
    await producer.send("orders", 0, [b"1"])
    await producer.end(commits=True)

Invariant: an operation returns when its outcome is known. After OutcomeUnknown or RequestError the producer must be
opened again, which fences what it did before and aborts what it left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from flintmq.records.batch import advance_sequence
from flintmq.records.record import build_batch
from flintmq.records.topic_partition import TopicPartition
from flintmq.testing.simulation.client import WorldClient
from flintmq.testing.simulation.coordinator_client import CoordinatorClient, KeyType
from flintmq.testing.simulation.group_client import WorldGroupMember

# TxnOffsetCommit adds the group to the transaction from version 5 on.
_INIT_PRODUCER_ID, _END_TXN, _TXN_OFFSET_COMMIT = 5, 5, 5


class TransactionalWorldProducer:
    """One instance under a transactional id, with one batch in flight."""

    def __init__(
        self, client: WorldClient, transactional_id: str, *, transaction_timeout_ms: int = 20_000
    ) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._coordinator = CoordinatorClient(client, transactional_id, KeyType.TRANSACTION)
        self._producer = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}

    async def open(self) -> None:
        """Take the id: other instances are fenced, and their transaction is aborted."""
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        response = await self._coordinator.call(request, InitProducerIdResponse, _INIT_PRODUCER_ID)
        self._continue_as(response.producer_id, response.producer_epoch)

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int | None:
        """Write in the transaction, which begins with its first batch; the result is that of `WorldProducer.send`."""
        client = self._client
        sequence = self._sequences.get((topic, partition), 0)
        batch = build_batch(
            [(None, value, client.now_ms(), ()) for value in values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        result = await client.produce(topic, partition, batch, transactional_id=self._transactional_id)
        if result.error_code and result.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise RequestError(ErrorCode(result.error_code), result.error_message or "")
        self._sequences[topic, partition] = advance_sequence(sequence, len(values))
        return None if result.error_code or result.base_offset < 0 else result.base_offset

    async def end(self, *, commits: bool) -> None:
        """Commit or abort what was sent. A request that is sent again has the outcome of the first."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commits,
        )
        response = await self._coordinator.call(request, EndTxnResponse, _END_TXN)
        self._continue_as(response.producer_id, response.producer_epoch)

    async def commit_offsets(self, member: WorldGroupMember, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group as a part of the transaction (KIP-447)."""
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=member.group,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            generation_id=member.generation,
            member_id=member.member_id,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        coordinator = CoordinatorClient(self._client, member.group, KeyType.GROUP)
        await coordinator.call(request, TxnOffsetCommitResponse, _TXN_OFFSET_COMMIT, code_of=_code_of_offsets)

    def _continue_as(self, producer_id: int, epoch: int) -> None:
        """Another epoch begins again at sequence 0."""
        if (producer_id, epoch) != self._producer:
            self._producer = producer_id, epoch
            self._sequences.clear()


def _code_of_offsets(response: TxnOffsetCommitResponse) -> int:
    return next(
        (one.error_code for topic in response.topics for one in topic.partitions if one.error_code), 0
    )
