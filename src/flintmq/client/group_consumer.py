"""Reading one topic as a member of a group: the partitions that the group gives, from where it left off.

    consumer = GroupConsumer(client, topic, "g", begin=…)
    while True:
        records = consumer.poll()
        …
        consumer.delivered()

Invariant: what is committed has been delivered; what was delivered and not committed comes again, here or at another
member (at least once). Commits are made as reading goes on, before partitions may move, and at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from flintmq.client.admin.groups import committed_offsets
from flintmq.client.cluster import ClusterClient
from flintmq.client.consumer import MAX_WAIT_MS, Consumer, Gap
from flintmq.client.group_membership import GroupMembership
from flintmq.client.metadata import TopicMetadata
from flintmq.records.record import Record

COMMIT_INTERVAL_S: Final = 5.0
TOPICS_INTERVAL_S: Final = 30.0
"""How often the leader looks whether the topics of the group have grown."""

Offsets = Callable[[Sequence[int]], Mapping[int, int]]
"""An offset for each of some partitions."""


class GroupConsumer:
    def __init__(
        self,
        client: ClusterClient,
        topic: TopicMetadata,
        group_id: str,
        *,
        begin: Offsets,
        ends: Offsets | None = None,
        on_gap: Gap = lambda partition, wanted, start: None,
        on_assigned: Callable[[list[int]], object] = lambda partitions: None,
        on_lost: Callable[[], object] = lambda: None,
        idle: Callable[[float], object] = time.sleep,
        read_committed: bool = False,
    ) -> None:
        """`begin` says where partitions begin that the group has no offset for; `ends`, where reading ends.

        `on_lost` is told when offsets could not be committed because the group had gone on without this member.
        """
        self.membership = GroupMembership(client, group_id, [topic.name])
        self._client = client
        self._topic = topic
        self._begin = begin
        self._ends_of = ends
        self._on_gap = on_gap
        self._on_assigned = on_assigned
        self._on_lost = on_lost
        self._idle = idle
        self._read_committed = read_committed
        self._consumer: Consumer | None = None
        self._ends: dict[int, int] = {}
        self._polled: list[tuple[int, Record]] = []
        self._reached: dict[int, int] = {}
        self._delivered: dict[int, int] = {}
        self._committed_s = self._looked_s = client.clock.monotonic()

    @property
    def is_at_end(self) -> bool:
        """All partitions that are this member's have been read up to their ends."""
        return self._consumer is not None and not self._consumer.positions and self._ends_of is not None

    def poll(self, max_wait_ms: int = MAX_WAIT_MS) -> list[tuple[int, Record]]:
        """What there is now, or nothing after `max_wait_ms`; longer if the group shares its partitions anew."""
        self._stay()
        consumer = self._consumer or self._join()
        if not consumer.positions:
            if not self.is_at_end:
                self._idle(max_wait_ms / 1000)
            return []
        found = consumer.poll(max_wait_ms)
        ends = self._ends
        self._polled = [
            (partition, record)
            for partition, record in found
            if partition not in ends or record.offset < ends[partition]
        ]
        self._reached = {
            partition: min(position, ends.get(partition, position))
            for partition, position in consumer.positions.items()
        }
        self._drop_finished(consumer)
        return self._polled

    def delivered(self, count: int | None = None) -> None:
        """So many of the records of the last poll are done with, or all of them."""
        if count is None or count >= len(self._polled):
            self._delivered.update(self._reached)
        else:
            for partition, record in self._polled[:count]:
                self._delivered[partition] = record.offset + 1
        self._polled, self._reached = [], {}

    def commit(self, *, patient: bool = True) -> None:
        """Tell the group what was delivered since the last time."""
        self._committed_s = self._client.clock.monotonic()
        if not self._delivered:
            return
        offsets = {(self._topic.name, partition): offset for partition, offset in self._delivered.items()}
        self._delivered = {}
        if not self.membership.commit(offsets, patient=patient):
            self._consumer = None
            self._on_lost()

    def close(self, *, interrupted: bool = False) -> None:
        """Commit and leave. `interrupted`: an answer may still be under way on any connection, so use new ones."""
        if interrupted:
            self._client.close()
        try:
            self.commit(patient=False)
        finally:
            self.membership.leave()

    # ---- the group

    def _stay(self) -> None:
        """Whatever the group wants by now."""
        if self._consumer is None:
            return
        now_s = self._client.clock.monotonic()
        if self.membership.is_due and not self.membership.heartbeat():
            self._consumer = None
        elif self.membership.is_leader and now_s - self._looked_s >= TOPICS_INTERVAL_S:
            self._looked_s = now_s
            if self.membership.topics_changed():
                self._consumer = None
        if self._consumer is None or now_s - self._committed_s >= COMMIT_INTERVAL_S:
            # ORDER: before joining again, for then these partitions may be another's.
            self.commit()

    def _join(self) -> Consumer:
        assignment = self.membership.join()
        self._topic = self._client.topic(self._topic.name)
        mine = sorted(assignment.get(self._topic.name, ()))
        committed = committed_offsets(
            self._client, self.membership.group_id, [(self._topic.name, one) for one in mine]
        )
        positions = {partition: offset for (_, partition), (offset, _) in committed.items()}
        new = [partition for partition in mine if partition not in positions]
        # To be committed even if nothing is read: who begins at the end must come back to it, not to a later one.
        begun = dict(self._begin(new)) if new else {}
        positions |= begun
        if self._ends_of is not None:
            # One that stays with this member keeps the end it had: or it would never be reached.
            kept = {partition: end for partition, end in self._ends.items() if partition in positions}
            unknown = [partition for partition in mine if partition not in kept]
            self._ends = {**kept, **(self._ends_of(unknown) if unknown else {})}
        self._polled, self._reached, self._delivered = [], {}, begun
        self._consumer = Consumer(
            self._client, self._topic, positions, on_gap=self._on_gap, read_committed=self._read_committed
        )
        self._drop_finished(self._consumer)
        self._on_assigned(mine)
        return self._consumer

    def _drop_finished(self, consumer: Consumer) -> None:
        for partition, end in self._ends.items():
            if consumer.positions.get(partition, -1) >= end:
                consumer.drop(partition)
