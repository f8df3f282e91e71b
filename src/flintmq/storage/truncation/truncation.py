"""One truncation: where a log is cut, and what becomes of its files, away from the loop.

The log prepares it on the loop, where end, high watermark and epochs are at once those of the shorter log; `run` does
the slow part in a thread; the log takes over its results on the loop. In between nothing is appended or flushed.

The last kept segment is not cut in its file (`notes` has the reason) and never grows again: a new segment begins at
the new end. So what a truncation costs does not depend on how large segments are.

    all below the end synced · note written · segments removed, the newest first · `.cut` written ·
    new segment created · indexes, snapshot, epochs and names synced

Invariant: a crash after any of these steps leaves a prefix of the log as it was, at least up to the new end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flintmq.effects import Disk, File
from flintmq.errors import StorageError
from flintmq.settings import TopicConfig
from flintmq.storage.compaction.swap import settle_swap
from flintmq.storage.durability.flush import (
    EPOCHS_FILE,
    NO_SPACE,
    Flush,
    NoSpace,
    SealedSegment,
    encode_metadata,
    sync_sealed,
)
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.recovery.state_replay import replay
from flintmq.storage.segment import TXN_INDEX, Segment, segment_index
from flintmq.storage.truncation.notes import TruncationNote, write_cut, write_note

_NOBODY: Final = ProducerState()


class CutPosition(NamedTuple):
    segment: int
    """The index of the segment in which the log is cut."""
    position: int
    """Where in that segment the first batch begins that goes; its size if none does."""
    end_offset: int


def find_cut(segments: Sequence[Segment], disk: Disk, offset: int) -> CutPosition:
    """Find where a log is cut so that it ends at `offset`, or before the batch that holds it."""
    index = segment_index(segments, offset)
    found = segments[index].locate(disk, offset)
    if found is None:
        return CutPosition(index, segments[index].size, offset)
    position, header = found
    return CutPosition(index, position, min(offset, header.base_offset))


class KeptSegments(NamedTuple):
    segments: list[Segment]
    cut: Segment | None
    """The last of them, if it stands for one that was active or goes on after its end."""
    file: File | None
    """Of `cut`, if it was open: held, so that no writeback error is missed."""


class Truncation:
    def __init__(
        self,
        partition_dir: PartitionDir,
        config: TopicConfig,
        *,
        kept: KeptSegments,
        removed: list[Segment],
        active: Segment,
        sealed: list[SealedSegment],
        kept_snapshots: ProducerSnapshots,
        removed_snapshots: list[str],
        epochs_before: bytes,
        epochs: bytes,
        start_offset: int,
        high_watermark: int,
        restarts: bool,
    ) -> None:
        self.generation = partition_dir.close_guard.generation
        self.end_offset = active.base_offset
        self.restarts = restarts
        """Whether the log begins again, empty."""
        self.producers = _NOBODY
        """Those of the shorter log; known after `run`, like what follows."""
        self.ended: list[tuple[int, int]] = []
        self.flush: Flush | None = None
        self._dir = partition_dir
        self._disk = partition_dir.disk
        self._config = config
        self._kept = kept
        self._removed = removed
        self._active = active
        self._sealed = sealed
        self._snapshots = kept_snapshots
        self._removed_snapshots = removed_snapshots
        self._epochs_before = epochs_before
        self._epochs = epochs
        self._start_offset = start_offset
        self._high_watermark = high_watermark

    def run(self) -> None:
        """Do the work, in a thread. OSError, StorageError or CorruptionError if it fails.

        After NoSpace it may be run again: every step may be repeated.
        """
        guard = self._dir.close_guard
        # ORDER: a flush that runs has ended BEFORE; one that was prepared earlier writes nothing any more.
        with guard.syncing:
            if guard.sync_failed:
                raise StorageError(f"A sync in {self._dir.path} has failed.")
            try:
                self._run()
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise NoSpace(f"No space left to truncate {self._dir.name}.") from error
                raise

    def _run(self) -> None:
        sealed = list(self._sealed)
        cut = self._kept.cut
        if cut is not None:
            cut.cut_indexes(self._disk, self.end_offset)
            sealed.append(SealedSegment(cut, self._kept.file, *cut.seal()))
        segments = [*self._kept.segments, self._active]
        replayed = replay(
            segments,
            self._snapshots,
            self._dir,
            first_offset=segments[0].base_offset,
            end_offset=self.end_offset,
            ended_from=self._high_watermark,
        )
        self.producers, self.ended = replayed
        self._sync_kept()
        with self._dir.close_guard.entered() as is_mine:
            if not is_mine:
                return
            self._change_names()
        flush = self._flush(sealed)
        flush.sync()
        self.flush = flush

    def _sync_kept(self) -> None:
        """ORDER: the note says that all below the end is synced, so all that recovery takes from there without a scan
        is synced BEFORE: segments with their indexes, and the epochs of the log as it still is.
        """
        guard, cut = self._dir.close_guard, self._kept.cut
        try:
            for sealed in self._sealed:
                sync_sealed(self._disk, guard, sealed, self.generation)
            if cut is not None:
                (self._kept.file or cut.open()).sync()
        except OSError:
            guard.sync_failed = True
            raise
        guard.replace(
            self._disk, f"{self._dir.path}/{EPOCHS_FILE}", self._epochs_before, generation=self.generation
        )

    def _change_names(self) -> None:
        disk, directory = self._disk, self._dir.path
        # ORDER: a compaction in progress is settled BEFORE, else its note would remove segments by names that new
        # segments get.
        settle_swap(disk, directory)
        note = TruncationNote(
            recovery_point=self.end_offset, start_offset=self._start_offset, restarts=self.restarts
        )
        write_note(disk, directory, note)
        for segment in reversed(self._removed):
            self._dir.remove_unguarded(segment)
        for path in self._removed_snapshots:
            if disk.exists(path):
                disk.remove(path)
        cut = self._kept.cut
        if cut is not None:
            write_cut(disk, cut)
            if not cut.aborted and disk.exists(cut.path(TXN_INDEX)):
                disk.remove(cut.path(TXN_INDEX))
        # ORDER: all of this is durable BEFORE a segment of the same name as a removed one is there.
        disk.sync_dir(directory)
        self._dir.create_file(self._active, self._config)

    def _flush(self, sealed: list[SealedSegment]) -> Flush:
        self._snapshots.write(self.producers, self.end_offset, self._high_watermark)
        snapshot_offset = self._snapshots.begin_sync()
        return Flush(
            disk=self._disk,
            close_guard=self._dir.close_guard,
            directory=self._dir.path,
            end_offset=self.end_offset,
            active=self._active,
            sealed=sealed,
            snapshot=self._snapshots.path(snapshot_offset) if snapshot_offset >= 0 else None,
            snapshot_offset=snapshot_offset,
            metadata=encode_metadata(self._dir.topic_id),
            epochs=self._epochs,
            names_are_durable=False,
        )
