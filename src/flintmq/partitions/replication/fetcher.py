"""Copies the partitions that one other broker leads: one connection, one request at a time.

Invariants: what a response says of a partition counts only if the partition still follows the same leader in the same
epoch, and its log is as it was when the request was sent (`generation` and end). A response that diverges changes
nothing but the log's end. A batch is written only after its CRC was checked. At most `TURN_BYTES` are written in one
step of the loop, and a response is never larger than `replica.fetch.response.max.bytes`, or one batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.cluster.peers import Peer, PeerUnreachable
from flintmq.effects import Clock
from flintmq.errors import CorruptionError, ErrorCode, FlintError
from flintmq.partitions.partition import Partition, Role
from flintmq.partitions.replication.divergence import common_end
from flintmq.partitions.replication.fetch_session import FetchPosition, FollowerFetchSession, PartitionKey
from flintmq.partitions.replication.fetched_batches import whole_batches
from flintmq.partitions.replication.throttle import ReplicationThrottle, is_throttled
from flintmq.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from flintmq.records.batch import HEADER_SIZE, read_header
from flintmq.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

FETCH_VERSION: Final = 17
_LIST_OFFSETS_VERSION: Final = 9
_EARLIEST: Final = -2
_LATEST: Final = -1
_THROTTLE_CHECK_S: Final = 0.1
TURN_BYTES: Final = 1024 * 1024
_EMPTY: Final = memoryview(b"")


class _Asked(NamedTuple):
    """A partition as it was when it was asked for."""

    partition: Partition
    leader_epoch: int
    generation: int
    offset: int


class ReplicaFetcher:
    def __init__(
        self,
        peer: Peer,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        config: Callable[[], BrokerConfig],
        throttle: ReplicationThrottle,
    ) -> None:
        """`throttle` is that of all fetchers of the broker."""
        self.leader = peer.node_id
        self._peer = peer
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._config = config
        self._partitions: dict[PartitionKey, Partition] = {}
        self._delayed: dict[PartitionKey, float] = {}
        """Partitions whose last fetch failed, and when they are fetched again."""
        self._session = FollowerFetchSession()
        self._throttle = throttle
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # ---- life

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: Partition) -> None:
        key = _key(partition)
        self._partitions[key] = partition
        # A new epoch may have ended what the delay was for.
        self._delayed.pop(key, None)
        partition.may_fetch_again = self._changed.set
        self._changed.set()

    def remove(self, partition: Partition) -> None:
        key = _key(partition)
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            self._delayed.pop(key, None)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"replica fetcher of broker {self.leader}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._peer.close()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            asked = self._ready()
            if not asked:
                await self._wait()
                continue
            try:
                await self._fetch(asked)
            except PeerUnreachable as error:
                self._session.reset()
                logger.info("replicas that broker %d leads are not fetched: %s", self.leader, error)
                await asyncio.sleep(self._backoff_s())
            except Exception:
                # A fault in one response must not end the copying of all partitions.
                logger.exception("a fetch from broker %d failed", self.leader)
                self._session.reset()
                await asyncio.sleep(self._backoff_s())

    async def _wait(self) -> None:
        """Wait until a partition is added or may be fetched again."""
        due = min(self._delayed.values(), default=None)
        timeout_s = None if due is None else max(0.0, due - self._clock.monotonic())
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return

    def _backoff_s(self) -> float:
        return self._config().replica_fetch_backoff_ms / 1000

    # ---- asking

    def _ready(self) -> dict[PartitionKey, _Asked]:
        now = self._clock.monotonic()
        for key in [key for key, due in self._delayed.items() if due <= now]:
            del self._delayed[key]
        is_exceeded = self._throttle.is_exceeded(self._config().follower_replication_throttled_rate, now)
        ready = {}
        for key, partition in self._partitions.items():
            if is_exceeded and self._is_limited(partition):
                self._delayed.setdefault(key, now + _THROTTLE_CHECK_S)
            if key not in self._delayed and partition.may_fetch:
                log = partition.log
                ready[key] = _Asked(partition, partition.leader_epoch, log.generation, log.end_offset)
        return ready

    def _is_limited(self, partition: Partition) -> bool:
        """Whether a replica that catches up is one that the topic names (KIP-73)."""
        replicas = partition.log.config.follower_replication_throttled_replicas
        return (
            bool(replicas)
            and self._node_id not in partition.isr
            and is_throttled(replicas, partition.index, self._node_id)
        )

    async def _fetch(self, asked: dict[PartitionKey, _Asked]) -> None:
        config = self._config()
        request = self._session.request(
            {
                key: FetchPosition(
                    leader_epoch=one.leader_epoch,
                    fetch_offset=one.offset,
                    last_fetched_epoch=one.partition.log.epochs.latest,
                    start_offset=one.partition.log.start_offset,
                    max_bytes=config.replica_fetch_max_bytes,
                )
                for key, one in asked.items()
            }
        )
        request.replica_state = FetchRequest.ReplicaState(
            replica_id=self._node_id, replica_epoch=self._broker_epoch()
        )
        request.max_wait_ms = config.replica_fetch_wait_max_ms
        request.min_bytes = config.replica_fetch_min_bytes
        request.max_bytes = config.replica_fetch_response_max_bytes
        response = await self._peer.call(request, FetchResponse, FETCH_VERSION)
        if response.error_code:
            self._session.reset()
            if response.error_code not in _SESSION_ERRORS:
                logger.warning(
                    "broker %d refuses to be fetched from: %s",
                    self.leader,
                    ErrorCode(response.error_code).name,
                )
                await asyncio.sleep(self._backoff_s())
            return
        self._session.accepted(response.session_id)
        await self._take(response, asked)

    # ---- taking what came

    async def _take(self, response: FetchResponse, asked: dict[PartitionKey, _Asked]) -> None:
        written = 0
        for topic in response.responses:
            for data in topic.partitions:
                one = asked.get((topic.topic_id, data.partition_index))
                if one is None or not self._is_current(one):
                    # The leader takes it as known from now on: begin a session that knows nothing.
                    self._session.reset()
                    continue
                records = _EMPTY if data.records is None else memoryview(data.records)
                try:
                    await self._take_one(one, data, records)
                except (FlintError, OSError) as error:
                    logger.warning("%s is not copied for a while: %s", one.partition.log.name, error)
                    self._delay(one)
                written += len(records)
                if written >= TURN_BYTES:
                    written = 0
                    await asyncio.sleep(0)

    def _is_current(self, one: _Asked) -> bool:
        log = one.partition.log
        return self._follows(one) and log.generation == one.generation and log.end_offset == one.offset

    def _follows(self, one: _Asked) -> bool:
        partition = one.partition
        return (
            partition.role is Role.FOLLOWER
            and partition.leader == self.leader
            and partition.leader_epoch == one.leader_epoch
        )

    async def _take_one(self, one: _Asked, data: FetchResponse.PartitionData, records: memoryview) -> None:
        partition = one.partition
        if data.error_code:
            await self._failed(one, ErrorCode(data.error_code))
        elif data.diverging_epoch.epoch >= 0:
            offset = common_end(
                partition.log.epochs,
                partition.log.end_offset,
                epoch=data.diverging_epoch.epoch,
                end_offset=data.diverging_epoch.end_offset,
            )
            await partition.truncate(offset)
        else:
            offset = await self._first_offset(one, records)
            if not self._follows(one):
                return
            batches = whole_batches(
                records,
                end_offset=offset,
                fetch_epoch=one.leader_epoch,
                epoch_before=partition.log.epochs.latest,
            )
            if records and not batches:
                raise CorruptionError("The leader sent a part of a batch only.")
            if batches:
                partition.append_fetched(batches, self._clock.now_ms())
                if self._is_limited(partition):
                    self._throttle.take(len(batches))
            partition.followed(data.high_watermark, data.log_start_offset)

    @staticmethod
    async def _first_offset(one: _Asked, records: memoryview) -> int:
        """Return where the log ends. An empty one begins with the batch that the leader's first offset lies in."""
        log = one.partition.log
        if log.start_offset == log.end_offset and len(records) >= HEADER_SIZE:
            first = read_header(records).base_offset
            if 0 <= first < one.offset:
                await one.partition.restart_at(first)
                return first
        return one.offset

    async def _failed(self, one: _Asked, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._adopt_range(one)
            return
        # Leadership has moved, or the leader does not know of it yet: the metadata will say more.
        self._delay(one)
        if code not in _EXPECTED_ERRORS:
            logger.warning(
                "%s cannot be copied from broker %d: %s", one.partition.log.name, self.leader, code.name
            )

    async def _adopt_range(self, one: _Asked) -> None:
        """The leader's log begins after this one ends, or ends before it."""
        partition = one.partition
        end = await self._offset(one, _LATEST)
        if not self._is_current(one) or end is None:
            self._delay(one)
            return
        if end < one.offset:
            await partition.truncate(end)
            return
        start = await self._offset(one, _EARLIEST)
        if not self._is_current(one) or start is None:
            self._delay(one)
        elif start > one.offset:
            logger.warning(
                "%s begins at offset %d at its leader; the copy, which ends at %d, starts over from there",
                partition.log.name,
                start,
                one.offset,
            )
            await partition.restart_at(start)
        else:
            # The leader does not know the follower's last epoch: it has not learned of its own election yet.
            self._delay(one)

    async def _offset(self, one: _Asked, timestamp: int) -> int | None:
        """Return the leader's first offset or its end; None if it does not say."""
        partition = one.partition
        wanted = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=one.leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=self._node_id, topics=[topic])
        response = await self._peer.call(request, ListOffsetsResponse, _LIST_OFFSETS_VERSION)
        found = response.topics[0].partitions[0]
        return None if found.error_code else found.offset

    def _delay(self, one: _Asked) -> None:
        self._delayed[_key(one.partition)] = self._clock.monotonic() + self._backoff_s()


_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_EXPECTED_ERRORS: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.index
