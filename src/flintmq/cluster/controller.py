"""The controller: one broker that keeps partitions in step with the brokers that are registered.

Any broker may hold `/controller`, a key under the lease of its registration; it is taken only when it has vanished,
and each transaction of the holder expects it. So a controller that was paused, or has lost its lease without knowing,
changes nothing any more, and two that take the key at once cannot both have it. The controller remembers nothing:
what it decides follows from the image (`elections`, `reassignment`), and the next one decides the same.

Its work is a set of partitions to look at. A turn of the loop takes up to 5 ms; changes are written in transactions
of up to `max_ops` comparisons, and partitions of a transaction that failed are looked at again, in smaller ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from flintmq.cluster import reassignment
from flintmq.cluster.elections import (
    Brokers,
    Election,
    ElectionRules,
    StateChange,
    check_election,
    controlled_change,
    is_current,
)
from flintmq.effects import Clock
from flintmq.errors import ErrorCode, MetadataStoreError, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ImageDelta, PartitionImage
from flintmq.metadata.keys import PartitionValue
from flintmq.metadata.store import Put

logger: Final = logging.getLogger(__name__)

TURN_S: Final = 0.005
RETRY_S: Final = 0.2
ATTEMPTS_MAX: Final = 8
"""How often a change that was asked for is decided again because the partition changed meanwhile."""

Decision = Callable[[PartitionValue, Brokers, ElectionRules], PartitionValue]
"""Returns the state that is asked for, or raises RequestError."""


class Controller:
    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        node_id: int,
        clock: Clock,
        rules: Callable[[str], ElectionRules],
        broker_epoch: Callable[[], int],
        lease_id: Callable[[], int],
    ) -> None:
        """`rules` are those of a topic, `broker_epoch` and `lease_id` those of this broker's registration."""
        self._metadata = metadata
        self._node_id = node_id
        self._clock = clock
        self._rules = rules
        self._broker_epoch = broker_epoch
        self._lease_id = lease_id
        self._revision = 0
        """Of the key as this controller wrote it; 0 if it holds none."""
        self._due: dict[tuple[bytes, int], Election] = {}
        self._scan: Iterator[tuple[bytes, int]] | None = None
        self._cleans_up = False
        self._batch_max = 1
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        current = self._metadata.image.controller
        return current is not None and current.revision == self._revision

    @property
    def is_idle(self) -> bool:
        """Whether everything that is known has been looked at."""
        return not (self._due or self._scan or self._cleans_up)

    def start(self) -> None:
        self._metadata.subscribe(self._follow)
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="controller")

    async def close(self) -> None:
        """Give up the key, so that another broker takes over at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.is_active:
            try:
                await self._metadata.txn({keys.CONTROLLER: self._revision}, {keys.CONTROLLER: None})
            except MetadataStoreError as error:
                logger.warning("the controller's key could not be given up, and will expire: %s", error)

    # ---- what is asked for

    async def elect(self, topic_id: bytes, index: int, election: Election) -> None:
        """Elect a leader (KIP-460). RequestError if there is none to elect, or no need."""

        def decide(value: PartitionValue, brokers: Brokers, rules: ElectionRules) -> PartitionValue:
            result = reassignment.settled(value, brokers, rules, election)
            check_election(value, result, election)
            return result

        await self._change(topic_id, index, decide)

    async def reassign(
        self, topic_id: bytes, index: int, target: list[int] | None, *, factor_may_change: bool
    ) -> None:
        """Move a partition to other brokers, or cancel that for None (KIP-455)."""

        def decide(value: PartitionValue, brokers: Brokers, rules: ElectionRules) -> PartitionValue:
            if target is None:
                wanted = reassignment.cancelled(value, rules)
            else:
                wanted = reassignment.start(value, target, brokers, factor_may_change=factor_may_change)
            return reassignment.settled_from(value, wanted, brokers, rules)

        await self._change(topic_id, index, decide)

    def prefer_leaders(self) -> None:
        """Elect preferred leaders wherever they are in sync and do not lead (auto.leader.rebalance.enable)."""
        image = self._metadata.image
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                first = state.replicas[0]
                if state.leader != first and first in state.isr:
                    self._due[topic.id, index] = Election.PREFERRED
        self._wake.set()

    async def _change(self, topic_id: bytes, index: int, decide: Decision) -> None:
        for _ in range(ATTEMPTS_MAX):
            if not self.is_active:
                raise RequestError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
            topic = self._metadata.image.topics_by_id.get(topic_id)
            if topic is None or not 0 <= index < len(topic.partitions):
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            state, brokers = topic.partitions[index], self._metadata.image.brokers
            value = decide(state.value, brokers, self._rules(topic.name))
            if value == state.value:
                return
            change = self._controlled(topic_id, index, state, value)
            if (await self._metadata.txn(change.expect, change.writes)).committed:
                return
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "The partition changes all the time; try again.")

    # ---- what changes

    def _follow(self, delta: ImageDelta) -> None:
        if delta.brokers or delta.broker_configs:
            self._scan = self._everything()
            self._cleans_up = True
        for topic, index in delta.partitions_changed:
            self._due.setdefault((topic.id, index), Election.ONLINE)
        for name in delta.topic_configs:
            changed = self._metadata.image.topics.get(name)
            if changed is not None:
                for index in range(len(changed.partitions)):
                    self._due.setdefault((changed.id, index), Election.ONLINE)
        if delta.unclaimed:
            self._cleans_up = True
        if not self.is_active and self._metadata.image.controller is not None:
            # Another broker does the work; the next controller looks at everything again.
            self._due.clear()
            self._scan = None
            self._cleans_up = False
        else:
            self._wake.set()

    def _everything(self) -> Iterator[tuple[bytes, int]]:
        """Yield all partitions; topics that come while it runs are in deltas of their own."""
        for topic in list(self._metadata.image.topics.values()):
            for index in range(len(topic.partitions)):
                yield topic.id, index

    # ---- turns

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._work()
            except MetadataStoreError as error:
                # Nothing is lost: what was to be done follows from the image.
                logger.warning("the controller could not write, and tries again: %s", error)
                self._scan = self._everything()
                self._cleans_up = True
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _work(self) -> None:
        current = self._metadata.image.controller
        if current is None:
            await self._take()
            if self._metadata.image.controller is None:
                # This broker is not registered now.
                await asyncio.sleep(RETRY_S)
                self._wake.set()
        elif current.node == self._node_id and not self.is_active:
            await self._adopt()
        while self.is_active and not self.is_idle:
            batch = self._decide()
            if batch:
                await self._write(batch)
            elif self._cleans_up and not self._due and self._scan is None:
                await self._clean_up()
            else:
                await asyncio.sleep(0)

    async def _take(self) -> None:
        """Become the controller, unless another broker is faster."""
        lease, epoch = self._lease_id(), self._broker_epoch()
        if not lease or epoch < 0:
            return
        metadata = self._metadata
        number = metadata.image.controller_epoch + 1
        expect = {
            keys.CONTROLLER: 0,
            keys.CONTROLLER_EPOCH: metadata.revision_of(keys.CONTROLLER_EPOCH),
            # A broker that is not registered controls nothing.
            keys.broker(self._node_id): epoch,
        }
        value = keys.ControllerValue(node=self._node_id, epoch=number)
        outcome = await metadata.txn(
            expect,
            {
                keys.CONTROLLER: Put(keys.encode(value), lease),
                keys.CONTROLLER_EPOCH: Put(keys.encode(keys.ControllerEpochValue(epoch=number))),
            },
        )
        if outcome.committed:
            self._begin(outcome.revision)

    async def _adopt(self) -> None:
        """Find out whether the key is ours, from an attempt whose outcome was uncertain, or an earlier process's."""
        found = (await self._metadata.store.get(keys.CONTROLLER)).items.get(keys.CONTROLLER)
        if found is not None and found.lease == self._lease_id():
            self._begin(found.revision)

    def _begin(self, revision: int) -> None:
        self._revision = revision
        logger.info("broker %d is the controller", self._node_id)
        self._scan = self._everything()
        self._cleans_up = True

    def _decide(self) -> list[tuple[tuple[bytes, int], StateChange]]:
        """Look at partitions for one turn; return the changes that fit into one transaction.

        No `await` in here: what is decided together is decided on one image.
        """
        ends_at = self._clock.monotonic() + TURN_S
        room = self._metadata.store.max_ops - 1
        batch: list[tuple[tuple[bytes, int], StateChange]] = []
        expected: set[str] = set()
        while len(batch) < self._batch_max and self._clock.monotonic() < ends_at:
            due = next(iter(self._due), None)
            if due is None:
                if self._scan is None:
                    break
                due = next(self._scan, None)
                if due is None:
                    self._scan = None
                    break
                self._due.setdefault(due, Election.ONLINE)
            change = self._change_of(due, self._due[due])
            if change is not None:
                if len(expected | change.expect.keys()) > room:
                    break
                expected |= change.expect.keys()
                batch.append((due, change))
            del self._due[due]
        return batch

    def _change_of(self, due: tuple[bytes, int], election: Election) -> StateChange | None:
        topic_id, index = due
        image = self._metadata.image
        topic = image.topics_by_id.get(topic_id)
        if topic is None or index >= len(topic.partitions):
            return None
        state = topic.partitions[index]
        if election is Election.ONLINE and not _needs_attention(state.value, image.brokers):
            return None
        value = reassignment.settled(state.value, image.brokers, self._rules(topic.name), election)
        return None if value == state.value else self._controlled(topic_id, index, state, value)

    def _controlled(
        self, topic_id: bytes, index: int, state: PartitionImage, value: PartitionValue
    ) -> StateChange:
        return controlled_change(
            keys.partition(topic_id, index),
            state,
            value,
            self._metadata.image.brokers,
            controller_revision=self._revision,
        )

    async def _write(self, batch: list[tuple[tuple[bytes, int], StateChange]]) -> None:
        expect: dict[str, int] = {}
        writes: dict[str, Put | None] = {}
        for _, change in batch:
            expect.update(change.expect)
            writes.update(change.writes)
        outcome = await self._metadata.txn(expect, writes)
        if outcome.committed:
            self._batch_max = min(2 * self._batch_max, self._metadata.store.max_ops)
            return
        # One of them was changed by its leader, or a broker has registered again. The image shows it by now.
        self._batch_max = max(1, len(batch) // 2)
        for due, _ in batch:
            self._due.setdefault(due, Election.ONLINE)

    async def _clean_up(self) -> None:
        """Delete what creations and deletions of topics have left that were cut short."""
        self._cleans_up = False
        image, step = self._metadata.image, self._metadata.store.max_ops - 1
        gone = [
            keys.creating(topic_id)
            for topic_id, creation in image.creating.items()
            if not is_current(creation.value.node, creation.value.broker_epoch, image.brokers)
        ]
        if not gone:
            gone = [keys.partition(topic_id, index) for topic_id, index in image.unclaimed()]
        if not gone:
            return
        # ORDER: claims go first; partitions are unclaimed only after that, and no broker writes more of them.
        self._cleans_up = True
        left = iter(gone)
        while some := list(islice(left, step)):
            expect = {key: revision for key in some if (revision := self._metadata.revision_of(key))}
            expect[keys.CONTROLLER] = self._revision
            if not (await self._metadata.txn(expect, dict.fromkeys(some))).committed:
                # Another broker has cleaned up after itself; what is left is looked at again.
                return


def _needs_attention(value: PartitionValue, brokers: Brokers) -> bool:
    """Whether `settled` can change anything; most partitions are as they should be, and this is cheap."""
    if value.leader < 0 or value.elr or value.adding or value.removing or value.leader not in value.isr:
        return True
    if len(value.isr_epochs) != len(value.isr):
        return True
    for node, epoch in zip(value.isr, value.isr_epochs, strict=True):
        broker = brokers.get(node)
        if broker is None or broker.epoch != epoch or broker.is_draining:
            return True
    return False
