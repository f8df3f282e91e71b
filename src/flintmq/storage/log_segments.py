"""The segments of one partition's log: rolled, flushed, compacted, deleted from the start, and closed.

What is appended, and where the end is, is the matter of `log`, which is built on this. Others read its fields; only
its own methods and those of `log` change them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from flintmq.effects import write_plainly
from flintmq.errors import LogOffline, StorageError
from flintmq.metrics import LogCounters
from flintmq.settings import TopicConfig
from flintmq.storage.aborted_transactions import encode_aborted
from flintmq.storage.compaction.swap import Swap, rename_cleaned
from flintmq.storage.corrupt_ranges import CorruptRange, subtract_range
from flintmq.storage.durability.flush import EPOCHS_FILE, Flush, SealedSegment, encode_metadata
from flintmq.storage.limits import LOG_LIMITS, LogLimits
from flintmq.storage.log_state import LogState
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment, segment_index
from flintmq.storage.truncation.notes import apply_cut, remove_note
from flintmq.storage.truncation.truncation import Truncation
from flintmq.storage.visibility import Visibility

logger: Final = logging.getLogger(__name__)


class LogSegments:
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
        self.on_offline: Callable[[str], object] = _nothing
        """Called with the reason when the log goes offline."""
        self.on_corrupt: Callable[[], object] = _nothing_new
        """Called when a range is found to be damaged."""
        self.generation = 0
        self.truncation: Truncation | None = None
        """The one in progress: nothing is appended, flushed or deleted until it is finished."""
        self.has_truncation_note = state.has_truncation_note
        """Whether a note on disk bounds what the checkpoints say."""
        self.visibility = Visibility()
        self.durable_segment = -1
        """The base offset of the newest segment whose name is known to be on stable storage."""
        self.sealed = state.sealed
        """Rolled, not yet flushed."""
        self.pending_delete: list[Segment] = []
        """Segments below the start whose files still exist: the start is not on disk yet, or removing them failed."""
        self.recent_positions: dict[int, int] = {}
        """Where the last batches of the active segment begin: readers at the tail need no index."""
        self.partition_dir = partition_dir
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

    def _refuse_changes(self) -> None:
        """Raise LogOffline or StorageError where the log takes no change now."""
        if self.offline is not None:
            raise LogOffline(self.offline)
        if self.truncation is not None:
            raise StorageError(f"{self.name} is being truncated.")

    def go_offline(self, reason: str) -> None:
        """Serve and acknowledge nothing until a restart has checked what the disk holds."""
        if self.offline is None:
            self.offline = reason
            logger.critical(
                "log %s is offline: %s; restart the broker once the disk is well", self.name, reason
            )
            self.on_offline(reason)

    # ---- segments

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Seal the active segment and begin the next. Its indexes reach their files with the next flush.

        ORDER: the next one exists BEFORE this one is sealed, so that a full disk leaves this one in use.
        """
        self._refuse_changes()
        segment = self.active
        try:
            file = segment.open()
            self._cut_preallocated(segment)
        except OSError as error:
            raise StorageError(f"{segment.path(LOG)} could not be sealed: {error}.") from error
        following = self.add_segment(self.end_offset if base_offset is None else base_offset, now_ms)
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
        return self.partition_dir.new_segment(base_offset, self.config, now_ms)

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
            self.partition_dir.create_file(segment, self.config)
        except OSError as error:
            self.go_offline(f"{segment.path(LOG)} could not be made, nor removed: {error}")
            raise StorageError(f"{segment.path(LOG)} could not be made: {error}.") from error

    def write_snapshot(self) -> None:
        """Write a snapshot of the producers as they are now. It is on stable storage with the next flush."""
        if self.truncation is None:
            self.snapshots.write(self.producers, self.end_offset, self.high_watermark)

    def add_corrupt(self, bad: CorruptRange) -> None:
        """Refuse these offsets from now on; what lies around them is served."""
        if bad not in self.corrupt:
            self.corrupt.append(bad)
            logger.error("%s: offsets %d to %d are damaged", self.name, bad.base_offset, bad.end_offset - 1)
            self.on_corrupt()

    def forget_corrupt(self, start_offset: int, end_offset: int) -> None:
        """Serve these offsets again: sound batches have taken the place of those that were damaged."""
        self.corrupt = subtract_range(self.corrupt, start_offset, end_offset)

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
        if flush.generation != self.generation:
            return
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
        self._refuse_changes()
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
        self.partition_dir.remove_files(segments, self.segments)

    def forget_deleted(self, segments: list[Segment]) -> None:
        """Drop segments whose files are gone: nothing is left to sync, and the disk gives their room back once no
        reader holds them."""
        gone = {id(segment) for segment in segments}
        self.pending_delete = [segment for segment in self.pending_delete if id(segment) not in gone]
        self.sealed = [sealed for sealed in self.sealed if id(sealed.segment) not in gone]

    def advance_first_dirty(self, offset: int) -> None:
        """Note that compaction has left no key twice below `offset`."""
        self.first_dirty_offset = offset

    def add_dirty(self, offset: int) -> None:
        """Note that keys may be there twice from `offset` on: another replica, from which batches were copied, may
        be compacted less."""
        self.first_dirty_offset = min(self.first_dirty_offset, offset)

    def replace_segments(self, swap: Swap, cleaned: Segment, generation: int) -> bool:
        """Put a segment that was written aside in the place of those it was made from, in the directory and here.

        False, and nothing has happened, if these are not there any more as they were in `generation`. ORDER: `swap`
        is on stable storage BEFORE this, and the files of the others go AFTER it.
        """
        if generation != self.generation:
            return False
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
            self.go_offline(f"a rewritten segment could not be put in place: {error}")
            raise
        for segment in old:
            segment.removed = True
            segment.file = None
        self.segments[first : first + len(old)] = [cleaned]
        self.visibility.replace_segments(old)
        return True

    # ---- after a truncation

    def forget_truncation(self, generation: int) -> None:
        """Remove the note about a truncation. ORDER: the checkpoints of that `generation` are durable BEFORE."""
        with self.close_guard.entered() as is_mine:
            if is_mine and generation == self.generation and self.truncation is None:
                remove_note(self.disk, self.directory)
                self.has_truncation_note = False

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
        for segment in self.segments:
            if segment.is_cut:
                apply_cut(self.disk, segment)
        index, times = active.seal()
        write_plainly(self.disk, active.path(INDEX), index)
        write_plainly(self.disk, active.path(TIME_INDEX), times)
        if active.aborted:
            write_plainly(self.disk, active.path(TXN_INDEX), encode_aborted(active.aborted))
        write_plainly(self.disk, f"{self.directory}/{EPOCHS_FILE}", self.epochs.encode())
        self.write_snapshot()
        for segment in self.segments:
            segment.file = None


def _nothing(reason: str) -> None:
    """Stand for a callback that nobody has set."""


def _nothing_new() -> None:
    """Stand for a callback that nobody has set."""
