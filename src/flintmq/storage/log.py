"""The log of one partition: append at the end, read anywhere. One writer: the event loop.

Three ends, never confused: `end_offset` (what is written), `high_watermark` (what may be seen and
acknowledged; set by the partition, which knows of replicas and flushes), `last_stable_offset` (what a
read_committed consumer may see). `start_offset` is the first offset that still exists for clients.

The log knows bytes and offsets; it does not know requests, replicas or the event loop.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from enum import IntEnum
from typing import NamedTuple

from flintmq.effects import Disk, File, write_atomically, write_plainly
from flintmq.errors import CorruptionError, ErrorCode, LogOffline, RequestError, StorageError
from flintmq.model.batch import (
    HEADER_SIZE,
    LENGTH_END,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_is_right,
    place,
    read_header,
)
from flintmq.model.records import records_of
from flintmq.model.uuids import decode_uuid, encode_uuid
from flintmq.settings import TopicConfig
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.epochs import LeaderEpochs
from flintmq.storage.producers import Producers
from flintmq.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, FileRange, Segment, file_name

logger = logging.getLogger(__name__)

EPOCHS_FILE = "leader-epoch-checkpoint"
METADATA_FILE = "partition.metadata"
_RECENT_BATCHES = 64
_SNAPSHOTS_KEPT = 3
_MAX_RELATIVE_OFFSET = 0x7FFFFFFF
# What a batch may unpack to when a lookup by time must see its records.
UNPACKED_BYTES_MAX = 256 * 1024 * 1024


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


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


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
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.folder = folder
        self.config = config
        self.segments: list[Segment] = []
        self.producers = Producers()
        self.epochs = LeaderEpochs()
        self.corrupt: list[CorruptRange] = []
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        self.last_flush_ms = 0
        self.offline: str | None = None
        # End offsets of the producer snapshots in the folder, ascending.
        self.snapshots: list[int] = []
        # The base offset of the newest segment whose name is known to be on stable storage.
        self.durable_segment = -1
        self.disk = disk
        self.descriptors = descriptors
        self._high_watermark = 0
        self._visible_segment: Segment | None = None
        self._visible_position = 0
        # Batch ends above the high watermark: (end offset, segment, position after it).
        self._unseen: deque[tuple[int, Segment, int]] = deque()
        # Where the last batches of the active segment begin: readers at the tail need no index.
        self._recent: dict[int, int] = {}
        # Rolled, not yet flushed, with the contents of their index files.
        self._sealed: list[tuple[Segment, bytes, bytes]] = []

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
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return unstable

    @property
    def unflushed(self) -> int:
        return self.end_offset - self.recovery_point

    # ---- writing

    def append(self, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write one checked batch at the end, or find that it repeats an earlier one.

        The buffer is changed in place: the batch gets its offset and epoch. The caller may reuse it afterwards.
        """
        if self.offline is not None:
            raise LogOffline(self.offline)
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        if header.producer_id != NO_PRODUCER_ID:
            duplicate = self.producers.check(header)
            if duplicate is not None:
                return Appended(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp if append_time >= 0 else -1
                )
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        size = len(batch)
        if self._must_roll(segment, size, header.max_timestamp, last_offset, now_ms):
            segment = self.roll(now_ms)
        place(batch, base_offset, leader_epoch)
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
        self._unseen.append((end_offset, segment, segment.size))
        recent = self._recent
        recent[base_offset] = position
        if len(recent) > _RECENT_BATCHES:
            del recent[next(iter(recent))]
        return Appended(base_offset, last_offset, append_time)

    def _undo_write(self, segment: Segment, error: OSError) -> None:
        """Part of a batch may have been written: take it away again, or serve nothing more."""
        try:
            file = segment.open()
            file.truncate(segment.size)
        except OSError as second:
            self.go_offline(f"a failed write to {self.name} could not be undone: {second}")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"No space left for {self.name}: {error}.") from error
        self.go_offline(f"writing {segment.path(LOG)} failed: {error}")
        raise LogOffline(self.offline) from error

    def go_offline(self, reason: str) -> None:
        """Nothing is served or acknowledged from here until a restart has checked what the disk holds."""
        if self.offline is None:
            self.offline = reason
            logger.critical("log %s is offline: %s; restart the broker once the disk is well", self.name, reason)

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
        if segment.first_timestamp >= 0 and max_timestamp >= 0:
            age_ms = max_timestamp - segment.first_timestamp
        else:
            age_ms = now_ms - segment.created_ms
        return (
            age_ms > config.segment_ms
            or last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET
            or segment.index_bytes >= config.segment_index_bytes
        )

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next. Its indexes reach their files with the next flush."""
        segment = self.active
        if self.config.preallocate:
            segment.open().truncate(segment.size)
        self._sealed.append((segment, *segment.seal()))
        self._write_snapshot()
        return self.add_segment(self.end_offset, now_ms)

    def add_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(
            self.folder,
            base_offset,
            self.descriptors,
            index_interval=self.config.index_interval_bytes,
            created_ms=now_ms,
        )
        try:
            file = segment.open(create=True)
            file.truncate(0)
            if self.config.preallocate:
                file.allocate(self.config.segment_bytes)
        except OSError as error:
            raise StorageError(f"{segment.path(LOG)} could not be made: {error}.") from error
        self.segments.append(segment)
        self._recent.clear()
        return segment

    def sealed_by_recovery(self, segment: Segment) -> None:
        """A scanned segment with others after it: its index files are written with the next flush."""
        self._sealed.append((segment, *segment.seal()))

    def _write_snapshot(self) -> None:
        path = f"{self.folder}/{file_name(self.end_offset, SNAPSHOT)}"
        try:
            write_plainly(self.disk, path, self.producers.encode())
            self.snapshots = [offset for offset in self.snapshots if offset < self.end_offset]
            # The one before stays until this one is surely on disk: the next flush syncs neither.
            while len(self.snapshots) > _SNAPSHOTS_KEPT - 1:
                self.disk.remove(f"{self.folder}/{file_name(self.snapshots.pop(0), SNAPSHOT)}")
            self.snapshots.append(self.end_offset)
        except OSError as error:
            # Recovery replays from an older snapshot, or from the start: slower, never wrong.
            logger.warning("the producer snapshot %s could not be written: %s", path, error)

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
            while unseen and unseen[0][0] <= offset:
                offset, self._visible_segment, self._visible_position = unseen.popleft()
        self._high_watermark = offset
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
            bound = self._refuse_corrupt(offset, bound)
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
        return FileRange(segment.open(), position, available)

    def _bound(self, isolation: Isolation) -> int:
        if isolation is Isolation.READ_UNCOMMITTED:
            return self._high_watermark
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.end_offset

    def _end_position(self, segment: Segment, bound: int) -> int:
        """Where in `segment` the offsets from `bound` on begin."""
        if bound >= self.end_offset:
            return segment.size
        if bound == self._high_watermark and segment is self._visible_segment:
            return self._visible_position
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

    def _refuse_corrupt(self, offset: int, bound: int) -> int:
        for bad in self.corrupt:
            if bad.base_offset <= offset < bad.end_offset:
                raise CorruptionError(
                    f"Offsets {bad.base_offset} to {bad.end_offset - 1} of {self.name} are damaged."
                )
            if offset < bad.base_offset:
                bound = min(bound, bad.base_offset)
        return bound

    def verify(self, found: FileRange) -> None:
        """Check the CRC of every whole batch in a range that was read (`flint.verify.on.read`)."""
        data = memoryview(found.read())
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if header.length < HEADER_SIZE - LENGTH_END:
                raise CorruptionError(f"{self.name} holds something that is not a batch.")
            if position + header.size > len(data):
                return
            if not crc_is_right(data[position : position + header.size], header.crc):
                bad = CorruptRange(header.base_offset, header.last_offset + 1)
                if bad not in self.corrupt:
                    self.corrupt.append(bad)
                    logger.error("%s: offsets %d to %d are damaged", self.name, bad.base_offset, header.last_offset)
                raise CorruptionError(f"Offsets {bad.base_offset} to {header.last_offset} of {self.name} are damaged.")
            position += header.size

    # ---- lookups

    def offset_for_time(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is ≥ `timestamp`. Reads the disk."""
        for at, segment in enumerate(list(self.segments)):
            following = self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.end_offset
            if segment.max_timestamp < timestamp or following <= self.start_offset:
                continue
            found = segment.locate_time(self.disk, timestamp, self.start_offset)
            if found is None:
                continue
            position, header = found
            if header.attributes & LOG_APPEND_TIME:
                return TimestampOffset(
                    header.max_timestamp, max(header.base_offset, self.start_offset), header.leader_epoch
                )
            data = segment.open().pread(header.size, position)
            for record in records_of(memoryview(data), limit=UNPACKED_BYTES_MAX):
                if record.timestamp >= timestamp and record.offset >= self.start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp. Reads the disk."""
        best = max(self.segments, key=lambda s: s.max_timestamp)
        if best.max_timestamp < 0:
            return None
        found = best.locate_time(self.disk, best.max_timestamp, self.start_offset)
        if found is None:
            return None
        position, header = found
        if header.attributes & LOG_APPEND_TIME:
            return TimestampOffset(header.max_timestamp, header.base_offset, header.leader_epoch)
        data = best.open().pread(header.size, position)
        for record in records_of(memoryview(data), limit=UNPACKED_BYTES_MAX):
            if record.timestamp == header.max_timestamp:
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
        return None

    # ---- flushing

    def prepare_flush(self) -> Flush:
        """What must be synced so that all written so far is on stable storage."""
        return Flush(self, self.end_offset, self.active.open(), list(self._sealed))

    def flushed(self, flush: Flush, now_ms: int) -> None:
        """`flush` was done: recovery need not look below its end offset."""
        self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.last_flush_ms = now_ms
        for segment, _, _ in flush.sealed:
            segment.drop_indexes()
        self._sealed = self._sealed[len(flush.sealed) :]
        self.durable_segment = max(self.durable_segment, flush.segment_base)

    # ---- the beginning

    def advance_start(self, offset: int) -> list[Segment]:
        """Offsets below `offset` no longer exist for clients. Returns segments that hold nothing else.

        ORDER: the caller makes the new start durable BEFORE it removes those segments' files.
        """
        if offset <= self.start_offset:
            return []
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.corrupt = [bad for bad in self.corrupt if bad.end_offset > offset]
        dropped = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= offset:
            dropped.append(self.segments.pop(0))
        gone = {id(segment) for segment in dropped}
        self._sealed = [entry for entry in self._sealed if id(entry[0]) not in gone]
        return dropped

    def remove_files(self, segments: list[Segment]) -> None:
        """Readers that hold a descriptor finish; nobody else finds the files."""
        for segment in segments:
            segment.file = None
            for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                path = segment.path(suffix)
                if self.disk.exists(path):
                    self.disk.remove(path)

    def close(self) -> None:
        """After a last flush: leave the folder as Kafka's tools expect it, indexes and snapshot included.

        Nothing is synced here: the caller syncs the volume once for all its logs.
        """
        active = self.active
        if self.config.preallocate:
            active.open().truncate(active.size)
        index, times = active.seal()
        write_plainly(self.disk, active.path(INDEX), index)
        write_plainly(self.disk, active.path(TIME_INDEX), times)
        write_plainly(self.disk, f"{self.folder}/{EPOCHS_FILE}", self.epochs.encode())
        self._write_snapshot()
        for segment in self.segments:
            segment.file = None


class Flush:
    """Files to sync, away from the loop. Holding them keeps their descriptors open."""

    def __init__(
        self, log: Log, end_offset: int, active: File, sealed: list[tuple[Segment, bytes, bytes]]
    ) -> None:
        self.end_offset = end_offset
        self.segment_base = log.active.base_offset
        self.sealed = sealed
        self._active = active
        self._files = [segment.open() for segment, _, _ in sealed]
        self.disk = log.disk
        self._folder = log.folder
        self._epochs = log.epochs.encode()
        self._metadata = encode_metadata(log.topic_id)
        self._folder_is_durable = log.durable_segment == self.segment_base

    def run(self) -> None:
        """ORDER: data before the indexes that point into it, both before the names that lead to them."""
        disk = self.disk
        for file, (segment, index, times) in zip(self._files, self.sealed, strict=True):
            file.sync()
            write_atomically(disk, segment.path(INDEX), index)
            write_atomically(disk, segment.path(TIME_INDEX), times)
        self._active.sync()
        if not self._folder_is_durable:
            write_atomically(disk, f"{self._folder}/{METADATA_FILE}", self._metadata)
            write_atomically(disk, f"{self._folder}/{EPOCHS_FILE}", self._epochs)
            disk.sync_dir(self._folder.rpartition("/")[0])


def encode_metadata(topic_id: bytes) -> bytes:
    """Kafka's `partition.metadata`: which topic a folder belongs to, whatever its name says."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def decode_metadata(data: bytes) -> bytes | None:
    """The topic id, or None if the file makes no sense."""
    fields = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
    return decode_uuid(fields.get("topic_id", ""))
