"""The coordinator of groups, from the broker's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from flintmq.coordinator.groups.machine import DeletedTopic, GroupMachine
from flintmq.coordinator.groups.rebalance import GroupSettings
from flintmq.coordinator.groups.table_offsets import add_tables, add_topic
from flintmq.coordinator.runtime.coordinator import Coordinator
from flintmq.coordinator.runtime.shard import ShardState
from flintmq.effects import Clock, Executor, Timers
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.topics import NewTopic, Topics
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.table_retention import TableOffset
from flintmq.records.topic_partition import TopicPartition
from flintmq.settings import BrokerConfig

GROUPS_TOPIC: Final = "__consumer_offsets"
_MINUTE_MS: Final = 60_000
# Members that start together share their first generation, as they do with Kafka, whose timers take about as long.
_GATHERING_MS: Final = 5
_OFFSETS_AT_ONCE: Final = 5_000
"""Looked at for tables before others have their turn."""


class GroupCoordinator(Coordinator[GroupMachine]):
    """Groups, and what becomes of their offsets with time and with the topics they are of."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        metadata: ClusterMetadata,
        topics: Topics,
        partitions: LocalPartitions,
        clock: Clock,
        timers: Timers,
        executor: Executor,
    ) -> None:
        super().__init__(
            GROUPS_TOPIC,
            lambda _: GroupMachine(group_settings(config())),
            lambda: _offsets_topic(config(), brokers=max(1, len(metadata.image.brokers))),
            metadata=metadata,
            topics=topics,
            partitions=partitions,
            clock=clock,
            timers=timers,
            executor=executor,
        )
        self._config = config
        self._expired_ms = clock.now_ms()

    def start(self) -> None:
        super().start()
        self._metadata.subscribe(self._forget_topics)

    def tick(self) -> None:
        """Called once a second."""
        now_ms = self._clock.now_ms()
        # A clock that was set back must not keep offsets, and what they hold, until it has caught up.
        if not 0 <= now_ms - self._expired_ms < self._config().offsets_retention_check_interval_ms:
            self._expired_ms = now_ms
            self.each(lambda groups: groups.expire_offsets(now_ms))

    async def table_offsets(self) -> dict[TopicPartition, TableOffset] | None:
        """Return how far the slowest lake table of each partition is; None unless all groups are known."""
        found: dict[TopicPartition, TableOffset] = {}
        looked_at = 0
        for shard in self:
            if shard.state is not ShardState.ACTIVE:
                return None
            for group_id, offsets in list(shard.machine.offsets.items()):
                looked_at += add_tables(found, group_id, offsets)
                if looked_at >= _OFFSETS_AT_ONCE:
                    looked_at = 0
                    await asyncio.sleep(0)
        return found

    def table_offsets_of(self, topic: str) -> dict[TopicPartition, TableOffset]:
        """The same for one topic, as far as groups are known now."""
        found: dict[TopicPartition, TableOffset] = {}
        for shard in self:
            for group_id, offsets in shard.machine.offsets.items():
                if (partitions := offsets.committed.get(topic)) is not None:
                    add_topic(found, group_id, topic, partitions)
        return found

    def _forget_topics(self, delta: ImageDelta) -> None:
        gone = [DeletedTopic(topic.name, topic.id) for topic in delta.topics_deleted]
        if gone:
            self.each(lambda groups: groups.topics_deleted(gone))


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=max(config.group_initial_rebalance_delay_ms, _GATHERING_MS),
        group_max_size=config.group_max_size,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
    )


def _offsets_topic(config: BrokerConfig, *, brokers: int) -> NewTopic:
    return NewTopic(
        GROUPS_TOPIC,
        config.offsets_topic_num_partitions,
        min(config.offsets_topic_replication_factor, brokers),
        {},
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )
