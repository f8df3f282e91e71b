"""A replica of a partition on this broker: its log, its role, its leader epoch, and the requests that wait for it.

A leader decides when records become visible. Where it is the only replica, the high watermark follows the log's
end, or, with `flush.messages=1`, what is on stable storage; otherwise it follows the replicas of the maximal ISR
(`replication.replica_states`). A follower's high watermark follows its leader's. Appending wakes the readers that
wait, on the next turn of the loop, so that a burst of appends wakes them once.

Invariant: a change of role is one step of the loop. The new role is in force before the acknowledgements that wait
fail, since a client's next request may be dispatched by that; all of them have failed before anything else can happen
to the log. Only a leader appends, and only a leader acknowledges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, Protocol

from flintmq.effects import Clock, Executor, Timers
from flintmq.errors import ErrorCode, FlintError, LogOffline, RequestError
from flintmq.metadata.image import is_internal
from flintmq.partitions.acknowledgements import Settled, settle_below
from flintmq.partitions.batch_validation import target_codec, validated_batch
from flintmq.partitions.replication.replica_states import ReplicaStates
from flintmq.partitions.replication.truncation_task import TruncationTask
from flintmq.partitions.verification_guards import VerificationGuards
from flintmq.records.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    check_produced,
    read_header,
    set_append_time,
    set_create_time,
)
from flintmq.records.markers import Marker
from flintmq.settings import TopicConfig
from flintmq.storage.durability.flusher import Done, Flusher
from flintmq.storage.log import Appended, Log

NO_LEADER: Final = -1
ROLE_CHANGED: Final = -1
_FOREVER: Final = 1 << 62
# More than anybody waits for.
_UNCOUNTED: Final = 1 << 62

_NOT_LEADER: Final = RequestError(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker no longer leads the partition in that leader epoch."
)


class Role(IntEnum):
    NONE = 0
    """Neither leader nor follower: nothing is served, and nothing is fetched."""
    FOLLOWER = 1
    LEADER = 2


class AppendListener(Protocol):
    """A fetch that waits for records."""

    def records_arrived(self, partition: Partition, size: int) -> None:
        """About `size` more bytes are visible; `ROLE_CHANGED` if the partition may no longer be served as it was."""
        ...


class Partition:
    __slots__ = (
        "_after_max_ms", "_append_time", "_arrived", "_before_max_ms", "_check_keys", "_clock", "_codec",
        "_deep", "_durable", "_flusher", "_followers", "_guards", "_lead_later", "_readers", "_timers",
        "_truncation", "_visible_at_once", "_waiting", "_waiting_for_flush", "_waking", "_waking_followers",
        "deleted", "index", "is_internal", "isr", "joining", "leader", "leader_epoch", "log", "may_fetch_again",
        "replicas", "role", "role_changed", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, log: Log, *, clock: Clock, timers: Timers, executor: Executor) -> None:
        """The partition has no role until `lead` or `follow` is called."""
        self.topic = log.topic
        self.topic_id = log.topic_id
        self.index = log.partition
        self.is_internal = is_internal(log.topic)
        self.log = log
        self.role = Role.NONE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.isr: list[int] = []
        self.replicas: ReplicaStates | None = None
        """What the leader knows of its followers; None where it is the only replica, and on followers."""
        self.deleted = False
        self.role_changed: Callable[[], object] = _nothing
        """Called when the partition takes a role by itself, after what kept it from doing so, or its log fails."""
        self.may_fetch_again: Callable[[], object] = _nothing
        """Called when `may_fetch` may have become true."""
        self.joining: Callable[[], Sequence[int]] = _nobody
        """Returns the followers for which a leader waits, although they are not in its ISR yet."""
        self._clock = clock
        self._timers = timers
        self._flusher = Flusher(log, executor=executor, clock=clock, flushed=self._flushed)
        self._readers: dict[AppendListener, None] = {}
        # Fetches of followers: they wait for the end of the log, not for the high watermark.
        self._followers: dict[AppendListener, None] = {}
        # Acknowledgements that wait for the high watermark: (offset that must be below it, what to call).
        self._waiting: list[tuple[int, Settled]] = []
        # Acknowledgements that wait for the leader's own flush.
        self._waiting_for_flush: list[tuple[int, Settled]] = []
        self._arrived = 0
        self._waking = False
        self._waking_followers = False
        self._visible_at_once = False
        self._guards = VerificationGuards()
        self._truncation = TruncationTask(
            log,
            clock=clock,
            executor=executor,
            finished=self._was_truncated,
            is_needed=lambda: not self.deleted,
        )
        self._lead_later: Callable[[], object] | None = None
        self.configure(log.config)

    def configure(self, config: TopicConfig) -> None:
        """Take a new configuration; what was written stays as it is."""
        self.log.configure(config)
        self._durable = config.flush_messages == 1
        self._append_time = config.message_timestamp_type == "LogAppendTime"
        # How far the timestamps of producers may be from now.
        self._before_max_ms = _FOREVER if self._append_time else config.message_timestamp_before_max_ms
        self._after_max_ms = _FOREVER if self._append_time else config.message_timestamp_after_max_ms
        self._codec = target_codec(config.compression_type)
        self._check_keys = "compact" in config.cleanup_policy
        self._deep = self._check_keys or config.flint_validate_records == "deep"
        if self.replicas is not None:
            self.replicas.configure(config.min_insync_replicas)
        self._apply_role()

    # ---- roles

    def lead(
        self,
        *,
        node_id: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        has_elr: bool = False,
    ) -> None:
        """Lead in this epoch, or take over what the metadata says of the replicas in it."""
        if self._truncation.is_running:
            # ORDER: nothing is appended BEFORE the truncation is on stable storage.
            self.follow(leader=NO_LEADER, leader_epoch=leader_epoch, isr=isr)
            self._lead_later = partial(
                self.lead,
                node_id=node_id,
                leader_epoch=leader_epoch,
                replicas=replicas,
                isr=isr,
                has_elr=has_elr,
            )
            return
        is_elected = self.role is not Role.LEADER or leader_epoch != self.leader_epoch
        left = self._leave_role() if is_elected else []
        if is_elected:
            self.replicas = None
        self.role = Role.LEADER
        self.leader, self.leader_epoch, self.isr = node_id, leader_epoch, list(isr)
        # As in `LeaderReplication`: how long a follower lags is not a matter of the wall clock.
        now_ms = int(self._clock.monotonic() * 1000)
        if self.replicas is not None:
            self.replicas.change(replicas=replicas, isr=isr, has_elr=has_elr, now_ms=now_ms)
        elif list(replicas) != [node_id] or list(isr) != [node_id]:
            self.replicas = ReplicaStates(
                node_id=node_id,
                replicas=replicas,
                isr=isr,
                has_elr=has_elr,
                min_isr=self.log.config.min_insync_replicas,
                epoch_start=self.log.end_offset,
                now_ms=now_ms,
            )
        self._apply_role()
        if is_elected:
            self._announce_role(left, _NOT_LEADER)

    # ---- copying from a leader

    @property
    def may_fetch(self) -> bool:
        """Whether the log can take more from its leader now.

        With `flush.messages=1` what was taken must be on stable storage: the next fetch says that it is there.
        """
        log = self.log
        return (
            self.role is Role.FOLLOWER
            and not self._truncation.is_running
            and log.offline is None
            and (not self._durable or log.recovery_point >= log.end_offset)
        )

    def append_fetched(self, batches: memoryview, now_ms: int) -> None:
        """Write whole batches of the leader as they are."""
        self.log.append_replicated(batches, now_ms)
        self._flusher.after_append()

    async def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on, on stable storage too, before anything else can be written."""
        await self._truncation.truncate(offset)

    async def restart_at(self, offset: int) -> None:
        """Drop everything, and go on with an empty log at `offset`."""
        await self._truncation.restart_at(offset)

    async def truncated(self) -> None:
        """Return when no truncation is under way."""
        await self._truncation.ended()

    def _was_truncated(self) -> None:
        if self._lead_later is not None:
            lead, self._lead_later = self._lead_later, None
            lead()
            self.role_changed()
        # The leader may be another one by now, with a fetcher that waits for this.
        self.may_fetch_again()

    def follow(self, *, leader: int, leader_epoch: int, isr: Sequence[int]) -> None:
        """Follow a leader in this epoch; without one (`NO_LEADER`), wait for one."""
        is_new = self.role is not Role.FOLLOWER or leader_epoch != self.leader_epoch
        left = self._leave_role() if is_new else []
        self.role = Role.FOLLOWER
        self._lead_later = None
        self.leader, self.leader_epoch, self.isr = leader, leader_epoch, list(isr)
        self.replicas = None
        self._apply_role()
        if is_new:
            self._announce_role(left, _NOT_LEADER)

    def _leave_role(self) -> list[tuple[int, Settled]]:
        """Return the acknowledgements that wait: those of the next role are others."""
        left = [*self._waiting, *self._waiting_for_flush]
        self._waiting, self._waiting_for_flush = [], []
        return left

    def _announce_role(self, left: list[tuple[int, Settled]], failure: FlintError) -> None:
        """Fail what waited under the role before, and let fetches find out what they may read now.

        ORDER: AFTER the new role is in force, since a failed request may let the next one of its connection in; and
        BEFORE the log can be truncated: a lost record must not be acknowledged.
        """
        readers = [*self._readers, *self._followers]
        self._followers.clear()
        for _, call in left:
            call(failure)
        for reader in readers:
            reader.records_arrived(self, ROLE_CHANGED)

    def _apply_role(self) -> None:
        self._visible_at_once = self.role is Role.LEADER and self.replicas is None and not self._durable
        if self._durable and self.role is not Role.NONE and self.log.recovery_point < self.log.end_offset:
            # A log that was opened after a kill, or was not durable before: no append need come to flush it.
            self._flusher.flush()
        if self._visible_at_once:
            self._arrived = _UNCOUNTED
            self._advance(self.log.end_offset)
        elif self.role is Role.LEADER:
            self.advance_with_replicas()

    def advance_with_replicas(self) -> None:
        """Raise the high watermark to what the replicas that count allow, and those that are about to."""
        end = own_end = self.log.recovery_point if self._durable else self.log.end_offset
        if self.replicas is not None:
            end = self.replicas.committed_end(own_end, self.joining())
        if end > self.log.high_watermark:
            self._arrived = _UNCOUNTED
            self._advance(end)

    def followed(self, high_watermark: int, start_offset: int) -> None:
        """Take over the leader's high watermark, as far as the log of this follower reaches."""
        self._arrived = _UNCOUNTED
        self._advance(min(high_watermark, self.log.end_offset))
        if start_offset > self.log.start_offset:
            self.log.advance_start(min(start_offset, self.log.end_offset))

    # ---- writing

    def check(self, records: memoryview, now_ms: int, *, zstd_allowed: bool = True) -> BatchHeader:
        """Refuse what is not one sound batch for this topic."""
        return check_produced(
            records,
            self.log.config.max_message_bytes,
            zstd_allowed,
            now_ms - self._before_max_ms,
            now_ms + self._after_max_ms,
        )

    @property
    def requires_validation(self) -> bool:
        """Whether `must_validate` can be true of any batch."""
        return self._deep or self._codec is not None

    def must_validate(self, header: BatchHeader) -> bool:
        """Whether the topic wants the records themselves looked at, or compressed otherwise."""
        return self._deep or (self._codec is not None and self._codec != header.codec)

    def validate_batch(self, batch: bytes, header: BatchHeader) -> bytes:
        """The batch checked record by record, and recompressed if need be. Slow: for a thread."""
        now_ms = self._clock.now_ms()
        return validated_batch(
            batch,
            header,
            self.log.config,
            codec=self._codec,
            require_keys=self._check_keys,
            earliest_ms=now_ms - self._before_max_ms,
            latest_ms=now_ms + self._after_max_ms,
        )

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Write a checked batch. It may be acknowledged once `is_visible(last_offset)`."""
        if self.role is not Role.LEADER:
            raise _NOT_LEADER
        if self._append_time:
            set_append_time(batch, header.attributes, now_ms)
            header = read_header(batch)
        elif header.attributes & LOG_APPEND_TIME:
            set_create_time(batch, header.attributes)
            header = read_header(batch)
        log = self.log
        visible = self._visible_at_once
        appended = log.append(
            batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms, visible_at_once=visible
        )
        if visible:
            self._arrived += len(batch)
            if self._readers or self._waiting:
                self._became_visible()
        else:
            self._appended_hidden()
        self._flusher.after_append()
        return appended

    def _appended_hidden(self) -> None:
        """Tell followers, and raise the high watermark where none of them is in the ISR."""
        if self._followers:
            self._wake_followers_soon()
        if self.replicas is not None and self.replicas.is_alone and not self._durable:
            self.advance_with_replicas()

    def begin_verification(self, producer_id: int, producer_epoch: int) -> None:
        """Note that another broker is asked whether this partition takes part in a transaction of the producer.

        If a marker ends that transaction meanwhile, the answer is out of date (`is_verifying`).
        """
        self._guards.begin(producer_id, producer_epoch, self.leader_epoch)

    def is_verifying(self, producer_id: int) -> bool:
        """Whether the transaction has not ended here since `begin_verification`, in this leader epoch."""
        return self._guards.holds(producer_id, self.leader_epoch)

    def append_marker(self, marker: Marker, now_ms: int, *, bumps_epoch: bool) -> Appended:
        """Write the end of a transaction."""
        if self.role is not Role.LEADER:
            raise _NOT_LEADER
        self._guards.end(marker, bumps_epoch)
        visible = self._visible_at_once
        appended = self.log.append_marker(
            marker,
            bumps_epoch=bumps_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            visible_at_once=visible,
        )
        if visible:
            # What was held back for readers of committed records may be much more than the marker.
            self._arrived = _UNCOUNTED
            self._became_visible()
        else:
            self._appended_hidden()
        self._flusher.after_append()
        return appended

    @property
    def has_min_isr(self) -> bool:
        """Whether enough replicas are in sync for acks=all; the only replica of a partition is enough."""
        return self.replicas is None or self.replicas.has_min_isr

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark is that of the leader before, at least: a new leader's begins lower."""
        return self.replicas is None or self.log.high_watermark >= self.replicas.epoch_start

    def is_visible(self, offset: int) -> bool:
        return offset < self.log.high_watermark

    def when_visible(self, offset: int, call: Settled) -> None:
        """Call with None once `offset` is below the high watermark, or with the reason why it never will be."""
        failure = self._why_never()
        if failure is not None:
            self._timers.call_soon(call, failure)
            return
        self._waiting.append((offset, call))

    def is_written(self, offset: int) -> bool:
        """Whether the leader's own copy is as safe as the topic asks for: what acks=1 waits for."""
        return not self._durable or offset < self.log.recovery_point

    def when_written(self, offset: int, call: Settled) -> None:
        """Call with None once `is_written(offset)`, or with the reason why it never will be."""
        failure = self._why_never()
        if failure is not None:
            self._timers.call_soon(call, failure)
            return
        self._waiting_for_flush.append((offset, call))

    def _why_never(self) -> FlintError | None:
        """Return why nothing that is written now will be acknowledged; None if it may be."""
        if self.log.offline is not None:
            # The flush that the append began has failed already: no other will come.
            return LogOffline(self.log.offline)
        return _NOT_LEADER if self.role is not Role.LEADER else None

    def _advance(self, offset: int) -> None:
        if self.log.advance(offset):
            self._became_visible()

    def _became_visible(self) -> None:
        if self._readers and not self._waking:
            self._waking = True
            self._timers.call_soon(self._wake)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._waiting += settle_below(waiting, self.log.high_watermark)

    def _flushed(self) -> None:
        if self.log.offline is not None:
            for _, call in self._leave_role():
                call(LogOffline(self.log.offline))
            self._wake()
            self._wake_followers()
            self.role_changed()
            return
        if self._waiting_for_flush:
            waiting, self._waiting_for_flush = self._waiting_for_flush, []
            self._waiting_for_flush += settle_below(waiting, self.log.recovery_point)
        if self._durable and self.role is Role.LEADER:
            # What a flush makes visible was appended earlier, when others were woken: all look for themselves.
            self.advance_with_replicas()
        if self._durable and self.role is Role.FOLLOWER:
            self.may_fetch_again()

    def flush(self, done: Done) -> None:
        """All that was written by now, to stable storage; `done` is called with None, or with why it is not there."""
        self._flusher.flush(done)

    def flush_if_due(self, now_ms: int) -> None:
        self._flusher.flush_if_due(now_ms)

    # ---- readers

    def park(self, reader: AppendListener, *, is_follower: bool = False) -> None:
        if is_follower:
            self._followers[reader] = None
        else:
            self._readers[reader] = None

    def unpark(self, reader: AppendListener) -> None:
        self._readers.pop(reader, None)
        self._followers.pop(reader, None)

    def _wake(self) -> None:
        self._waking = False
        arrived, self._arrived = self._arrived, 0
        for reader in list(self._readers):
            reader.records_arrived(self, arrived)

    def _wake_followers_soon(self) -> None:
        if not self._waking_followers:
            self._waking_followers = True
            self._timers.call_soon(self._wake_followers)

    def _wake_followers(self) -> None:
        self._waking_followers = False
        for reader in list(self._followers):
            reader.records_arrived(self, _UNCOUNTED)

    def close(self) -> None:
        """The partition is no longer served here: nothing waits for it any longer."""
        self.deleted = True
        self.role = Role.NONE
        self._lead_later = None
        self._announce_role(self._leave_role(), LogOffline("the partition is no longer here"))
        self._readers.clear()


def _nothing() -> None:
    """Stand for a callback that nobody has set."""


def _nobody() -> Sequence[int]:
    """Stand for `Partition.joining` that nobody has set."""
    return ()
