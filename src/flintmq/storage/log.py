"""The log of one partition: appends at the end, rolls segments, and moves its start. One writer: the event loop.

Three ends, never confused: `end_offset` (what is written), `high_watermark` (what may be seen and acknowledged) and
`last_stable_offset` (what a read_committed consumer may see); `visibility` keeps the last two. `start_offset` is the
first offset that still exists for clients. Recovery builds a log from its directory, `reader` reads it.

The log knows bytes and offsets; it does not know requests, replicas or the event loop. Others read its fields; only
its own methods change them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from flintmq.effects import write_plainly
from flintmq.errors import LogOffline, StorageError
from flintmq.metrics import LogCounters
from flintmq.records.batch import LOG_APPEND_TIME, NO_PRODUCER_ID, BatchHeader, assign_offsets, read_header
from flintmq.records.markers import Marker, marker_batch
from flintmq.settings import TopicConfig
from flintmq.storage.aborted_transactions import encode_aborted
from flintmq.storage.compaction.swap import Swap, rename_cleaned
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.durability.flush import (
    EPOCHS_FILE,
    NO_DESCRIPTORS,
    NO_SPACE,
    Flush,
    SealedSegment,
    encode_metadata,
)
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.limits import LOG_LIMITS, LogLimits
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.rolling import must_roll
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment, segment_index
from flintmq.storage.visibility import Visibility

logger: Final = logging.getLogger(__name__)


class Appended:
    """Where a batch is in the log."""

    __slots__ = ("append_time_ms", "base_offset", "last_offset")

    def __init__(self, base_offset: int, last_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms
        """-1 unless the topic stamps append time."""


@dataclass(slots=True, kw_only=True)
class LogState:
    """What a log holds when it is opened: built by recovery, owned by the log afterwards."""

    snapshots: ProducerSnapshots
    segments: list[Segment] = field(default_factory=list)
    """In order of their offsets; the last one is active."""
    sealed: list[SealedSegment] = field(default_factory=list)
    corrupt: list[CorruptRange] = field(default_factory=list)
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    start_offset: int = 0
    end_offset: int = 0
    recovery_point: int = 0
    first_dirty_offset: int = 0
    last_flush_ms: int = 0


class Log:
    def __init__(
        self,
        partition_dir: PartitionDir,
        config: TopicConfig,
        state: LogState,
        *,
        counters: LogCounters | None = None,
        create_directory: Callable[[], None] | None = None,
        limits: LogLimits = LOG_LIMITS,
    ) -> None:
        """With `create_directory` the log is empty and has no files: its first batch creates them."""
        self.topic = partition_dir.topic
        self.partition = partition_dir.partition
        self.topic_id = partition_dir.topic_id
        self.directory = partition_dir.path
        self.close_guard = partition_dir.close_guard
        self.disk = partition_dir.disk
        self.config = config
        self.counters = counters or LogCounters()
        self.segments = state.segments
        self.producers = state.producers
        self.snapshots = state.snapshots
        self.epochs = state.epochs
        self.corrupt = state.corrupt
        self.start_offset = state.start_offset
        self.end_offset = state.end_offset
        self.recovery_point = state.recovery_point
        self.first_dirty_offset = state.first_dirty_offset
        """Below this a compacted log holds no key twice."""
        self.last_flush_ms = state.last_flush_ms
        self.offline: str | None = None
        self.visibility = Visibility()
        self.durable_segment = -1
        """The base offset of the newest segment whose name is known to be on stable storage."""
        self.sealed = state.sealed
        """Rolled, not yet flushed."""
        self.pending_delete: list[Segment] = []
        """Segments below the start whose files still exist: the start is not on disk yet, or removing them failed."""
        self.recent_positions: dict[int, int] = {}
        """Where the last batches of the active segment begin: readers at the tail need no index."""
        self._partition_dir = partition_dir
        self._create_directory = create_directory
        self._recent_batches = limits.recent_batches

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.start_offset}..{self.end_offset})"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def high_watermark(self) -> int:
        return self.visibility.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below this every transaction is decided, and its marker visible."""
        return self.visibility.last_stable_offset(self.producers.first_unstable_offset, self.start_offset)

    @property
    def unflushed(self) -> int:
        return self.end_offset - self.recovery_point

    @property
    def is_created(self) -> bool:
        """Whether it has files. A log without any is empty, and gets them with its first batch."""
        return self._create_directory is None

    def configure(self, config: TopicConfig) -> None:
        """Take a new configuration; what was written stays as it is."""
        self.config = config

    # ---- appending

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        visible_at_once: bool = False,
    ) -> Appended:
        """Write one checked batch at the end, or find that it repeats an earlier one.

        The buffer is changed in place: the batch gets its offset and epoch. The caller may reuse it afterwards.
        With `visible_at_once` the high watermark is at the end afterwards.
        """
        if self.offline is not None:
            raise LogOffline(self.offline)
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        if header.producer_id != NO_PRODUCER_ID:
            duplicate = self.producers.check(header)
            if duplicate is not None:
                self.counters.duplicates += 1
                return Appended(
                    duplicate.first_offset,
                    duplicate.last_offset,
                    duplicate.timestamp if append_time >= 0 else -1,
                )
        if self._create_directory is not None:
            self._create_files(self._create_directory)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        size = len(batch)
        if must_roll(segment, self.config, size, header.max_timestamp, last_offset, now_ms):
            segment = self.roll(now_ms)
        assign_offsets(batch, base_offset, leader_epoch)
        position = segment.size
        try:
            segment.append(batch, last_offset, header.max_timestamp)
        except OSError as error:
            self._undo_write(segment, error)
        end_offset = self.end_offset = last_offset + 1
        if header.producer_id != NO_PRODUCER_ID:
            self.producers.record(header, base_offset)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if visible_at_once:
            self.visibility.advance_to_end(end_offset, segment)
        else:
            self.visibility.add_hidden(end_offset, segment)
        recent = self.recent_positions
        recent[base_offset] = position
        if len(recent) > self._recent_batches:
            del recent[next(iter(recent))]
        return Appended(base_offset, last_offset, append_time)

    def append_marker(
        self,
        marker: Marker,
        *,
        bumps_epoch: bool,
        leader_epoch: int,
        now_ms: int,
        visible_at_once: bool = False,
    ) -> Appended:
        """Write the end of a transaction. Raise RequestError if the marker's epoch is stale."""
        self.producers.check_marker(marker, bumps_epoch=bumps_epoch)
        batch = memoryview(bytearray(marker_batch(marker, now_ms)))
        # A marker is no batch of the producer: its state changes in `end_transaction`, not in `append`.
        header = read_header(batch)._replace(producer_id=NO_PRODUCER_ID)
        appended = self.append(
            batch, header, leader_epoch=leader_epoch, now_ms=now_ms, visible_at_once=visible_at_once
        )
        first_offset = self.producers.end_transaction(marker, now_ms)
        if first_offset is not None:
            self.visibility.add_ended_transaction(appended.base_offset, first_offset)
            if not marker.committed:
                self.active.add_aborted(
                    marker.producer_id,
                    first_offset,
                    appended.base_offset,
                    self.producers.first_unstable_offset,
                )
        return appended

    def advance(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, which must be a batch's end; True if it moved."""
        visibility = self.visibility
        before = visibility.high_watermark
        if offset <= before:
            return False
        if offset >= self.end_offset:
            visibility.advance_to_end(self.end_offset, self.segments[-1])
        else:
            visibility.advance(offset)
        return visibility.high_watermark > before

    def _undo_write(self, segment: Segment, error: OSError) -> None:
        """Cut off the part of a batch that may have been written; where that fails, serve nothing more."""
        if error.errno in NO_DESCRIPTORS:
            raise StorageError(f"No descriptor is left for {self.name}: {error}.") from error
        try:
            file = segment.open()
            file.truncate(segment.size)
        except OSError as second:
            self.go_offline(f"a failed write to {self.name} could not be undone: {second}")
        if error.errno in NO_SPACE:
            raise StorageError(f"No space left for {self.name}: {error}.") from error
        self.go_offline(f"writing {segment.path(LOG)} failed: {error}")
        raise LogOffline(self.offline) from error

    def go_offline(self, reason: str) -> None:
        """Serve and acknowledge nothing until a restart has checked what the disk holds."""
        if self.offline is None:
            self.offline = reason
            logger.critical(
                "log %s is offline: %s; restart the broker once the disk is well", self.name, reason
            )

    # ---- segments

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next. Its indexes reach their files with the next flush.

        ORDER: the next one exists BEFORE this one is sealed, so that a full disk leaves this one in use.
        """
        segment = self.active
        try:
            file = segment.open()
            self._cut_preallocated(segment)
        except OSError as error:
            raise StorageError(f"{segment.path(LOG)} could not be sealed: {error}.") from error
        following = self.add_segment(self.end_offset, now_ms)
        self.sealed.append(SealedSegment(segment, file, *segment.seal()))
        self.write_snapshot()
        return following

    @staticmethod
    def _cut_preallocated(segment: Segment) -> None:
        """Whatever the setting is now: it may have been another when the segment began."""
        file = segment.open()
        if file.size() > segment.size:
            file.truncate(segment.size)

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Return a segment of this log that is not part of it yet."""
        return self._partition_dir.new_segment(base_offset, self.config, now_ms)

    def add_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create the file of a new segment, which becomes the active one. StorageError if that fails."""
        segment = self.new_segment(base_offset, now_ms)
        self._create_file(segment)
        self.segments.append(segment)
        self.recent_positions.clear()
        return segment

    def _create_files(self, create_directory: Callable[[], None]) -> None:
        """Create the directory and the active segment's file. After a StorageError the next append tries again."""
        try:
            create_directory()
        except OSError as error:
            raise StorageError(f"{self.directory} could not be made: {error}.") from error
        self._create_file(self.active)
        self._create_directory = None

    def _create_file(self, segment: Segment) -> None:
        try:
            file = segment.open(create=True)
            file.truncate(0)
            if self.config.preallocate:
                file.allocate(self.config.segment_bytes)
        except OSError as error:
            self._remove_unfinished(segment)
            raise StorageError(f"{segment.path(LOG)} could not be made: {error}.") from error

    def _remove_unfinished(self, segment: Segment) -> None:
        """Remove what exists of a file that could not be created.

        ORDER: it is gone from the disk BEFORE another batch is written: that batch gets the offset by which the file
        is named, and a start that finds the file would end the segment before there.
        """
        segment.file = None
        try:
            if self.disk.exists(segment.path(LOG)):
                self.disk.remove(segment.path(LOG))
                self.disk.sync_dir(self.directory)
        except OSError as error:
            self.go_offline(f"{segment.path(LOG)} could not be made, nor removed: {error}")

    def write_snapshot(self) -> None:
        """Write a snapshot of the producers as they are now. It is on stable storage with the next flush."""
        self.snapshots.write(self.producers, self.end_offset)

    def add_corrupt(self, bad: CorruptRange) -> None:
        """Refuse these offsets from now on; what lies around them is served."""
        if bad not in self.corrupt:
            self.corrupt.append(bad)
            logger.error("%s: offsets %d to %d are damaged", self.name, bad.base_offset, bad.end_offset - 1)

    # ---- flushing

    def prepare_flush(self) -> Flush:
        """Return what must be synced so that all written so far is on stable storage."""
        active = self.active
        snapshot_offset = self.snapshots.begin_sync()
        return Flush(
            disk=self.disk,
            close_guard=self.close_guard,
            directory=self.directory,
            end_offset=self.end_offset,
            active=active,
            sealed=list(self.sealed),
            snapshot=self.snapshots.path(snapshot_offset) if snapshot_offset >= 0 else None,
            snapshot_offset=snapshot_offset,
            metadata=encode_metadata(self.topic_id),
            epochs=self.epochs.encode(),
            names_are_durable=self.durable_segment == active.base_offset,
        )

    def flushed(self, flush: Flush, now_ms: int) -> None:
        """Note that `flush` succeeded: recovery need not look below its end offset."""
        self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.last_flush_ms = now_ms
        for sealed in flush.sealed:
            sealed.segment.drop_indexes()
        # By identity: some may have been dropped, and others sealed, while the flush ran.
        done = {id(sealed.segment) for sealed in flush.sealed}
        self.sealed = [sealed for sealed in self.sealed if id(sealed.segment) not in done]
        self.durable_segment = max(self.durable_segment, flush.segment_base)
        self.snapshots.synced(flush.snapshot_offset)

    # ---- deletion and compaction

    def advance_start(self, offset: int) -> list[Segment]:
        """Hide offsets below `offset` from clients. Return the segments that hold nothing else.

        ORDER: the caller makes the new start durable BEFORE it removes those segments' files.
        """
        if offset <= self.start_offset:
            return []
        self.counters.records_deleted += offset - self.start_offset
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.corrupt = [bad for bad in self.corrupt if bad.end_offset > offset]
        dropped = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            # ORDER: it stays among those that the next flush syncs, for as long as its files are there. Without the
            # new start a crash finds them again, and a recovery point beyond them must hold for them too.
            dropped.append(self.segments.pop(0))
        self.pending_delete += dropped
        return dropped

    def remove_files(self, segments: list[Segment]) -> None:
        """Remove the files of segments that `advance_start` dropped. OSError after all were tried."""
        self._partition_dir.remove_files(segments)

    def forget_deleted(self, segments: list[Segment]) -> None:
        """Drop segments whose files are gone: nothing is left to sync, and the disk gives their room back once no
        reader holds them."""
        gone = {id(segment) for segment in segments}
        self.pending_delete = [segment for segment in self.pending_delete if id(segment) not in gone]
        self.sealed = [sealed for sealed in self.sealed if id(sealed.segment) not in gone]

    def advance_first_dirty(self, offset: int) -> None:
        """Note that compaction has left no key twice below `offset`."""
        self.first_dirty_offset = offset

    def replace_segments(self, swap: Swap, cleaned: Segment) -> bool:
        """Put a compacted segment in the place of those it was made from, in the directory and here.

        False, and nothing has happened, if these are not there any more as they were. ORDER: `swap` is on stable
        storage BEFORE this, and the files of the others go AFTER it.
        """
        first = segment_index(self.segments, swap.bases[0])
        old = self.segments[first : first + len(swap.bases)]
        if tuple(segment.base_offset for segment in old) != swap.bases or self.active in old:
            return False
        unflushed = {id(sealed.segment) for sealed in self.sealed}
        if any(id(segment) in unflushed for segment in old):
            return False
        try:
            rename_cleaned(self.disk, self.directory, swap)
        except OSError as error:
            # Some files may be in place and others not: the next start finishes it.
            self.go_offline(f"a compacted segment could not be put in place: {error}")
            raise
        for segment in old:
            segment.removed = True
            segment.file = None
        self.segments[first : first + len(old)] = [cleaned]
        self.visibility.replace_segments(old)
        return True

    # ---- closing

    def retire(self, reason: str) -> None:
        """Take the log out of service for good: its directory is about to be deleted."""
        self.offline = self.offline or reason
        # ORDER: a flush that runs in a thread must not write into a directory that is no longer this log's.
        self.close_guard.close()
        # The disk gives back the room of a file only when nobody has it open: readers have their own reference.
        for segment in self.segments:
            segment.file = None
        self.sealed = []

    def close(self) -> None:
        """After a last flush: leave the directory as Kafka's tools expect it, indexes and snapshot included.

        Nothing is synced here: the caller syncs the volume once for all its logs.
        """
        # ORDER: a flush that still runs may not put an older file over those written now.
        self.close_guard.close()
        if not self.is_created:
            return
        active = self.active
        self._cut_preallocated(active)
        index, times = active.seal()
        write_plainly(self.disk, active.path(INDEX), index)
        write_plainly(self.disk, active.path(TIME_INDEX), times)
        if active.aborted:
            write_plainly(self.disk, active.path(TXN_INDEX), encode_aborted(active.aborted))
        write_plainly(self.disk, f"{self.directory}/{EPOCHS_FILE}", self.epochs.encode())
        self.write_snapshot()
        for segment in self.segments:
            segment.file = None
