"""Opening a log from its directory. Only CRCs are trusted.

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
from dataclasses import dataclass, field

from flintmq.effects import ASIDE, read_file
from flintmq.errors import CorruptionError
from flintmq.metrics import LogCounters
from flintmq.settings import TopicConfig
from flintmq.storage.compaction.swap import resume_swap
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.durability.flush import EPOCHS_FILE, FLUSH_FAILED, NoSpace, SealedSegment
from flintmq.storage.indexes import OffsetIndex, TimeIndex
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.limits import LOG_LIMITS, LogLimits
from flintmq.storage.log import Log
from flintmq.storage.log_state import LogState
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.recovery.index_files import (
    index_files_are_sound,
    load_aborted,
    read_first_timestamp,
    read_max_timestamp,
    rebuild_epochs,
)
from flintmq.storage.recovery.segment_scan import SegmentScan, scan
from flintmq.storage.recovery.state_replay import replay
from flintmq.storage.segment import (
    CUT,
    INDEX,
    LOG,
    NAME_DIGITS,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    file_name,
)
from flintmq.storage.truncation.notes import NOTE_FILE, apply_cut, read_note

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """What opening one log found and did."""

    bytes_cut: int = 0
    segments_scanned: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0
    quarantined: list[CorruptRange] = field(default_factory=list)


def open_log(
    partition_dir: PartitionDir,
    config: TopicConfig,
    *,
    clean: bool,
    recovery_point: int,
    start_offset: int,
    now_ms: int,
    first_dirty_offset: int = 0,
    high_watermark: int | None = None,
    counters: LogCounters | None = None,
    limits: LogLimits = LOG_LIMITS,
) -> tuple[Log, RecoveryReport]:
    """Build a log from what its directory holds.

    With a `high_watermark` it is the log of a replica: only what lies below that is visible, and it may have holes
    anywhere, if it is a copy of a log that was compacted. Without one all of it is visible.
    """
    loader = LogLoader(
        partition_dir,
        config,
        clean=clean,
        recovery_point=recovery_point,
        first_dirty_offset=first_dirty_offset,
        high_watermark=high_watermark,
        now_ms=now_ms,
        limits=limits,
    )
    state, report = loader.load(start_offset)
    log = Log(partition_dir, config, state, counters=counters, limits=limits)
    if not log.segments:
        log.add_segment(log.end_offset, now_ms)
    if log.active.offset_index is None:
        raise AssertionError(f"{log.name} has no active segment")
    if loader.ends_in_gap:
        log.roll(now_ms)
    loader.make_durable(log)
    if high_watermark is None:
        log.advance(log.end_offset)
    else:
        log.recover_visibility(state.high_watermark, state.ended)
    return log, report


class LogLoader:
    def __init__(
        self,
        partition_dir: PartitionDir,
        config: TopicConfig,
        *,
        clean: bool,
        recovery_point: int,
        first_dirty_offset: int,
        high_watermark: int | None,
        now_ms: int,
        limits: LogLimits,
    ) -> None:
        self._dir = partition_dir
        self._disk = partition_dir.disk
        self._config = config
        self._clean = clean
        self._recovery_point = recovery_point
        self._now_ms = now_ms
        self._report = RecoveryReport()
        self._state = LogState(
            snapshots=ProducerSnapshots(self._disk, partition_dir.path, limits=limits),
            last_flush_ms=now_ms,
            first_dirty_offset=first_dirty_offset,
        )
        self.ends_in_gap = False
        """Whether the log goes on after offsets that its last segment does not hold."""
        self._high_watermark = high_watermark
        self._scan_bytes = limits.scan_bytes
        self._flush_failed = False
        self._last_is_sound = self._epochs_are_lost = False
        # Names of the `.txnindex` files that there are.
        self._aborted_files: set[str] = set()
        # Segments whose aborted transactions are not known before the producers are, and where the first begins
        # that has markers.
        self._scanned: dict[int, Segment] = {}
        self._first_marked: int | None = None

    def load(self, start_offset: int) -> tuple[LogState, RecoveryReport]:
        state = self._state
        bases = self._list_segments()
        if state.has_truncation_note:
            start_offset, bases = self._apply_note(bases)
        bases = self._remove_obsolete(bases, start_offset)
        self._load_epochs(max(start_offset, bases[0]) if bases else start_offset)
        for at, base in enumerate(bases):
            following = bases[at + 1] if at + 1 < len(bases) else None
            segment = self._new_segment(base)
            if following is not None and (self._clean or following <= self._recovery_point):
                self._load_sealed(segment, following)
            elif following is None and self._clean and self._load_active(segment):
                pass
            elif not self._recover(segment, following):
                self._drop_segments([self._new_segment(later) for later in bases[at + 1 :]])
                break
        if state.segments and start_offset > state.end_offset:
            # The start moved durably, the records it moved over were lost unsynced: nothing below it may return.
            self._drop_segments(state.segments)
            state.segments, state.sealed, state.corrupt = [], [], []
        if state.segments:
            state.start_offset = max(start_offset, state.segments[0].base_offset)
        else:
            state.start_offset = state.end_offset = start_offset
        state.epochs.truncate_from_start(state.start_offset)
        state.epochs.truncate_from_end(state.end_offset)
        self._end_in_gap()
        state.recovery_point = (
            state.end_offset if self._clean else min(self._recovery_point, state.end_offset)
        )
        state.snapshots.load(state.end_offset)
        self._replay()
        if self._must_be_durable and not self._clean:
            # As it is done for segments: a sync may have failed in the process before.
            state.snapshots.rewrite()
        self._remove_obsolete_aborted()
        return state, self._report

    def _end_in_gap(self) -> None:
        """Let the log end where a truncation did that a crash left without its new segment.

        All below was synced, so that offsets which are missing at the end of a sound file were compacted away. They
        must not be given to other records.
        """
        state = self._state
        if state.has_truncation_note and self._last_is_sound and state.end_offset < self._recovery_point:
            self.ends_in_gap = bool(state.segments)
            state.end_offset = self._recovery_point

    def _replay(self) -> None:
        state = self._state
        if self._high_watermark is not None:
            state.high_watermark = max(state.start_offset, min(self._high_watermark, state.end_offset))
        state.producers, state.ended = replay(
            state.segments,
            state.snapshots,
            self._dir,
            first_offset=state.segments[0].base_offset if state.segments else state.start_offset,
            end_offset=state.end_offset,
            scanned=self._scanned,
            first_marked=self._first_marked,
            ended_from=None if self._high_watermark is None else state.high_watermark,
        )

    def _apply_note(self, bases: list[int]) -> tuple[int, list[int]]:
        """Take the note about a truncation for more recent than the checkpoints.

        Return the start of the log and its segments: if it began again, nothing below its start is left or known.
        """
        note, state = read_note(self._disk, self._dir.path), self._state
        self._recovery_point = note.recovery_point
        state.first_dirty_offset = min(state.first_dirty_offset, note.recovery_point)
        start = note.start_offset
        if not note.restarts:
            return start, bases
        self._dir.remove_files(self._new_segment(base) for base in bases if base < start)
        state.snapshots.remove_up_to(start)
        self._disk.sync_dir(self._dir.path)
        return start, [base for base in bases if base >= start]

    @property
    def _must_be_durable(self) -> bool:
        """Whether what was found may be served only once it is surely on disk."""
        return self._flush_failed or self._config.flush_messages == 1

    def _new_segment(self, base_offset: int) -> Segment:
        return self._dir.new_segment(base_offset, self._config, self._now_ms)

    def _list_segments(self) -> list[int]:
        """Return the base offsets of the segments. Files that were set aside or belong to no segment are removed."""
        directory = self._dir.path
        names = self._disk.list(directory)
        if resume_swap(self._disk, directory, names):
            names = self._disk.list(directory)
        if any(name.endswith(SNAPSHOT + ASIDE) for name in names):
            self._disk.sync_dir(directory)
        present = set(names)
        self._flush_failed = FLUSH_FAILED in present
        self._state.has_truncation_note = NOTE_FILE in present
        bases = []
        has_cuts = False
        for name in names:
            stem, dot, suffix = name.partition(".")
            is_numbered = stem.isdigit() and len(stem) == NAME_DIGITS
            if is_numbered and dot + suffix == TXN_INDEX:
                self._aborted_files.add(name)
            if name.endswith(ASIDE) or (
                is_numbered and dot + suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem + LOG not in present
            ):
                self._disk.remove(f"{directory}/{name}")
            elif is_numbered and dot + suffix == LOG:
                bases.append(int(stem))
            elif is_numbered and dot + suffix == CUT:
                has_cuts = True
                if stem + LOG in present:
                    apply_cut(self._disk, self._new_segment(int(stem)))
                else:
                    self._disk.remove(f"{directory}/{name}")
        if has_cuts:
            # ORDER: the notes are gone from the disk BEFORE a segment of their names can grow.
            self._disk.sync_dir(directory)
        return sorted(bases)

    def _remove_obsolete(self, bases: list[int], start_offset: int) -> list[int]:
        """Remove segments below the start, whose removal a crash undid in part: gaps between them mean nothing."""
        obsolete = 0
        while obsolete + 1 < len(bases) and bases[obsolete + 1] <= start_offset:
            obsolete += 1
        self._dir.remove_files([self._new_segment(base) for base in bases[:obsolete]])
        return bases[obsolete:]

    # ---- leader epochs

    def _load_epochs(self, first_offset: int) -> None:
        path = f"{self._dir.path}/{EPOCHS_FILE}"
        if not self._disk.exists(path):
            self._epochs_are_lost = True
            return
        try:
            epochs = LeaderEpochs.decode(read_file(self._disk, path))
            if epochs.first_offset <= first_offset:
                self._state.epochs = epochs
            else:
                # Records were about to be deleted; the epochs below the new start were written without them.
                self._epochs_are_lost = True
        except CorruptionError as error:
            self._epochs_are_lost = True
            logger.warning("%s: %s It is rebuilt from the batches.", path, error)

    # ---- taking files as they are

    def _load_sealed(self, segment: Segment, following: int) -> None:
        """A segment below the recovery point: on stable storage once, its indexes in files."""
        state = self._state
        segment.size = size = self._disk.size(segment.path(LOG))
        # One that ends at the recovery point may have been sealed after the flush that brought it there: then
        # its index files, if there are any, are those of an earlier stop.
        indexed = self._clean or following < self._recovery_point
        if (
            indexed
            and index_files_are_sound(self._disk, segment, following)
            and (not self._epochs_are_lost or rebuild_epochs(state.epochs, segment))
            and self._load_aborted(segment, following)
        ):
            read_max_timestamp(self._disk, segment)
            if self._config.compacts:
                read_first_timestamp(segment)
            segment.drop_indexes()
            state.segments.append(segment)
            state.end_offset = following
            return
        if indexed:
            self._report.indexes_rebuilt += 1
            logger.warning("the indexes of %s are missing or damaged; rebuilding them", segment.path(LOG))
        self._report.segments_scanned += 1
        found = scan(
            segment,
            size,
            expected=segment.base_offset,
            following=following,
            contiguous=False,
            epochs=state.epochs,
            chunk_bytes=self._scan_bytes,
        )
        self._note_scanned(segment, found)
        state.segments.append(segment)
        state.end_offset = following
        # Behind the last batch there may still be what was preallocated: a power loss undid that it was cut.
        if found.end_offset == following or (found.end_position == size and found.end_offset < following):
            if found.end_position < size:
                # ORDER: BEFORE its indexes are there again, by which the next start takes the file as it is.
                file = segment.open()
                file.truncate(found.end_position)
                file.sync()
            self._seal(segment)
            return
        bad = CorruptRange(found.end_offset, following)
        state.corrupt.append(bad)
        self._report.quarantined.append(bad)
        logger.error(
            "%s is damaged at byte %d: offsets %d to %d are refused with CORRUPT_MESSAGE; the rest is served",
            segment.path(LOG),
            found.end_position,
            bad.base_offset,
            bad.end_offset - 1,
        )

    def _load_aborted(self, segment: Segment, following: int) -> bool:
        """The aborted transactions of a segment that is not scanned; False if their file makes no sense."""
        if file_name(segment.base_offset, TXN_INDEX) not in self._aborted_files:
            return True
        return load_aborted(self._disk, segment, following)

    def _note_scanned(self, segment: Segment, found: SegmentScan) -> None:
        self._scanned[segment.base_offset] = segment
        if found.has_markers and self._first_marked is None:
            self._first_marked = segment.base_offset

    def _remove_obsolete_aborted(self) -> None:
        """The files about aborted transactions in segments that turned out to have none.

        ORDER: where there are some the old file, whatever it says, is there until a flush replaces it. Without one
        a start that need not scan the segment takes it that there are none.
        """
        for segment in self._scanned.values():
            name = file_name(segment.base_offset, TXN_INDEX)
            if not segment.aborted and not segment.removed and name in self._aborted_files:
                self._disk.remove(segment.path(TXN_INDEX))

    def _load_active(self, segment: Segment) -> bool:
        """After a clean stop: the indexes from their files, then a walk over the few batches behind them."""
        disk = self._disk
        segment.size = end = disk.size(segment.path(LOG))
        if not index_files_are_sound(self._disk, segment, None):
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
            read_first_timestamp(segment)
            if self._epochs_are_lost and not rebuild_epochs(self._state.epochs, segment):
                raise CorruptionError("Its batches make no sense.")
            if not self._load_aborted(segment, end_offset):
                raise CorruptionError("Its index of aborted transactions makes no sense.")
        except CorruptionError as error:
            logger.warning("%s: %s Scanning it.", segment.path(LOG), error)
            return False
        segment.set_indexes(offsets, times)
        read_max_timestamp(self._disk, segment)
        self._state.segments.append(segment)
        self._state.end_offset = end_offset
        return True

    # ---- scanning

    def _recover(self, segment: Segment, following: int | None) -> bool:
        """Scan a segment that may not have reached the disk; False if the log ends in it."""
        state, config = self._state, self._config
        path = segment.path(LOG)
        size = self._disk.size(path)
        # What the checkpoint says of batches from here on may be of a history that was cut.
        state.epochs.truncate_from_end(segment.base_offset)
        # Compaction leaves holes, but only below the recovery point. A follower copies them with what is around
        # them, whatever the policy of the topic is by then.
        found = scan(
            segment,
            size,
            expected=segment.base_offset,
            following=following,
            contiguous=not config.compacts and self._high_watermark is None,
            epochs=state.epochs,
            chunk_bytes=self._scan_bytes,
        )
        self._report.segments_scanned += 1
        self._note_scanned(segment, found)
        state.segments.append(segment)
        state.end_offset = found.end_offset
        if found.end_position < size:
            file = segment.open()
            file.truncate(found.end_position)
            file.sync()
            if not (found.rest_is_zeros and config.preallocate):
                self._report.bytes_cut += size - found.end_position
                logger.warning(
                    "%s: cut %d bytes after offset %d that are not a sound batch",
                    path,
                    size - found.end_position,
                    found.end_offset - 1,
                )
        if self._flush_failed:
            segment.rewrite(0)
        elif config.flush_messages == 1:
            # The process may have been killed after a sync that failed, before it could leave its mark.
            unsafe = segment.locate(self._disk, self._recovery_point)
            if unsafe is not None:
                segment.rewrite(unsafe[0])
        if following is None:
            self._last_is_sound = found.end_position == size
            return True
        if found.end_offset != following:
            # A gap here is the lost end of this segment: what follows was never acknowledged as durable.
            return False
        self._seal(segment)
        return True

    def _seal(self, segment: Segment) -> None:
        """A scanned segment with others after it: its index files are written with the next flush."""
        self._state.sealed.append(SealedSegment(segment, None, *segment.seal()))

    def _drop_segments(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._report.segments_dropped += 1
            size = self._disk.size(segment.path(LOG))
            self._report.bytes_cut += size
            logger.warning(
                "%s: dropped with %d bytes, because the log is cut before it", segment.path(LOG), size
            )
        self._dir.remove_files(segments)
        self._disk.sync_dir(self._dir.path)

    # ---- durability

    def make_durable(self, log: Log) -> None:
        """Sync the log before it is served, where being served means being on disk."""
        if self._clean or not (self._flush_failed or (self._must_be_durable and log.unflushed)):
            return
        flush = log.prepare_flush()
        try:
            flush.run()
        except NoSpace:
            # What needs room is written by the next flush; what is served must be safe now.
            flush.sync_data()
            return
        log.flushed(flush, self._now_ms)
        if self._flush_failed:
            self._disk.remove(f"{self._dir.path}/{FLUSH_FAILED}")
