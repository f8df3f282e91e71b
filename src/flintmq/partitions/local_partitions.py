"""Every partition that this broker serves, kept in step with the image of the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from flintmq.effects import Clock, Executor, Timers
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.image import STANDALONE_EPOCH, ClusterImage, ImageDelta, PartitionImage, TopicImage
from flintmq.metadata.store import Put
from flintmq.metadata.topic_transactions import finish_deletion
from flintmq.partitions.partition import NO_LEADER, Partition
from flintmq.records.topic_partition import TopicPartition
from flintmq.settings import TopicConfig
from flintmq.settings.kinds import LONG_MAX
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from flintmq.storage.recovery.log_loader import RecoveryReport

logger: Final = logging.getLogger(__name__)

EXPIRY_CHECK_MS: Final = 600_000
"""How often idle producers are looked for, as in Kafka."""


class LocalPartitions:
    def __init__(
        self,
        *,
        node_id: int,
        metadata: ClusterMetadata,
        configs: Configs,
        log_dir: LogDir,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        broker_epoch: Callable[[], int] = lambda: STANDALONE_EPOCH,
    ) -> None:
        """`broker_epoch` returns the epoch of this broker's registration in the cluster."""
        self.log_dir = log_dir
        self._broker_epoch = broker_epoch
        self._role_listeners: list[Callable[[Partition], object]] = []
        self.node_id = node_id
        self._metadata = metadata
        self._configs = configs
        self._clock = clock
        self._timers = timers
        self._executor = executor
        self.by_name: dict[TopicPartition, Partition] = {}
        self.by_id: dict[tuple[bytes, int], Partition] = {}
        self.validating: dict[Partition, None] = {}
        """Those whose topics want their batches validated or recompressed; mostly none."""
        # Those that `flush.ms` flushes: an idle broker looks at no others.
        self._timed: dict[Partition, None] = {}
        self._expired_ms = clock.now_ms()
        self._removals: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def get(self, topic: str | bytes, index: int) -> Partition | None:
        """By the topic's name, or by its id."""
        if isinstance(topic, str):
            return self.by_name.get((topic, index))
        return self.by_id.get((topic, index))

    def on_role(self, listener: Callable[[Partition], object]) -> None:
        """Call `listener` with each partition whose role, leader epoch or replicas may have changed, or that is gone.

        It is called in the step of the loop that changed them.
        """
        self._role_listeners.append(listener)

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    # ---- life

    async def load(self) -> list[tuple[Log, RecoveryReport]]:
        """Open all logs, then follow the image, which may have changed meanwhile."""
        image = self._metadata.image
        assigned = [
            AssignedPartition(topic.name, index, topic.id, self._configs.topic(topic.name))
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self.node_id in state.replicas
        ]
        reports = await self.log_dir.load(assigned, deleting=frozenset(image.deleting))
        # ORDER: no `await` from here to the subscription: no change of the image is missed, and none is seen twice.
        reports = [(log, report) for log, report in reports if self._is_assigned(log)]
        for log, _ in reports:
            self._add(log, image.topics_by_id[log.topic_id].partitions[log.partition])
        for remove in self.log_dir.unfinished_deletions():
            self._remove_later(remove, 0.0, None)
        for topic_id in image.deleting:
            self._remove_later(None, 0.0, topic_id)
        for topic in list(image.topics.values()):
            for index, state in enumerate(topic.partitions):
                if self.node_id in state.replicas and self.get(topic.id, index) is None:
                    self._change(topic, index, self._configs.topic(topic.name))
        self._metadata.subscribe(self._follow)
        if self._metadata.is_standalone:
            await self._forget_unclaimed()
        return reports

    def _is_assigned(self, log: Log) -> bool:
        """Whether a log that was opened still belongs here; otherwise take it out of service."""
        topic = self._metadata.image.topics_by_id.get(log.topic_id)
        if (
            topic is not None
            and log.partition < len(topic.partitions)
            and self.node_id in topic.partitions[log.partition].replicas
        ):
            return True
        # Its topic was deleted, or it was reassigned, while it was opened. `unfinished_deletions` finds its files.
        self.log_dir.delete(log.topic, log.partition)
        return False

    async def _forget_unclaimed(self) -> None:
        """Before the first client comes, a partition without a topic is of no creation under way."""
        unclaimed = self._metadata.image.unclaimed()
        step = self._metadata.store.max_ops
        for at in range(0, len(unclaimed), step):
            gone: dict[str, Put | None] = {
                keys.partition(topic_id, index): None for topic_id, index in unclaimed[at : at + step]
            }
            await self._metadata.write(gone)

    async def close(self) -> None:
        for task in list(self._removals):
            task.cancel()
        await asyncio.gather(*self._removals, return_exceptions=True)
        for partition in self:
            partition.close()
        # ORDER: truncations have ended BEFORE their logs are closed.
        await asyncio.gather(*(partition.truncated() for partition in self))
        self.log_dir.close()

    def _add(self, log: Log, state: PartitionImage) -> Partition:
        partition = Partition(log, clock=self._clock, timers=self._timers, executor=self._executor)
        partition.role_changed = partial(self._notify, partition)
        self.by_name[log.topic, log.partition] = partition
        self.by_id[log.topic_id, log.partition] = partition
        self._configure(partition, log.config)
        self._take_role(partition, state)
        return partition

    def reassess(self) -> None:
        """Take the roles that the image says, after this broker has registered again or lost its registration."""
        for partition in list(self):
            topic = self._metadata.image.topics_by_id.get(partition.topic_id)
            if topic is not None and partition.index < len(topic.partitions):
                self._take_role(partition, topic.partitions[partition.index])

    def _take_role(self, partition: Partition, state: PartitionImage) -> None:
        """Let the partition lead or follow, as the image says."""
        if state.is_led_by(self.node_id, self._broker_epoch()):
            partition.lead(
                node_id=self.node_id,
                leader_epoch=state.epoch,
                replicas=state.replicas,
                isr=state.isr,
                has_elr=bool(state.value.elr),
            )
        else:
            # A broker that has registered again does not lead in an epoch of its former life, and follows nobody.
            leader = NO_LEADER if state.leader == self.node_id else state.leader
            partition.follow(leader=leader, leader_epoch=state.epoch, isr=state.isr)
        self._notify(partition)

    def _notify(self, partition: Partition) -> None:
        for listener in self._role_listeners:
            listener(partition)

    def _configure(self, partition: Partition, config: TopicConfig) -> None:
        partition.configure(config)
        _keep(self._timed, partition, config.flush_ms < LONG_MAX)
        _keep(self.validating, partition, partition.requires_validation and not partition.is_internal)

    # ---- following the image

    def _follow(self, delta: ImageDelta) -> None:
        if delta.broker_configs:
            self._configs.refresh()
            for partition in self:
                self._configure(partition, self._configs.topic(partition.topic))
        for topic in delta.topics_deleted:
            self._delete(topic)
        configs: dict[bytes, TopicConfig] = {}
        for topic, index in delta.partitions_changed:
            if topic.id not in configs:
                configs[topic.id] = self._configs.topic(topic.name)
            self._change(topic, index, configs[topic.id])
        for name in delta.topic_configs:
            changed = self._metadata.image.topics.get(name)
            if changed is not None:
                config = self._configs.topic(name)
                for index in range(len(changed.partitions)):
                    partition_or_none = self.get(changed.id, index)
                    if partition_or_none is not None:
                        self._configure(partition_or_none, config)

    def _change(self, topic: TopicImage, index: int, config: TopicConfig) -> None:
        state = topic.partitions[index]
        partition = self.get(topic.id, index)
        if partition is not None:
            if self.node_id in state.replicas:
                self._take_role(partition, state)
            else:
                self._remove_replica(partition, config)
        elif self.node_id in state.replicas:
            log = self.log_dir.create(AssignedPartition(topic.name, index, topic.id, config))
            self._add(log, state)

    def _remove_replica(self, partition: Partition, config: TopicConfig) -> None:
        """The partition was reassigned to other brokers: delete its log here."""
        remover = self._forget(partition)
        if remover is not None:
            self._remove_later(remover, config.file_delete_delay_ms / 1000, None)

    def _forget(self, partition: Partition) -> Callable[[], None] | None:
        """Stop serving a partition; return what removes its files."""
        self.by_id.pop((partition.topic_id, partition.index), None)
        if self.by_name.get((partition.topic, partition.index)) is partition:
            del self.by_name[partition.topic, partition.index]
        self._timed.pop(partition, None)
        self.validating.pop(partition, None)
        remover = self.log_dir.delete(partition.topic, partition.index)
        partition.close()
        self._notify(partition)
        return remover

    def _delete(self, topic: TopicImage) -> None:
        delay_s = self._configs.topic(topic.name).file_delete_delay_ms / 1000
        removers = []
        for index in range(len(topic.partitions)):
            partition = self.by_id.get((topic.id, index))
            remover = None if partition is None else self._forget(partition)
            if remover is not None:
                removers.append(remover)

        def remove_all() -> None:
            for remove in removers:
                remove()

        self._remove_later(remove_all, delay_s, topic.id)

    def _remove_later(
        self, remove: Callable[[], None] | None, delay_s: float, topic_id: bytes | None
    ) -> None:
        task = asyncio.ensure_future(self._remove(remove, delay_s, topic_id))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _remove(
        self, remove: Callable[[], None] | None, delay_s: float, topic_id: bytes | None
    ) -> None:
        """ORDER: the note that a topic is being deleted goes AFTER its files."""
        await asyncio.sleep(delay_s)
        try:
            if remove is not None:
                await self._executor.run(remove)
        except OSError as error:
            logger.error("deleted files could not be removed, the next start tries again: %s", error)
            return
        if topic_id is not None:
            await finish_deletion(self._metadata, topic_id, self.node_id)

    # ---- housekeeping, called now and then

    def tick(self) -> None:
        """Flush what `flush.ms` says, forget idle producers."""
        now_ms = self._clock.now_ms()
        for timed in list(self._timed):
            timed.flush_if_due(now_ms)
        if now_ms - self._expired_ms < EXPIRY_CHECK_MS:
            return
        self._expired_ms = now_ms
        expired_before = now_ms - self._configs.broker.producer_id_expiration_ms
        for partition in list(self):
            if len(partition.log.producers):
                partition.log.producers.expire(expired_before)


def _keep(among: dict[Partition, None], partition: Partition, belongs: bool) -> None:
    if belongs:
        among[partition] = None
    else:
        among.pop(partition, None)
