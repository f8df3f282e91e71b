"""The log of one partition: append at the end, read anywhere. One writer: the event loop.

Three ends, never confused: `end_offset` (what is written), `high_watermark` (what may be seen and
acknowledged; set by the partition, which knows of replicas and flushes), `last_stable_offset` (what a
read_committed consumer may see). `start_offset` is the first offset that still exists for clients.

The log knows bytes and offsets; it does not know requests, replicas or the event loop.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple, NoReturn

from flintmq.effects import Disk, write_plainly
from flintmq.errors import CorruptionError, ErrorCode, LogOffline, RequestError, StorageError
from flintmq.metrics import LogCounters
from flintmq.records.batch import (
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    BatchHeader,
    assign_offsets,
    crc_is_right,
    read_header,
)
from flintmq.records.checksum import crc32c
from flintmq.records.markers import Marker, marker_batch
from flintmq.settings import TopicConfig
from flintmq.storage.aborted_transactions import AbortedTransaction, encode_aborted
from flintmq.storage.compaction.swap import Swap, rename_cleaned
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.durability.flush import (
    EPOCHS_FILE,
    NO_DESCRIPTORS,
    NO_SPACE,
    CloseGuard,
    Flush,
    Sealed,
    encode_metadata,
)
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, FileRange, Segment, file_name

logger = logging.getLogger(__name__)

_RECENT_BATCHES = 64
_SNAPSHOTS_KEPT = 3
_MAX_RELATIVE_OFFSET = 0x7FFFFFFF
_last_offset = attrgetter("last_offset")


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOG_END = 2
    """For replicas, which copy what is not yet visible."""


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic stamps append time."""


class CorruptRange(NamedTuple):
    """Offsets known to be bad; refused, never served."""

    base_offset: int
    end_offset: int


