"""Opening a log from its folder. Only CRCs are trusted.

After a clean stop the files are taken as they are, but for cheap checks. After an unclean one every segment
that reaches above the recovery point is scanned: the log is cut at the first batch that is not sound, and
indexes, epochs and producer state are rebuilt from what remains. Below the recovery point everything was on
stable storage once: a segment found bad there is kept as far as it is sound and its remainder is refused,
because cutting there would throw away sound segments after it.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field

from flintmq.effects import Disk, read_file
from flintmq.errors import CorruptionError, RequestError
from flintmq.model.batch import CONTROL, HEADER_SIZE, LENGTH_END, NO_PRODUCER_ID, BatchHeader, crc_is_right, read_header
from flintmq.model.records import records_of
from flintmq.storage.epochs import LeaderEpochs
from flintmq.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from flintmq.storage.log import EPOCHS_FILE, UNPACKED_BYTES_MAX, CorruptRange, Log
from flintmq.storage.producers import Producers
from flintmq.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, Segment, file_name

logger = logging.getLogger(__name__)

_SCAN_BYTES = 1024 * 1024
_MARKER_VALUE = struct.Struct(">hi")


@dataclass(slots=True)
class Recovery:
    """What opening one log found and did."""

    bytes_cut: int = 0
    segments_scanned: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0
    quarantined: list[CorruptRange] = field(default_factory=list)


@dataclass(slots=True)
class _Scan:
    """The sound beginning of a segment."""

    end_position: int
    end_offset: int
    sound: bool
    """False if something that is not a batch, and not preallocated zeros, follows."""


def open_log(log: Log, *, clean: bool, recovery_point: int, start_offset: int, now_ms: int) -> Recovery:
    """Fill `log`, fresh from its constructor, with what its folder holds."""
    return _Opening(log, clean=clean, recovery_point=recovery_point, now_ms=now_ms).run(start_offset)


class _Opening:
    def __init__(self, log: Log, *, clean: bool, recovery_point: int, now_ms: int) -> None:
        self._log = log
        self._disk: Disk = log.disk
        self._clean = clean
        self._recovery_point = recovery_point
        self._now_ms = now_ms
        self._report = Recovery()

    def run(self, start_offset: int) -> Recovery:
        log = self._log
        bases = self._tidy()
        self._load_epochs()
        for at, base in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            segment = self._segment(base)
            if following is not None and (self._clean or following <= self._recovery_point):
                self._load_sealed(segment, following)
            elif following is None and self._clean and self._load_active(segment):
                pass
            elif not self._recover(segment, following):
                self._drop([self._segment(later) for later in bases[at + 1 :]])
                break
        if log.segments and start_offset > log.end_offset:
            # The start moved durably, the records it moved over were lost unsynced: nothing below it may return.
            self._drop(log.segments)
            log.segments = []
        if not log.segments:
            log.end_offset = start_offset
            log.add_segment(start_offset, self._now_ms)
        if log.segments[-1].offset_index is None:
            raise AssertionError(f"{log.name} has no active segment")
        log.start_offset = max(start_offset, log.segments[0].base_offset)
        log.epochs.truncate_from_end(log.end_offset)
        log.recovery_point = log.end_offset if self._clean else min(self._recovery_point, log.end_offset)
        log.last_flush_ms = self._now_ms
        self._load_producers()
        log.advance(log.end_offset)
        return self._report

    def _tidy(self) -> list[int]:
        bases = []
        for name in self._disk.list(self._log.folder):
            stem, dot, suffix = name.partition(".")
            if name.endswith(".tmp"):
                self._disk.remove(f"{self._log.folder}/{name}")
            elif dot + suffix == LOG and stem.isdigit():
                bases.append(int(stem))
        return sorted(bases)

    def _segment(self, base: int) -> Segment:
        log = self._log
        return Segment(
            log.folder,
            base,
            log.descriptors,
            index_interval=log.config.index_interval_bytes,
            created_ms=self._now_ms,
        )

    def _load_epochs(self) -> None:
        path = f"{self._log.folder}/{EPOCHS_FILE}"
        if self._disk.exists(path):
            try:
                self._log.epochs = LeaderEpochs.decode(read_file(self._disk, path))
            except CorruptionError as error:
                logger.warning("%s: %s It is rebuilt where batches are scanned.", path, error)

    # ---- taking files as they are

    def _load_sealed(self, segment: Segment, following: int) -> None:
        """A segment below the recovery point: on stable storage once, its indexes in files."""
        log = self._log
        segment.size = self._disk.size(segment.path(LOG))
        if self._index_files_are_sound(segment):
            self._read_max_timestamp(segment)
            segment.drop_indexes()
            log.segments.append(segment)
            log.end_offset = following
            return
        self._report.indexes_rebuilt += 1
        logger.warning("the indexes of %s are missing or damaged; rebuilding them", segment.path(LOG))
        size, segment.size = segment.size, 0
        scan = self._scan(segment, size, log.end_offset if log.segments else segment.base_offset)
        log.segments.append(segment)
        if scan.sound and scan.end_position == size and scan.end_offset <= following:
            log.sealed_by_recovery(segment)
        else:
            bad = CorruptRange(scan.end_offset, following)
            log.corrupt.append(bad)
            self._report.quarantined.append(bad)
            logger.error(
                "%s is damaged at byte %d: offsets %d to %d are refused with CORRUPT_MESSAGE; the rest is served",
                segment.path(LOG),
                scan.end_position,
                bad.base_offset,
                bad.end_offset - 1,
            )
        log.end_offset = following

    def _index_files_are_sound(self, segment: Segment) -> bool:
        """A cheap look: whole entries, and the last inside the log file."""
        for suffix, entry in ((INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY)):
            path = segment.path(suffix)
            if not self._disk.exists(path):
                return False
            size = self._disk.size(path)
            if size % entry.size:
                return False
            if suffix == INDEX and size:
                file = self._disk.open(path, writable=False)
                try:
                    _, position = entry.unpack(file.pread(entry.size, size - entry.size))
                finally:
                    file.close()
                if not 0 <= position < segment.size:
                    return False
        return True

    def _read_max_timestamp(self, segment: Segment) -> None:
        file = self._disk.open(segment.path(TIME_INDEX), writable=False)
        try:
            size = file.size()
            if size:
                timestamp, relative = TIME_ENTRY.unpack(file.pread(TIME_ENTRY.size, size - TIME_ENTRY.size))
                segment.max_timestamp = timestamp
                segment.max_timestamp_offset = segment.base_offset + relative
        finally:
            file.close()

    def _load_active(self, segment: Segment) -> bool:
        """After a clean stop: the indexes from their files, then a walk over the few batches behind them."""
        log, disk = self._log, self._disk
        segment.size = disk.size(segment.path(LOG))
        if not self._index_files_are_sound(segment):
            segment.size = 0
            return False
        offsets = OffsetIndex.decode(read_file(disk, segment.path(INDEX)))
        times = TimeIndex.decode(read_file(disk, segment.path(TIME_INDEX)))
        if not offsets.is_sound(segment.size) or not times.is_sound():
            segment.size = 0
            return False
        end = segment.size
        position = offsets.positions[-1] if offsets.positions else 0
        segment.offset_index, segment.time_index = offsets, times
        self._read_max_timestamp(segment)
        end_offset = segment.base_offset
        for at, header in segment.walk(0, min(end, HEADER_SIZE)):
            segment.first_timestamp = header.max_timestamp if at == 0 else -1
        for at, header in segment.walk(position, end):
            if header.length < HEADER_SIZE - LENGTH_END or at + header.size > end:
                break
            end_offset = header.last_offset + 1
            position = at + header.size
        if position != end:
            logger.warning("%s does not end where its last batch does; scanning it", segment.path(LOG))
            segment.size = 0
            segment.offset_index, segment.time_index = OffsetIndex(), TimeIndex()
            segment.max_timestamp = -1
            return False
        log.segments.append(segment)
        log.end_offset = end_offset
        return True

    # ---- scanning

    def _recover(self, segment: Segment, following: int | None) -> bool:
        """Scan a segment that may not have reached the disk; False if the log ends in it."""
        log = self._log
        size = self._disk.size(segment.path(LOG))
        expected = log.end_offset if log.segments else segment.base_offset
        if segment.base_offset < expected:
            logger.error("%s begins before the segment in front of it ends; dropping it", segment.path(LOG))
            self._drop([segment])
            return False
        segment.size = 0
        scan = self._scan(segment, size, segment.base_offset)
        self._report.segments_scanned += 1
        log.segments.append(segment)
        log.end_offset = scan.end_offset
        if scan.end_position < size:
            segment.open().truncate(scan.end_position)
            segment.open().sync()
            if not scan.sound:
                self._report.bytes_cut += size - scan.end_position
                logger.warning(
                    "%s: cut %d bytes after offset %d that are not a sound batch",
                    segment.path(LOG),
                    size - scan.end_position,
                    scan.end_offset - 1,
                )
        if following is None:
            return True
        if not scan.sound or scan.end_offset != following:
            # A gap here is the lost end of this segment: what follows was never acknowledged as durable.
            return False
        log.sealed_by_recovery(segment)
        return True

    def _scan(self, segment: Segment, size: int, expected: int) -> _Scan:
        """Check every batch and index it; stops at the first that is not sound."""
        file = segment.open()
        epochs = self._log.epochs
        position, chunk, start = 0, memoryview(b""), 0
        while position < size:
            at = position - start
            left = len(chunk) - at
            need = HEADER_SIZE
            if left >= HEADER_SIZE:
                length = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True)
                need = max(HEADER_SIZE, length + LENGTH_END)
            if left < need:
                if position + need > size:
                    return self._ended(file.pread(HEADER_SIZE, position), position, expected)
                chunk, start = memoryview(file.pread(max(_SCAN_BYTES, need), position)), position
                if len(chunk) < need:
                    return self._ended(bytes(chunk[:HEADER_SIZE]), position, expected)
                continue
            batch = chunk[at : at + need]
            header = read_header(batch)
            if not self._is_sound(batch, header, expected):
                return self._ended(bytes(batch[:HEADER_SIZE]), position, expected)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset)
            segment.note(position, header.size, header.last_offset, header.max_timestamp)
            expected = header.last_offset + 1
            position += header.size
        return _Scan(position, expected, sound=True)

    @staticmethod
    def _ended(rest: bytes, position: int, expected: int) -> _Scan:
        # A preallocated file ends in zeros; those were never a batch.
        return _Scan(position, expected, sound=not any(rest))

    @staticmethod
    def _is_sound(batch: memoryview, header: BatchHeader, expected: int) -> bool:
        return (
            header.length >= HEADER_SIZE - LENGTH_END
            and header.magic == 2
            and header.base_offset >= expected
            and header.last_offset_delta >= 0
            and crc_is_right(batch, header.crc)
        )

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._report.segments_dropped += 1
            size = self._disk.size(segment.path(LOG))
            self._report.bytes_cut += size
            logger.warning("%s: dropped with %d bytes, because the log is cut before it", segment.path(LOG), size)
        self._log.remove_files(segments)
        self._disk.sync_dir(self._log.folder)

    # ---- producers

    def _load_producers(self) -> None:
        """The newest usable snapshot, then every batch after it."""
        log, disk = self._log, self._disk
        stems = [name[: -len(SNAPSHOT)] for name in disk.list(log.folder) if name.endswith(SNAPSHOT)]
        replay_from = log.segments[0].base_offset
        for offset in sorted((int(stem) for stem in stems if stem.isdigit()), reverse=True):
            path = f"{log.folder}/{file_name(offset, SNAPSHOT)}"
            if offset > log.end_offset:  # of records that were cut
                disk.remove(path)
                continue
            log.snapshots.insert(0, offset)
            if len(log.snapshots) > 1:
                continue
            try:
                log.producers = Producers.decode(read_file(disk, path))
                replay_from = max(offset, replay_from)
            except CorruptionError as error:
                logger.warning("%s: %s Replaying from an older one.", path, error)
                disk.remove(path)
                log.snapshots.clear()
        if replay_from >= log.end_offset:
            return
        for segment in log.segments[log.segment_index(replay_from) :]:
            found = segment.locate(disk, replay_from)
            if found is None:
                continue
            for position, header in segment.walk(found[0]):
                if header.base_offset >= replay_from and header.producer_id != NO_PRODUCER_ID:
                    self._replay(segment, position, header)

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> None:
        producers = self._log.producers
        if not header.attributes & CONTROL:
            producers.record(header, header.base_offset)
            return
        data = memoryview(segment.open().pread(header.size, position))
        try:
            for record in records_of(data, limit=UNPACKED_BYTES_MAX):
                _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
                producers.end_transaction(
                    header.producer_id, header.producer_epoch, coordinator_epoch, record.timestamp
                )
        except (struct.error, RequestError) as error:
            logger.error("%s: the marker at offset %d makes no sense: %s", self._log.name, header.base_offset, error)

