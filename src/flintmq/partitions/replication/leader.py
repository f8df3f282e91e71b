"""What this broker does as the leader of replicated partitions: it follows its followers, and changes their ISRs.

An ISR change is a transaction on the partition's key that expects the registrations of all members, so that neither
a leader that was replaced nor a follower that restarted meanwhile can be part of it. Invariant: from the moment a
change is proposed until its outcome is known, the proposed members count for the high watermark as well. An outcome
that is not known is found out by proposing the same change again: whichever of the two is applied, the other is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from flintmq.cluster.elections import ElectionRules, StateChange, in_sync, isr_change, resignation
from flintmq.effects import Clock, Timer, Timers
from flintmq.errors import ErrorCode, MetadataStoreError, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import PartitionImage
from flintmq.metadata.store import StoreUnavailable
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.partition import Partition, Role
from flintmq.partitions.replication.replica_states import ReplicaStates
from flintmq.partitions.replication.throttle import ReplicationThrottle, is_throttled
from flintmq.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
_CHECKS_PER_LAG: Final = 2
"""How often followers are looked at while the longest allowed lag passes, as in Kafka."""


class LeaderReplication:
    def __init__(
        self,
        metadata: ClusterMetadata,
        partitions: LocalPartitions,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        timers: Timers,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._timers = timers
        self._config = config
        self._changes: dict[Partition, asyncio.Task[None]] = {}
        self._led: dict[Partition, None] = {}
        """Those that have followers."""
        self._deletions: dict[Partition, list[tuple[int, asyncio.Future[None]]]] = {}
        """Deletions that wait for followers, and where these must begin."""
        self._throttle = ReplicationThrottle()
        self._timer: Timer | None = None
        self._is_closed = False
        self.isr_shrinks = 0
        self.isr_expansions = 0

    # ---- life

    def start(self) -> None:
        self._partitions.on_role(self._role_changed)
        for partition in self._partitions:
            self._role_changed(partition)
        self._schedule()

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._changes.values():
            task.cancel()
        await asyncio.gather(*self._changes.values(), return_exceptions=True)

    def _role_changed(self, partition: Partition) -> None:
        if partition.role is Role.LEADER and partition.replicas is not None:
            self._led[partition] = None
            partition.joining = partial(self._joining, partition)
            if partition.log.offline is not None:
                self.resign(partition)
        else:
            self._led.pop(partition, None)
        if partition in self._deletions:
            self._settle_deletions(partition)

    def _schedule(self) -> None:
        delay_s = self._config().replica_lag_time_max_ms / _CHECKS_PER_LAG / 1000
        self._timer = self._timers.call_later(delay_s, self._check)

    # ---- followers

    def follower_fetched(
        self, partition: Partition, node: int, *, broker_epoch: int, offset: int, start_offset: int
    ) -> bool:
        """Note what a fetch shows of a follower; False if it holds no replica of the partition."""
        states = partition.replicas
        if states is None or not states.fetched(
            node,
            broker_epoch=broker_epoch,
            offset=offset,
            start_offset=start_offset,
            leader_end=partition.log.end_offset,
            now_ms=self._now_ms(),
        ):
            return False
        if partition in self._deletions:
            self._settle_deletions(partition)
        # Followers that are about to join count as well, so a fetch of any of them may raise the high watermark.
        partition.advance_with_replicas()
        if states.may_join(
            node,
            high_watermark=partition.log.high_watermark,
            registered=self._registered(),
            draining=self._draining(),
        ):
            self._propose(partition, states, [*states.isr, node])
        return True

    def is_throttled(self, partition: Partition, node: int) -> bool:
        """Whether a follower that catches up has to wait for its records (KIP-73)."""
        replicas = partition.log.config.leader_replication_throttled_replicas
        if not replicas or node in partition.isr or not is_throttled(replicas, partition.index, node):
            return False
        rate = self._config().leader_replication_throttled_rate
        return self._throttle.is_exceeded(rate, self._clock.monotonic())

    def count_sent(self, partition: Partition, node: int, size: int) -> None:
        """Count records that a follower gets against the limit, if it is one that catches up."""
        replicas = partition.log.config.leader_replication_throttled_replicas
        if replicas and node not in partition.isr and is_throttled(replicas, partition.index, node):
            self._throttle.take(size)

    async def deleted_everywhere(self, partition: Partition, start: int, timeout_s: float) -> None:
        """Wait until every replica that is alive begins at `start` or later.

        RequestError if that takes too long, or if another broker leads the partition meanwhile.
        """
        if self._low_watermark(partition) >= start:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deletions.setdefault(partition, []).append((start, waiting))
        try:
            async with asyncio.timeout(timeout_s):
                await waiting
        except TimeoutError:
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT, "Some replicas have not deleted the records yet."
            ) from None

    def _low_watermark(self, partition: Partition) -> int:
        states, start = partition.replicas, partition.log.start_offset
        return start if states is None else states.low_watermark(start, self._metadata.image.brokers)

    def _settle_deletions(self, partition: Partition) -> None:
        low_watermark = self._low_watermark(partition)
        left = []
        for start, waiting in self._deletions.pop(partition, []):
            if waiting.done():
                continue
            if partition.role is not Role.LEADER:
                waiting.set_exception(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif low_watermark >= start:
                waiting.set_result(None)
            else:
                left.append((start, waiting))
        if left:
            self._deletions[partition] = left

    def preferred_replica(self, partition: Partition, rack: str, fetch_offset: int) -> int:
        """Return the follower in the rack of a consumer that has the most; -1 if the leader is as near (KIP-392)."""
        if not self._config().replica_selector_class:
            return -1
        states, brokers = partition.replicas, self._metadata.image.brokers
        own = brokers.get(self._node_id)
        if states is None or own is None or own.value.rack == rack:
            return -1
        best, best_end = -1, -1
        for node in states.isr:
            follower, broker = states.follower(node), brokers.get(node)
            if follower is None or broker is None or broker.value.rack != rack:
                continue
            if (
                follower.start_offset <= fetch_offset <= follower.end_offset
                and follower.end_offset > best_end
            ):
                best, best_end = node, follower.end_offset
        return best

    def _joining(self, partition: Partition) -> list[int]:
        """Return the followers for which the high watermark waits, although they are not in the ISR yet."""
        states = partition.replicas
        if states is None:
            return []
        outside = [node for node in states.replicas if node not in states.isr]
        if not outside:
            return outside
        registered, draining = self._registered(), self._draining()
        lag_max_ms, now_ms = self._config().replica_lag_time_max_ms, self._now_ms()
        end = partition.log.end_offset
        found = []
        for node in outside:
            state = states.follower(node)
            if (
                state is not None
                and state.end_offset >= 0
                and registered.get(node) == state.broker_epoch
                and node not in draining
                and states.keeps_up(node, leader_end=end, lag_max_ms=lag_max_ms, now_ms=now_ms)
            ):
                found.append(node)
        return found

    def _check(self) -> None:
        """Remove followers that have lagged for too long from their ISRs."""
        lag_max_ms, now_ms = self._config().replica_lag_time_max_ms, self._now_ms()
        for partition in list(self._led):
            states = partition.replicas
            if states is None:
                continue
            if partition.log.offline is not None:
                self.resign(partition)
                continue
            slow = states.lagging(leader_end=partition.log.end_offset, lag_max_ms=lag_max_ms, now_ms=now_ms)
            # An ISR that is large enough and an ELR that is not empty hold everything up: a change empties the ELR.
            if slow or (states.has_min_isr and not states.may_commit):
                self._propose(partition, states, [node for node in states.isr if node not in slow])
        self._schedule()

    # ---- changes of the ISR

    def _propose(self, partition: Partition, states: ReplicaStates, isr: list[int]) -> None:
        if self._is_closed or partition in self._changes or states.pending_isr is not None:
            return
        states.propose(isr)
        self._start(partition, self._change(partition, states, isr))

    def resign(self, partition: Partition) -> None:
        """Let another replica lead a partition whose log has failed here, or is damaged where no other may be asked.

        Nothing happens if there is no other; the caller tries again.
        """
        if not self._is_closed and partition not in self._changes:
            self._start(partition, self._give_way(partition))

    def _start(self, partition: Partition, change: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(change)
        self._changes[partition] = task
        task.add_done_callback(lambda _: self._changes.pop(partition, None))

    async def _give_way(self, partition: Partition) -> None:
        state = self._state(partition)
        if state is None:
            return
        change = resignation(
            keys.partition(partition.topic_id, partition.index),
            state,
            node_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            brokers=self._metadata.image.brokers,
            rules=_rules(partition),
        )
        if change is None:
            return
        try:
            await self._metadata.txn(change.expect, change.writes)
        except MetadataStoreError as error:
            # The next check, or the next attempt of a repair, tries again.
            logger.info("%s is still led here: %s", partition.log.name, error)

    async def _change(self, partition: Partition, states: ReplicaStates, isr: list[int]) -> None:
        before = list(states.isr)
        change = self._planned(partition, states, isr)
        is_uncertain = False
        while change is not None:
            try:
                outcome = await self._metadata.txn(change.expect, change.writes)
            except StoreUnavailable as error:
                if not is_uncertain:
                    logger.info("the ISR of %s stays as it is: %s", partition.log.name, error)
                    break
            except MetadataStoreError as error:
                is_uncertain = True
                logger.info("whether the ISR of %s has changed is not known: %s", partition.log.name, error)
            else:
                if outcome.committed:
                    self._count(before, isr)
                break
            await asyncio.sleep(_RETRY_S)
        if partition.replicas is states:
            # The image shows the outcome by now, and `lead` has taken it over.
            states.settle()
            partition.advance_with_replicas()

    def _planned(self, partition: Partition, states: ReplicaStates, isr: list[int]) -> StateChange | None:
        """Return the transaction that makes `isr` the ISR; None if that is not possible now."""
        state = self._state(partition)
        if state is None or state.epoch != partition.leader_epoch:
            return None
        recorded = in_sync(state.value)
        members = {}
        for node in isr:
            follower = states.follower(node)
            # A member joins under the epoch of the fetches with which it caught up (KIP-903).
            members[node] = recorded[node] if follower is None or node in recorded else follower.broker_epoch
        try:
            return isr_change(
                keys.partition(partition.topic_id, partition.index),
                state,
                members,
                node_id=self._node_id,
                broker_epoch=self._broker_epoch(),
                brokers=self._metadata.image.brokers,
                rules=_rules(partition),
            )
        except RequestError as error:
            logger.info("the ISR of %s stays as it is: %s", partition.log.name, error)
            return None

    def _count(self, before: list[int], after: list[int]) -> None:
        if len(after) > len(before):
            self.isr_expansions += 1
        else:
            self.isr_shrinks += 1

    def _state(self, partition: Partition) -> PartitionImage | None:
        topic = self._metadata.image.topics_by_id.get(partition.topic_id)
        if topic is None or partition.index >= len(topic.partitions):
            return None
        return topic.partitions[partition.index]

    def _registered(self) -> dict[int, int]:
        return {node: broker.epoch for node, broker in self._metadata.image.brokers.items()}

    def _draining(self) -> list[int]:
        return [node for node, broker in self._metadata.image.brokers.items() if broker.is_draining]

    def _now_ms(self) -> int:
        """No acknowledgement depends on the wall clock: it may jump."""
        return int(self._clock.monotonic() * 1000)


def _rules(partition: Partition) -> ElectionRules:
    config = partition.log.config
    return ElectionRules(config.min_insync_replicas, config.unclean_leader_election_enable)
