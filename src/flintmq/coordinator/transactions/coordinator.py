"""The coordinator of transactions: the machine's decisions, carried out in the partitions that took part.

    EndTxn → decided, and safe → a marker in each partition → complete → reply

Markers are written in the step in which the decision becomes safe, before its reply goes: who has committed finds
the records to be committed, and may begin the next transaction at once. Only where there are very many, or where one
cannot be written, the rest follow. What a crash leaves decided and not complete is found by loading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from flintmq.coordinator.runtime.coordinator import Coordinator
from flintmq.coordinator.runtime.machine import Decision
from flintmq.coordinator.runtime.shard import CoordinatorShard, ShardState
from flintmq.coordinator.transactions.decision import MarkerWork, TransactionDecision
from flintmq.coordinator.transactions.machine import TransactionMachine, TransactionSettings
from flintmq.coordinator.transactions.marker_sender import MARKERS_PER_TURN, MarkerSender
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.coordinator.transactions.remote_verification import (
    VERSION,
    Codes,
    RemoteCoordinators,
    RemoteVerification,
    codes_for,
)
from flintmq.coordinator.transactions.responses import AddedTransaction
from flintmq.coordinator.transactions.transaction import TransactionState
from flintmq.effects import Clock, Executor, Timers
from flintmq.errors import ErrorCode, FlintError
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.topics import NewTopic, Topics
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import NO_LEADER, Partition
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from flintmq.records.batch import NO_PRODUCER_ID
from flintmq.records.topic_partition import TopicPartition
from flintmq.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

TRANSACTIONS_TOPIC: Final = "__transaction_state"


class TransactionCoordinator(Coordinator[TransactionMachine]):
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        markers: MarkerWriter,
        producer_ids: ProducerIds,
        metadata: ClusterMetadata,
        topics: Topics,
        partitions: LocalPartitions,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        markers_per_turn: int = MARKERS_PER_TURN,
        remote: RemoteCoordinators | None = None,
    ) -> None:
        """`remote` reaches coordinators on other brokers; None on a standalone broker."""
        self._remote = remote
        super().__init__(
            TRANSACTIONS_TOPIC,
            lambda partition: _machine(config(), partition),
            lambda: _state_topic(config(), brokers=max(1, len(metadata.image.brokers))),
            metadata=metadata,
            topics=topics,
            partitions=partitions,
            clock=clock,
            timers=timers,
            executor=executor,
            settled=self._carry_on,
        )
        self._markers = markers
        self._producer_ids = producer_ids
        self._markers_per_turn = markers_per_turn
        # Calls that wait for a decided transaction to be complete, by transactional id.
        self._awaiting_completion: dict[str, list[Callable[[], None]]] = {}
        # Decided transactions whose markers are not all written yet.
        self._marker_senders: dict[MarkerSender, None] = {}

    # ---- taking part

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        adds: bool,
        done: Callable[[Codes], object],
    ) -> None:
        """Call `done` with a code for each partition: NONE if it takes part in the producer's transaction.

        With `adds` those that do not are added. Most often `done` is called at once.
        """
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        transaction = AddedTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not adds,
            topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic.items()
            ],
        )

        def respond(message: Message) -> None:
            assert isinstance(message, AddPartitionsToTxnResponse)
            done(_codes_in(message))

        def fail(code: ErrorCode) -> None:
            done(codes_for(transaction, code))

        node = self.coordinator_of(transactional_id)
        if self._remote is not None and node not in (NO_LEADER, self._partitions.node_id):
            self._remote.verify(node, RemoteVerification(transaction, done))
            return
        self.call(
            transactional_id,
            lambda machine, token: machine.add_partitions(token, transaction, VERSION, self._clock.now_ms()),
            respond=respond,
            fail=fail,
        )

    def is_here(self, transactional_id: str) -> bool:
        """Whether this broker coordinates the transaction, so that `takes_part` knows."""
        return self._remote is None or self._active_shard(transactional_id) is not None

    def takes_part(self, transactional_id: str, producer_id: int, epoch: int, place: TopicPartition) -> bool:
        """Whether a batch of that producer may be written there now."""
        shard = self._active_shard(transactional_id)
        if shard is None:
            return False
        transaction = shard.machine.get(transactional_id)
        return (
            transaction is not None
            and transaction.state is TransactionState.ONGOING
            and (transaction.producer_id, transaction.epoch) == (producer_id, epoch)
            and place in transaction.partitions
        )

    def when_complete(self, transactional_id: str, timeout_s: float, call: Callable[[], object]) -> None:
        """Call `call` when the decided transaction is complete, or after `timeout_s`; at once if there is none."""
        if not self.is_here(transactional_id):
            # Its coordinator is another broker, which does not report completion: wait as long as is allowed.
            self._timers.call_later(timeout_s, call)
            return
        shard = self._active_shard(transactional_id)
        transaction = shard.machine.get(transactional_id) if shard is not None else None
        if transaction is None or not transaction.is_decided:
            call()
            return
        waiting = self._awaiting_completion.setdefault(transactional_id, [])

        def proceed() -> None:
            if proceed not in waiting:
                return  # completed and timed out in the same turn
            timer.cancel()
            waiting.remove(proceed)
            if not waiting:
                self._awaiting_completion.pop(transactional_id, None)
            call()

        timer = self._timers.call_later(timeout_s, proceed)
        waiting.append(proceed)

    @property
    def markers_waiting(self) -> int:
        """The markers of decided transactions that are not written yet."""
        return sum(len(sender.unwritten) for sender in self._marker_senders)

    def with_producer_id(
        self, transactional_id: str, call: Callable[[int], object], fail: Callable[[ErrorCode], object]
    ) -> None:
        """Call `call` with a producer id for the next step of this transactional id, or -1 if it needs none.

        It is called at once unless an id must be taken, which seldom happens; `fail` if none can be.
        """
        shard = self._active_shard(transactional_id)
        if shard is None or not shard.machine.wants_producer_id(transactional_id):
            call(NO_PRODUCER_ID)
        else:
            self._call_after(self._producer_ids.take(), call, fail)

    def _active_shard(self, transactional_id: str) -> CoordinatorShard[TransactionMachine] | None:
        shard = self.shard_of(transactional_id)
        return shard if shard is not None and shard.state is ShardState.ACTIVE else None

    # ---- carrying out

    def _carry_on(self, shard: CoordinatorShard[TransactionMachine], decision: Decision) -> None:
        if not isinstance(decision, TransactionDecision):
            return
        for work in decision.markers:
            self._write_markers(shard, work)
        for transactional_id in decision.wants_producer_id:
            task = asyncio.ensure_future(self._time_out(shard, transactional_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _time_out(self, shard: CoordinatorShard[TransactionMachine], transactional_id: str) -> None:
        try:
            producer_id = await self._producer_ids.take()
        except FlintError as error:
            logger.error("%s times out later: no producer id can be had: %s", transactional_id, error)
            return
        shard.carry_out(
            lambda machine: [
                machine.time_out(transactional_id, new_producer_id=producer_id, now_ms=self._clock.now_ms())
            ]
        )

    def _write_markers(self, shard: CoordinatorShard[TransactionMachine], work: MarkerWork) -> None:
        def ended(sender: MarkerSender, is_complete: bool) -> None:
            del self._marker_senders[sender]
            if is_complete:
                self._complete(shard, work)

        sender = MarkerSender(
            work,
            self._markers,
            self._timers,
            goes_on=lambda: shard.state is ShardState.ACTIVE,
            ended=ended,
            markers_per_turn=self._markers_per_turn,
        )
        self._marker_senders[sender] = None
        sender.begin()

    def _complete(self, shard: CoordinatorShard[TransactionMachine], work: MarkerWork) -> None:
        shard.carry_out(
            lambda machine: [
                machine.markers_written(
                    work.transactional_id, work.producer_id, work.producer_epoch, self._clock.now_ms()
                )
            ]
        )
        for proceed in list(self._awaiting_completion.get(work.transactional_id, ())):
            # In the next turn, AFTER the replies of the step that completed it.
            self._timers.call_soon(proceed)


def _codes_in(message: AddPartitionsToTxnResponse) -> Codes:
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for result in message.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _machine(config: BrokerConfig, partition: Partition) -> TransactionMachine:
    settings = TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        sweep_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
    return TransactionMachine(settings, coordinator_epoch=partition.leader_epoch)


def _state_topic(config: BrokerConfig, *, brokers: int) -> NewTopic:
    replicas = min(config.transaction_state_log_replication_factor, brokers)
    return NewTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        replicas,
        {},
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