class Log:
    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        folder: str,
        config: TopicConfig,
        disk: Disk,
        descriptors: Descriptors,
        counters: LogCounters | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.folder = folder
        self.config = config
        self.segments: list[Segment] = []
        self.producers = ProducerState()
        self.epochs = LeaderEpochs()
        self.corrupt: list[CorruptRange] = []
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        self.first_dirty_offset = 0
        """Below this no key is there twice, in a log that is compacted."""
        self.last_flush_ms = 0
        self.offline: str | None = None
        # Makes the folder of a log that has none yet: nothing was ever written to it.
        self._maker: Callable[[], None] | None = None
        # End offsets of the producer snapshots in the folder, ascending, and the newest that is on stable storage.
        self.snapshots: list[int] = []
        self.durable_snapshot = -1
        self._syncing_snapshot = -1
        # The base offset of the newest segment whose name is known to be on stable storage.
        self.durable_segment = -1
        # Rolled, not yet flushed.
        self.sealed: list[Sealed] = []
        # Below the start, and their files are there: until the start is on disk, or because they cannot be removed.
        self.doomed: list[Segment] = []
        self.gate = CloseGuard()
        self.disk = disk
        self.descriptors = descriptors
        self.counters = counters or LogCounters()
        self._high_watermark = 0
        self._visible_segment: Segment | None = None
        self._visible_position = 0
        # Batch ends above the high watermark: (end offset, segment, position after it).
        self._unseen: deque[tuple[int, Segment, int]] = deque()
        # Transactions whose marker is above the high watermark: the marker's offset, and where they began.
        self._ended: deque[tuple[int, int]] = deque()
        # Where the last batches of the active segment begin: readers at the tail need no index.
        self._recent: dict[int, int] = {}

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
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below this every transaction is decided, and its marker visible."""
        stable = self._high_watermark
        unstable = self.producers.first_unstable_offset
        if unstable is not None and unstable < stable:
            stable = unstable
        for _, began in self._ended:
            stable = min(stable, began)
        # Of an open transaction the first records may be deleted: then a reader waits where the log begins.
        return max(stable, self.start_offset)

    @property
    def unflushed(self) -> int:
        return self.end_offset - self.recovery_point

    @property
    def is_made(self) -> bool:
        """Whether it has files. A log without any is empty, and gets them with its first batch."""
        return self._maker is None

    def begin(self, maker: Callable[[], None], now_ms: int) -> None:
        """An empty log without files; `maker` makes its folder when the first batch comes."""
        self._maker = maker
        self.last_flush_ms = now_ms
        self.segments = [self.segment_at(0, now_ms)]

    def _make(self) -> None:
        """StorageError if the folder and the file cannot be made; the next append tries again."""
        maker = self._maker
        assert maker is not None
        try:
            maker()
        except OSError as error:
            raise StorageError(f"{self.folder} could not be made: {error}.") from error
        self._make_file(self.active)
        self._maker = None

    # ---- writing

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
        if self._maker is not None:
            self._make()
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        size = len(batch)
        if self._must_roll(segment, size, header.max_timestamp, last_offset, now_ms):
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
            self._high_watermark = end_offset
            self._visible_segment, self._visible_position = segment, segment.size
            if self._unseen:
                self._unseen.clear()
                self._ended.clear()
        else:
            self._unseen.append((end_offset, segment, segment.size))
        recent = self._recent
        recent[base_offset] = position
        if len(recent) > _RECENT_BATCHES:
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
        """Write the end of a transaction. RequestError if it is of the past."""
        self.producers.check_marker(marker, bumps_epoch=bumps_epoch)
        batch = memoryview(bytearray(marker_batch(marker, now_ms)))
        # The producers are told of the marker below, for it is no batch of theirs.
        header = read_header(batch)._replace(producer_id=NO_PRODUCER_ID)
        appended = self.append(
            batch, header, leader_epoch=leader_epoch, now_ms=now_ms, visible_at_once=visible_at_once
        )
        began = self.producers.end_transaction(marker, now_ms)
        if began is not None:
            if appended.base_offset >= self._high_watermark:
                self._ended.append((appended.base_offset, began))
            if not marker.committed:
                self.note_aborted(self.active, marker.producer_id, began, appended.base_offset)
        return appended

    def note_aborted(self, segment: Segment, producer_id: int, began: int, marker_offset: int) -> None:
        """A transaction ended there, in `segment`, and its records count for nothing."""
        unstable = self.producers.first_unstable_offset
        stable = marker_offset + 1 if unstable is None else unstable
        segment.aborted.append(AbortedTransaction(producer_id, began, marker_offset, stable))

    def _undo_write(self, segment: Segment, error: OSError) -> None:
        """Part of a batch may have been written: take it away again, or serve nothing more."""
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
        """Nothing is served or acknowledged from here until a restart has checked what the disk holds."""
        if self.offline is None:
            self.offline = reason
            logger.critical(
                "log %s is offline: %s; restart the broker once the disk is well", self.name, reason
            )

    def _must_roll(
        self, segment: Segment, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        config = self.config
        if size > config.segment_bytes:
            raise RequestError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch has {size} bytes; a segment holds {config.segment_bytes} (segment.bytes).",
            )
        if segment.size == 0:
            return False
        if segment.size + size > config.segment_bytes:
            return True
        # As Kafka has it: by the records' own time where they have one, else by the age of the file.
        age_max_ms = config.segment_ms
        if config.compacts:
            # The active segment is not compacted: it must end before its records are overdue.
            age_max_ms = min(age_max_ms, config.max_compaction_lag_ms)
        if segment.first_timestamp >= 0 and max_timestamp >= 0:
            age_ms = max_timestamp - segment.first_timestamp
        else:
            age_ms = now_ms - segment.created_ms
        return (
            age_ms > age_max_ms - segment.jitter_ms
            or last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET
            or segment.index_bytes >= config.segment_index_bytes
        )

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next. Its indexes reach their files with the next flush.

        ORDER: the next one is there BEFORE this one is sealed, so that a full disk leaves this one in use.
        """
        segment = self.active
        try:
            file = segment.open()
            self._cut_preallocated(segment)
        except OSError as error:
            raise StorageError(f"{segment.path(LOG)} could not be sealed: {error}.") from error
        following = self.add_segment(self.end_offset, now_ms)
        self.sealed.append(Sealed(segment, file, *segment.seal()))
        self.write_snapshot()
        return following

    @staticmethod
    def _cut_preallocated(segment: Segment) -> None:
        """Whatever the setting is now: it may have been another when the segment began."""
        file = segment.open()
        if file.size() > segment.size:
            file.truncate(segment.size)

    def segment_at(self, base_offset: int, now_ms: int) -> Segment:
        """A segment of this log that has no file yet, or whose file is to be read."""
        config = self.config
        jitter_max_ms = min(config.segment_jitter_ms, config.segment_ms)
        return Segment(
            self.folder,
            base_offset,
            self.descriptors,
            index_interval=config.index_interval_bytes,
            created_ms=now_ms,
            # Not random but spread, and so the same in every run.
            jitter_ms=crc32c(f"{self.name}@{base_offset}".encode()) % jitter_max_ms if jitter_max_ms else 0,
        )

    def add_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Make the file of a new segment, which becomes the active one. StorageError if that fails."""
        segment = self.segment_at(base_offset, now_ms)
        self._make_file(segment)
        self.segments.append(segment)
        self._recent.clear()
        return segment

    def _make_file(self, segment: Segment) -> None:
        try:
            file = segment.open(create=True)
            file.truncate(0)
            if self.config.preallocate:
                file.allocate(self.config.segment_bytes)
        except OSError as error:
            self._abandon(segment)
            raise StorageError(f"{segment.path(LOG)} could not be made: {error}.") from error

    def _abandon(self, segment: Segment) -> None:
        """Take back what there is of a file that could not be made.

        ORDER: it is gone from the disk BEFORE another batch is written: that gets the offset which the file is named
        by, and whoever finds it again ends the segment before there.
        """
        segment.file = None
        try:
            if self.disk.exists(segment.path(LOG)):
                self.disk.remove(segment.path(LOG))
                self.disk.sync_dir(self.folder)
        except OSError as error:
            self.go_offline(f"{segment.path(LOG)} could not be made, nor removed: {error}")

    def sealed_by_recovery(self, segment: Segment) -> None:
        """A scanned segment with others after it: its index files are written with the next flush."""
        self.sealed.append(Sealed(segment, None, *segment.seal()))

    def write_snapshot(self) -> None:
        """Of the producers as they are. It is on stable storage with the next flush."""
        end_offset = self.end_offset
        if self.snapshots and self.snapshots[-1] == end_offset:
            return
        path = self._snapshot_path(end_offset)
        try:
            write_plainly(self.disk, path, self.producers.encode())
            self.snapshots.append(end_offset)
            # What was compacted can be told only by one that is surely on disk.
            for offset in self.snapshots[:-_SNAPSHOTS_KEPT]:
                if offset not in (self.durable_snapshot, self._syncing_snapshot):
                    self.snapshots.remove(offset)
                    self.disk.remove(self._snapshot_path(offset))
        except OSError as error:
            # Recovery replays from an older snapshot, or from the start: slower, never wrong.
            logger.warning("the producer snapshot %s could not be written: %s", path, error)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{file_name(offset, SNAPSHOT)}"

    # ---- visibility

    def advance(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, which must be a batch's end; True if it moved."""
        if offset <= self._high_watermark:
            return False
        unseen = self._unseen
        if offset >= self.end_offset:
            segment = self.segments[-1]
            self._visible_segment, self._visible_position = segment, segment.size
            unseen.clear()
        else:
            target, offset = offset, self._high_watermark
            while unseen and unseen[0][0] <= target:
                offset, self._visible_segment, self._visible_position = unseen.popleft()
        self._high_watermark = offset
        while self._ended and self._ended[0][0] < offset:
            self._ended.popleft()
        return True

    # ---- reading

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> FileRange | None:
        """Batches from the one that holds `offset`, at most `max_bytes` (but one whole batch if asked).

        The end may be inside a batch, as clients expect. None if nothing may be seen there yet.
        """
        if self.offline is not None:
            raise LogOffline(self.offline)
        if offset < self.start_offset or offset > self.end_offset:
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        bound = self._bound(isolation)
        if offset >= bound:
            return None
        if self.corrupt:
            bound = self.refuse_corrupt(offset, bound)
        position = self._recent.get(offset)
        batch_size = -1
        if position is not None:
            segment = self.segments[-1]
        else:
            found = self._find(offset)
            if found is None:
                return None
            segment, position, header = found
            if header.base_offset >= bound:
                return None
            batch_size = header.size
        available = self._end_position(segment, bound) - position
        if available <= 0:
            return None
        if available > max_bytes:
            if batch_size < 0:
                batch_size = next(segment.walk(position))[1].size
            available = max_bytes if max_bytes >= batch_size else batch_size if at_least_one else 0
        if available <= 0:
            return None
        return FileRange(segment.open(), position, available, segment.base_offset)

    def _bound(self, isolation: Isolation) -> int:
        if isolation is Isolation.READ_UNCOMMITTED:
            return self._high_watermark
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.end_offset

    def _end_position(self, segment: Segment, bound: int) -> int:
        """Where in `segment` the offsets from `bound` on begin."""
        if bound >= self.end_offset:
            return segment.size
        visible = self._visible_segment
        if visible is not None and bound == self._high_watermark:
            if segment is visible:
                return self._visible_position
            if segment.base_offset < visible.base_offset:
                return segment.size
        if bound <= segment.base_offset:
            return 0
        following = segment.locate(self.disk, bound)
        return following[0] if following is not None else segment.size

    def _find(self, offset: int) -> tuple[Segment, int, BatchHeader] | None:
        """The first batch that ends at or after `offset`; a hole leads into the next segment."""
        for at in range(self.segment_index(offset), len(self.segments)):
            found = self.segments[at].locate(self.disk, offset)
            if found is not None:
                return self.segments[at], *found
        return None

    def segment_index(self, offset: int) -> int:
        low, high = 0, len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle
        return low

    def aborted_in(self, found: FileRange, offset: int) -> list[AbortedTransaction]:
        """What a reader of committed records must know of a range read from `offset` on, in the same step."""
        if not any(segment.aborted for segment in self.segments[self.segment_index(offset) :]):
            return []
        return self.aborted_between(offset, self._offset_after(found))

    def aborted_between(self, offset: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in a range of offsets.

        A transaction's entry stands with its marker, in the same segment or a later one; where an entry says that
        all was stable up to the end of the range, none after it can be about it.
        """
        aborted = []
        for segment in self.segments[self.segment_index(offset) :]:
            # Markers come in order, and so do their entries.
            for one in segment.aborted[bisect_left(segment.aborted, offset, key=_last_offset) :]:
                if one.first_offset < end:
                    aborted.append(one)
                if one.last_stable_offset >= end:
                    return aborted
        return aborted

    def _offset_after(self, found: FileRange) -> int:
        """An offset that no batch of the range reaches, as near as the index tells."""
        at = self.segment_index(found.base_offset)
        following = self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.end_offset
        bound = self.segments[at].offset_after(self.disk, found.position + found.size)
        return following if bound is None else min(bound, following)

    def refuse_corrupt(self, offset: int, bound: int) -> int:
        """`bound`, or the first damaged offset before it; CorruptionError if `offset` is damaged."""
        for bad in self.corrupt:
            if bad.base_offset <= offset < bad.end_offset:
                self._found_corrupt(bad)
            if offset < bad.base_offset:
                bound = min(bound, bad.base_offset)
        return bound

    def verify(self, found: FileRange) -> None:
        """Check every whole batch in a range that was read (`flint.verify.on.read`).

        The CRC does not cover the base offset, the length and the magic, so those are looked at too.
        """
        data = memoryview(found.read())
        position, expected = 0, 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if header.length < HEADER_SIZE - LENGTH_END or header.magic != 2 or header.base_offset < expected:
                raise CorruptionError(
                    f"{self.name} holds something else than a batch at byte {found.position + position} "
                    f"of {found.file.path}."
                )
            if position + header.size > len(data):
                return
            if not crc_is_right(data[position : position + header.size], header.crc):
                self._found_corrupt(CorruptRange(header.base_offset, header.last_offset + 1))
            position += header.size
            expected = header.last_offset + 1

    def note_corrupt(self, bad: CorruptRange) -> None:
        """From now on these offsets are refused, and what lies around them is served."""
        if bad not in self.corrupt:
            self.corrupt.append(bad)
            logger.error("%s: offsets %d to %d are damaged", self.name, bad.base_offset, bad.end_offset - 1)

    def _found_corrupt(self, bad: CorruptRange) -> NoReturn:
        self.note_corrupt(bad)
        raise CorruptionError(
            f"Offsets {bad.base_offset} to {bad.end_offset - 1} of {self.name} are damaged."
        )

    # ---- flushing

    def prepare_flush(self) -> Flush:
        """What must be synced so that all written so far is on stable storage."""
        active = self.active
        newest = self.snapshots[-1] if self.snapshots else -1
        if newest > self.durable_snapshot:
            self._syncing_snapshot = newest
        return Flush(
            disk=self.disk,
            gate=self.gate,
            folder=self.folder,
            end_offset=self.end_offset,
            active=active,
            sealed=list(self.sealed),
            snapshot=self._snapshot_path(newest) if newest > self.durable_snapshot else None,
            snapshot_offset=newest,
            metadata=encode_metadata(self.topic_id),
            epochs=self.epochs.encode(),
            names_are_durable=self.durable_segment == active.base_offset,
        )

    def flushed(self, flush: Flush, now_ms: int) -> None:
        """`flush` was done: recovery need not look below its end offset."""
        self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.last_flush_ms = now_ms
        for sealed in flush.sealed:
            sealed.segment.drop_indexes()
        # By identity: some may have been dropped, and others sealed, while the flush ran.
        done = {id(sealed.segment) for sealed in flush.sealed}
        self.sealed = [sealed for sealed in self.sealed if id(sealed.segment) not in done]
        self.durable_segment = max(self.durable_segment, flush.segment_base)
        self.durable_snapshot = max(self.durable_snapshot, flush.snapshot_offset)

    # ---- the beginning

    def advance_start(self, offset: int) -> list[Segment]:
        """Offsets below `offset` no longer exist for clients. Returns segments that hold nothing else.

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
        self.doomed += dropped
        return dropped

    def forget(self, segments: list[Segment]) -> None:
        """Their files are gone, so that nothing is left to sync; the disk gives back their room once nobody has them
        open."""
        gone = {id(segment) for segment in segments}
        self.doomed = [segment for segment in self.doomed if id(segment) not in gone]
        self.sealed = [sealed for sealed in self.sealed if id(sealed.segment) not in gone]

    def replace_segments(self, swap: Swap, cleaned: Segment) -> bool:
        """Put a compacted segment in the place of those it was made from, in the folder and here.

        False, and nothing has happened, if these are not there any more as they were. ORDER: `swap` is on stable
        storage BEFORE this, and the files of the others go AFTER it.
        """
        first = self.segment_index(swap.bases[0])
        old = self.segments[first : first + len(swap.bases)]
        if tuple(segment.base_offset for segment in old) != swap.bases or self.active in old:
            return False
        unflushed = {id(sealed.segment) for sealed in self.sealed}
        if any(id(segment) in unflushed for segment in old):
            return False
        try:
            rename_cleaned(self.disk, self.folder, swap)
        except OSError as error:
            # Some files may be in place and others not: the next start finishes it.
            self.go_offline(f"a compacted segment could not be put in place: {error}")
            raise
        for segment in old:
            segment.removed = True
            segment.file = None
        self.segments[first : first + len(old)] = [cleaned]
        if self._visible_segment in old:
            # Where in the cleaned segment the high watermark lies is looked up until it moves on.
            self._visible_segment = None
        return True

    def remove_files(self, segments: list[Segment]) -> None:
        """Readers that hold a descriptor finish; nobody else finds the files. OSError once all were tried."""
        failure: OSError | None = None
        with self.gate.entered() as is_mine:
            for segment in segments:
                segment.removed = True
                segment.file = None
                if not is_mine:
                    continue
                try:
                    for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                        path = segment.path(suffix)
                        if self.disk.exists(path):
                            self.disk.remove(path)
                except OSError as error:
                    failure = error
        if failure is not None:
            raise failure

    def close(self) -> None:
        """After a last flush: leave the folder as Kafka's tools expect it, indexes and snapshot included.

        Nothing is synced here: the caller syncs the volume once for all its logs.
        """
        # ORDER: a flush that still runs may not put an older file over those written now.
        self.gate.shut()
        if not self.is_made:
            return
        active = self.active
        self._cut_preallocated(active)
        index, times = active.seal()
        write_plainly(self.disk, active.path(INDEX), index)
        write_plainly(self.disk, active.path(TIME_INDEX), times)
        if active.aborted:
            write_plainly(self.disk, active.path(TXN_INDEX), encode_aborted(active.aborted))
        write_plainly(self.disk, f"{self.folder}/{EPOCHS_FILE}", self.epochs.encode())
        self.write_snapshot()
        for segment in self.segments:
            segment.file = None
