"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes. Pure.

    id 0, epoch -1     no session: everything in every request
    id 0, epoch 0      everything, and a session please
    id N, epoch 0      drop session N; everything, and a new one
    id N, epoch -1     drop session N; everything
    id N, epoch E > 0  only what changed since epoch E-1

The number of sessions is bounded, and that of the partitions in all of them. When either is reached, those idle
longest make room if they have been idle for two minutes, else the client simply gets no session. A session
that grows beyond the bound is dropped: its client begins again with everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flintmq.effects import Clock, Random
from flintmq.errors import ErrorCode
from flintmq.protocol.fetch import FIRST_TOPIC_IDS, FetchedPartition
from flintmq.protocol.messages import FetchRequest

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EVICTION_IDLE_S: Final = 120.0
PARTITIONS_MAX: Final = 200_000
"""In all sessions together; each takes about half a kilobyte."""
TOPIC_NAME_SIZE_MAX: Final = 256
"""Sessions keep no longer names: no topic has one, and a client may send names of 32 KB."""
_MAX_INT32: Final = 0x7FFFFFFF

PartitionKey = tuple[str | bytes, int]


class FetchPartition:
    """A partition that a client fetches, and what the client knows of it."""

    __slots__ = (
        "fetch_offset", "high_watermark", "last_fetched_epoch", "leader_epoch", "log_start_offset", "max_bytes",
        "partition", "start_offset", "topic",
    )  # fmt: skip

    def __init__(self, topic: str | bytes, data: FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.partition = data.partition
        self.high_watermark = -1
        self.start_offset = -1
        self.update(data)

    def update(self, data: FetchRequest.FetchPartition) -> None:
        self.leader_epoch = data.current_leader_epoch
        self.fetch_offset = data.fetch_offset
        self.log_start_offset = data.log_start_offset
        """Of a follower's own log; -1 from consumers."""
        self.last_fetched_epoch = data.last_fetched_epoch
        self.max_bytes = data.partition_max_bytes

    def differs_from(self, result: FetchedPartition) -> bool:
        """Return whether an incremental response needs this result: the client does not know it yet."""
        return (
            result.records is not None
            or result.error_code != 0
            or result.diverging is not None
            or result.high_watermark != self.high_watermark
            or result.start_offset != self.start_offset
        )

    def remember(self, result: FetchedPartition) -> None:
        """Take this result as known to the client."""
        # After an error the partition is sent again, whatever its result is. A follower that diverges takes nothing
        # from the result but where to truncate: it learns the high watermark from the next one.
        is_taken = not result.error_code and result.diverging is None
        self.high_watermark = result.high_watermark if is_taken else -1
        self.start_offset = result.start_offset


class FetchSession:
    __slots__ = ("by_id", "epoch", "session_id", "used_at", "wanted")

    def __init__(
        self, session_id: int, by_id: bool, wanted: dict[PartitionKey, FetchPartition], used_at: float
    ) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.wanted = wanted
        self.epoch = 1
        self.used_at = used_at

    def update(self, message: FetchRequest) -> None:
        wanted = self.wanted
        for fetch_topic in message.topics:
            name = fetch_topic.topic_id if self.by_id else fetch_topic.topic
            for data in fetch_topic.partitions:
                known = wanted.get((name, data.partition))
                if known is None:
                    wanted[name, data.partition] = FetchPartition(name, data)
                else:
                    known.update(data)
        # As Kafka has it, what is both wanted and forgotten is forgotten.
        for topic in message.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for partition in topic.partitions:
                wanted.pop((name, partition), None)
        self.epoch = 1 if self.epoch == _MAX_INT32 else self.epoch + 1

    def served(self, wanted: Iterable[FetchPartition]) -> None:
        """Those that got records go to the end, so that all get their turn."""
        for one in wanted:
            key = (one.topic, one.partition)
            if self.wanted.pop(key, None) is not None:
                self.wanted[key] = one


class FetchContext:
    """What one request asks for, after its session is taken into account."""

    __slots__ = ("error", "incremental", "session", "wanted")

    def __init__(
        self,
        wanted: list[FetchPartition],
        session: FetchSession | None = None,
        *,
        incremental: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.wanted = wanted
        self.session = session
        self.incremental = incremental
        self.error = error

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else 0


class FetchSessions:
    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        slots: int,
        partitions_max: int = PARTITIONS_MAX,
        eviction_idle_s: float = EVICTION_IDLE_S,
    ) -> None:
        self._clock = clock
        self._random = random
        self._slots = slots
        self._partitions_max = partitions_max
        self._eviction_idle_s = eviction_idle_s
        # The least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        self.partitions = 0
        """In all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, message: FetchRequest, version: int) -> FetchContext:
        session_id, epoch = message.session_id, message.session_epoch
        by_id = version >= FIRST_TOPIC_IDS
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.drop(session_id)
            wanted = _all(message, by_id)
            session = None
            if epoch == INITIAL_EPOCH and wanted and _is_bounded(message, by_id):
                session = self._create(wanted, by_id)
            return FetchContext(list(wanted.values()), session)
        found = self._sessions.get(session_id)
        if found is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if found.epoch != epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.by_id != by_id:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        del self._sessions[session_id]
        self._sessions[session_id] = found
        found.used_at = self._clock.monotonic()
        before = len(found.wanted)
        found.update(message)
        self.partitions += len(found.wanted) - before
        is_too_large = self.partitions > self._partitions_max or not _is_bounded(message, by_id)
        if is_too_large and len(found.wanted) > before:
            self.drop(session_id)
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return FetchContext(list(found.wanted.values()), found, incremental=True)

    def _create(self, wanted: dict[PartitionKey, FetchPartition], by_id: bool) -> FetchSession | None:
        now = self._clock.monotonic()
        while len(self._sessions) >= self._slots or self.partitions + len(wanted) > self._partitions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at < self._eviction_idle_s:
                return None
            self.drop(oldest.session_id)
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int.from_bytes(self._random.bytes(4), "big") & _MAX_INT32
        session = self._sessions[session_id] = FetchSession(session_id, by_id, wanted, now)
        self.partitions += len(wanted)
        return session

    def drop(self, session_id: int) -> None:
        """Forget a session, if it is known."""
        dropped = self._sessions.pop(session_id, None)
        if dropped is not None:
            self.partitions -= len(dropped.wanted)


def _is_bounded(message: FetchRequest, by_id: bool) -> bool:
    """Return whether a session may keep the names of the request."""
    return by_id or all(len(topic.topic) <= TOPIC_NAME_SIZE_MAX for topic in message.topics)


def _all(message: FetchRequest, by_id: bool) -> dict[PartitionKey, FetchPartition]:
    wanted: dict[PartitionKey, FetchPartition] = {}
    for topic in message.topics:
        name = topic.topic_id if by_id else topic.topic
        for data in topic.partitions:
            wanted[name, data.partition] = FetchPartition(name, data)
    return wanted
