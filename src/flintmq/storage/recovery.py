"""Opening a log from its folder. Only CRCs are trusted.

After a clean stop the files are taken as they are, but for cheap checks. After an unclean one every segment
that reaches above the recovery point is scanned: the log is cut at the first batch that is not sound, and
indexes, epochs and producer state are rebuilt from what remains. Below the recovery point everything was on
stable storage once: a segment found bad there is kept as far as it is sound and its remainder is refused,
because cutting there would throw away sound segments after it.

What is served afterwards may still be in memory only. Where acknowledgements promise more (`flush.messages=1`)
it is synced before it is served, else a producer's retry would be acknowledged for bytes that no disk holds.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass, field

from flintmq.effects import Disk, read_file
from flintmq.errors import CorruptionError, RequestError
from flintmq.model.batch import CONTROL, NO_PRODUCER_ID, BatchHeader
from flintmq.model.records import records_of
from flintmq.storage.compaction.swapping import resume_swap
from flintmq.storage.epochs import LeaderEpochs
from flintmq.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from flintmq.storage.log import CorruptRange, Log
from flintmq.storage.lookups import UNPACKED_BYTES_MAX
from flintmq.storage.producers import Producers
from flintmq.storage.scanning import scan
from flintmq.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, Segment, file_name
from flintmq.storage.syncing import EPOCHS_FILE, FLUSH_FAILED

logger = logging.getLogger(__name__)

_COPY_BYTES = 1024 * 1024
_NAME_DIGITS = 20
_MARKER_VALUE = struct.Struct(">hi")


@dataclass(slots=True)
class Recovery:
    """What opening one log found and did."""

    bytes_cut: int = 0
    segments_scanned: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0
    quarantined: list[CorruptRange] = field(default_factory=list)


def open_log(log: Log, *, clean: bool, recovery_point: int, start_offset: int, now_ms: int) -> Recovery:
    """Fill `log`, fresh from its constructor, with what its folder holds."""
    # Known even if the rest fails: checkpoints are written from these.
    log.start_offset, log.recovery_point = start_offset, recovery_point
    return _Opening(log, clean=clean, recovery_point=recovery_point, now_ms=now_ms).run(start_offset)


class _Opening:
    def __init__(self, log: Log, *, clean: bool, recovery_point: int, now_ms: int) -> None:
        self._log = log
        self._disk: Disk = log.disk
        self._clean = clean
        self._recovery_point = recovery_point
        self._now_ms = now_ms
        self._report = Recovery()
        self._flush_failed = False
        self._epochs_are_lost = False

    def run(self, start_offset: int) -> Recovery:
        log = self._log
        bases = self._without_obsolete(self._tidy(), start_offset)
        self._load_epochs(max(start_offset, bases[0]) if bases else start_offset)
        for at, base in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            segment = log.segment_at(base, self._now_ms)
            if following is not None and (self._clean or following <= self._recovery_point):
                self._load_sealed(segment, following)
            elif following is None and self._clean and self._load_active(segment):
                pass
            elif not self._recover(segment, following):
                self._drop([log.segment_at(later, self._now_ms) for later in bases[at + 1 :]])
                break
        if log.segments and start_offset > log.end_offset:
            # The start moved durably, the records it moved over were lost unsynced: nothing below it may return.
            self._drop(log.segments)
            log.segments, log.sealed, log.corrupt = [], [], []
        if not log.segments:
            log.end_offset = start_offset
            log.add_segment(start_offset, self._now_ms)
        if log.active.offset_index is None:
            raise AssertionError(f"{log.name} has no active segment")
        log.start_offset = max(start_offset, log.segments[0].base_offset)
        log.epochs.truncate_from_start(log.start_offset)
        log.epochs.truncate_from_end(log.end_offset)
        log.recovery_point = log.end_offset if self._clean else min(self._recovery_point, log.end_offset)
        log.last_flush_ms = self._now_ms
        self._load_producers()
        self._make_durable()
        log.advance(log.end_offset)
        return self._report

    def _tidy(self) -> list[int]:
        """The base offsets of the segments there are. What was written aside, or belongs to none, is removed."""
        folder = self._log.folder
        names = self._disk.list(folder)
        if resume_swap(self._disk, folder, names):
            names = self._disk.list(folder)
        present = set(names)
        self._flush_failed = FLUSH_FAILED in present
        bases = []
        for name in names:
            stem, dot, suffix = name.partition(".")
            is_numbered = stem.isdigit() and len(stem) == _NAME_DIGITS
            if name.endswith(".tmp") or (
                is_numbered and dot + suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem + LOG not in present
            ):
                self._disk.remove(f"{folder}/{name}")
            elif is_numbered and dot + suffix == LOG:
                bases.append(int(stem))
        return sorted(bases)

    def _without_obsolete(self, bases: list[int], start_offset: int) -> list[int]:
        """Segments below the start, whose removal a crash undid in part: gaps between them mean nothing."""
        obsolete = 0
        while obsolete + 1 < len(bases) and bases[obsolete + 1] <= start_offset:
            obsolete += 1
        self._log.remove_files([self._log.segment_at(base, self._now_ms) for base in bases[:obsolete]])
        return bases[obsolete:]

    # ---- leader epochs

    def _load_epochs(self, first_offset: int) -> None:
        path = f"{self._log.folder}/{EPOCHS_FILE}"
        if not self._disk.exists(path):
            self._epochs_are_lost = True
            return
        try:
            epochs = LeaderEpochs.decode(read_file(self._disk, path))
            if epochs.first_offset <= first_offset:
                self._log.epochs = epochs
            else:
                # Records were about to be deleted; the epochs below the new start were written without them.
                self._epochs_are_lost = True
        except CorruptionError as error:
            self._epochs_are_lost = True
            logger.warning("%s: %s It is rebuilt from the batches.", path, error)

    def _recall_epochs(self, segment: Segment) -> bool:
        """From the batches of a segment that is not scanned, where the checkpoint does not tell.

        False if the batches make no sense.
        """
        if self._epochs_are_lost:
            epochs = self._log.epochs
            try:
                for _, header in segment.walk(0):
                    if header.leader_epoch > epochs.latest:
                        epochs.assign(header.leader_epoch, header.base_offset)
            except CorruptionError:
                return False
        return True

    # ---- taking files as they are

    def _load_sealed(self, segment: Segment, following: int) -> None:
        """A segment below the recovery point: on stable storage once, its indexes in files."""
        log = self._log
        segment.size = size = self._disk.size(segment.path(LOG))
        # One that ends at the recovery point may have been sealed after the flush that brought it there: then
        # its index files, if there are any, are those of an earlier stop.
        indexed = self._clean or following < self._recovery_point
        if indexed and self._index_files_are_sound(segment, following) and self._recall_epochs(segment):
            self._read_max_timestamp(segment)
            if log.config.compacts:
                self._read_first_timestamp(segment)
            segment.drop_indexes()
            log.segments.append(segment)
            log.end_offset = following
            return
        if indexed:
            self._report.indexes_rebuilt += 1
            logger.warning("the indexes of %s are missing or damaged; rebuilding them", segment.path(LOG))
        self._report.segments_scanned += 1
        found = scan(segment, size, expected=segment.base_offset, contiguous=False, epochs=log.epochs)
        log.segments.append(segment)
        log.end_offset = following
        # Behind the last batch there may still be what was preallocated: a power loss undid that it was cut.
        if found.end_offset == following or (found.end_position == size and found.end_offset < following):
            if found.end_position < size:
                # ORDER: BEFORE its indexes are there again, by which the next start takes the file as it is.
                file = segment.open()
                file.truncate(found.end_position)
                file.sync()
            log.sealed_by_recovery(segment)
            return
        bad = CorruptRange(found.end_offset, following)
        log.corrupt.append(bad)
        self._report.quarantined.append(bad)
        logger.error(
            "%s is damaged at byte %d: offsets %d to %d are refused with CORRUPT_MESSAGE; the rest is served",
            segment.path(LOG),
            found.end_position,
            bad.base_offset,
            bad.end_offset - 1,
        )

    def _index_files_are_sound(self, segment: Segment, following: int | None) -> bool:
        """A cheap look: whole entries, and the last of them inside the segment."""
        for suffix, entry in ((INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY)):
            path = segment.path(suffix)
            if not self._disk.exists(path):
                return False
            size = self._disk.size(path)
            if size % entry.size:
                return False
            if size:
                file = self._disk.open(path, writable=False)
                try:
                    first, second = entry.unpack(file.pread(entry.size, size - entry.size))
                finally:
                    file.close()
                relative = first if suffix == INDEX else second
                if following is not None and segment.base_offset + relative >= following:
                    return False
                if suffix == INDEX and not 0 <= second < segment.size:
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

    @staticmethod
    def _read_first_timestamp(segment: Segment) -> None:
        for _, header in segment.walk(0):
            segment.first_timestamp = header.max_timestamp
            return

    def _load_active(self, segment: Segment) -> bool:
        """After a clean stop: the indexes from their files, then a walk over the few batches behind them."""
        log, disk = self._log, self._disk
        segment.size = end = disk.size(segment.path(LOG))
        if not self._index_files_are_sound(segment, None):
            return False
        offsets = OffsetIndex.decode(read_file(disk, segment.path(INDEX)))
        times = TimeIndex.decode(read_file(disk, segment.path(TIME_INDEX)))
        position = offsets.positions[-1] if offsets.positions else 0
        expected = segment.base_offset + offsets.offsets[-1] if offsets.offsets else -1
        end_offset = segment.base_offset
        try:
            if not offsets.is_sound(end) or not times.is_sound():
                raise CorruptionError("Its indexes are not in order.")
            for at, header in segment.walk(position):
                if expected >= 0 and header.last_offset != expected:
                    raise CorruptionError("Its index leads to another batch than it says.")
                if header.base_offset < end_offset:
                    raise CorruptionError("Its offsets are not in order.")
                position, end_offset, expected = at + header.size, header.last_offset + 1, -1
            if position != end:
                raise CorruptionError("It does not end where its last batch does.")
            if times.offsets and segment.base_offset + times.offsets[-1] >= end_offset:
                raise CorruptionError("Its time index leads beyond its end.")
            self._read_first_timestamp(segment)
            if not self._recall_epochs(segment):
                raise CorruptionError("Its batches make no sense.")
        except CorruptionError as error:
            logger.warning("%s: %s Scanning it.", segment.path(LOG), error)
            return False
        segment.adopt(offsets, times)
        self._read_max_timestamp(segment)
        log.segments.append(segment)
        log.end_offset = end_offset
        return True

    # ---- scanning

    def _recover(self, segment: Segment, following: int | None) -> bool:
        """Scan a segment that may not have reached the disk; False if the log ends in it."""
        log = self._log
        path = segment.path(LOG)
        size = self._disk.size(path)
        # What the checkpoint says of batches from here on may be of a history that was cut.
        log.epochs.truncate_from_end(segment.base_offset)
        # Compaction leaves holes, but only below the recovery point.
        found = scan(
            segment,
            size,
            expected=segment.base_offset,
            contiguous=not log.config.compacts,
            epochs=log.epochs,
        )
        self._report.segments_scanned += 1
        log.segments.append(segment)
        log.end_offset = found.end_offset
        if found.end_position < size:
            file = segment.open()
            file.truncate(found.end_position)
            file.sync()
            if not (found.rest_is_zeros and log.config.preallocate):
                self._report.bytes_cut += size - found.end_position
                logger.warning(
                    "%s: cut %d bytes after offset %d that are not a sound batch",
                    path,
                    size - found.end_position,
                    found.end_offset - 1,
                )
        if self._flush_failed:
            _rewrite(segment, 0)
        elif log.config.flush_messages == 1:
            # The process may have been killed after a sync that failed, before it could leave its mark.
            unsafe = segment.locate(self._disk, self._recovery_point)
            if unsafe is not None:
                _rewrite(segment, unsafe[0])
        if following is None:
            return True
        if found.end_offset != following:
            # A gap here is the lost end of this segment: what follows was never acknowledged as durable.
            return False
        log.sealed_by_recovery(segment)
        return True

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._report.segments_dropped += 1
            size = self._disk.size(segment.path(LOG))
            self._report.bytes_cut += size
            logger.warning(
                "%s: dropped with %d bytes, because the log is cut before it", segment.path(LOG), size
            )
        self._log.remove_files(segments)
        self._disk.sync_dir(self._log.folder)

    def _make_durable(self) -> None:
        """Before it is served, where being served means being on disk."""
        log = self._log
        if self._clean or not (self._flush_failed or (log.config.flush_messages == 1 and log.unflushed)):
            return
        flush = log.prepare_flush()
        flush.run()
        log.flushed(flush, self._now_ms)
        if self._flush_failed:
            self._disk.remove(f"{log.folder}/{FLUSH_FAILED}")

    # ---- producers

    def _load_producers(self) -> None:
        """The newest usable snapshot, then every batch after it."""
        log, disk = self._log, self._disk
        stems = [name[:_NAME_DIGITS] for name in disk.list(log.folder) if name[_NAME_DIGITS:] == SNAPSHOT]
        replay_from = log.segments[0].base_offset
        removed = False
        for offset in sorted((int(stem) for stem in stems if stem.isdigit()), reverse=True):
            path = f"{log.folder}/{file_name(offset, SNAPSHOT)}"
            if offset > log.end_offset:  # of records that were cut
                disk.remove(path)
                removed = True
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
                removed = True
                log.snapshots.clear()
        if removed:
            # Else a later power loss could bring one back, among records that it knows nothing of.
            disk.sync_dir(log.folder)
        if replay_from >= log.end_offset:
            return
        for segment in log.segments[log.segment_index(replay_from) :]:
            try:
                self._replay_segment(segment, replay_from)
            except CorruptionError as error:
                logger.error("some of the producers of %s are not remembered: %s", log.name, error)

    def _replay_segment(self, segment: Segment, replay_from: int) -> None:
        found = segment.locate(self._disk, replay_from)
        if found is not None:
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
            logger.error(
                "%s: the marker at offset %d makes no sense: %s", self._log.name, header.base_offset, error
            )


def _rewrite(segment: Segment, start: int) -> None:
    """Make pages dirty again that a failed fsync left marked clean, so that the next sync writes them."""
    file = segment.open()
    for position in range(start, segment.size, _COPY_BYTES):
        file.pwrite(file.pread(min(_COPY_BYTES, segment.size - position), position), position)
