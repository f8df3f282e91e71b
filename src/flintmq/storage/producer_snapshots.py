"""The producer snapshots of one log: files that hold its producer state as it was at an offset.

Recovery begins with the newest usable snapshot and replays the batches after it. A snapshot is written when a segment
is rolled and when the log is closed; it is on stable storage with the next flush. Compaction drops batches that a
replay would need, so the newest durable snapshot is never pruned.
"""

from __future__ import annotations

import logging
from typing import Final

from flintmq.effects import ASIDE, Disk, read_file, write_plainly
from flintmq.errors import CorruptionError
from flintmq.storage.limits import LOG_LIMITS, LogLimits
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import NAME_DIGITS, SNAPSHOT, file_name

logger: Final = logging.getLogger(__name__)


class ProducerSnapshots:
    def __init__(self, disk: Disk, directory: str, *, limits: LogLimits = LOG_LIMITS) -> None:
        self.offsets: list[int] = []
        """End offsets of the snapshots in the directory, ascending."""
        self.durable_offset = -1
        """The newest that is on stable storage."""
        self._syncing_offset = -1
        self._disk = disk
        self._directory = directory
        self._limits = limits

    @property
    def newest(self) -> int:
        """The end offset of the newest snapshot; -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT)}"

    def write(self, producers: ProducerState, end_offset: int, high_watermark: int | None = None) -> None:
        """Write a snapshot unless there is one of `end_offset`, and prune old ones.

        The newest at or below the high watermark, which is the end unless given, stays: a truncation goes back to it.

        A failure is only logged: recovery replays from an older snapshot, or from the start.
        """
        if self.newest == end_offset:
            return
        path = self.path(end_offset)
        try:
            write_plainly(self._disk, path, producers.encode())
            self.offsets.append(end_offset)
            self._prune(end_offset if high_watermark is None else high_watermark)
        except OSError as error:
            logger.warning("the producer snapshot %s could not be written: %s", path, error)

    def _prune(self, high_watermark: int) -> None:
        needed = max((offset for offset in self.offsets if offset <= high_watermark), default=0)
        for offset in self.offsets[: -self._limits.snapshots_kept]:
            if offset < needed and offset not in (self.durable_offset, self._syncing_offset):
                self.offsets.remove(offset)
                self._disk.remove(self.path(offset))

    def begin_sync(self) -> int:
        """Return the newest snapshot if a flush has to sync it, else -1. It is not pruned until `synced`."""
        newest = self.newest
        if newest <= self.durable_offset:
            return -1
        self._syncing_offset = newest
        return newest

    def synced(self, offset: int) -> None:
        """Note that the snapshot which `begin_sync` returned is on stable storage."""
        self.durable_offset = max(self.durable_offset, offset)

    # ---- truncation

    def up_to(self, end_offset: int) -> ProducerSnapshots:
        """Return the snapshots that a log truncated to `end_offset` keeps."""
        kept = ProducerSnapshots(self._disk, self._directory, limits=self._limits)
        kept.offsets = [offset for offset in self.offsets if offset <= end_offset]
        kept.durable_offset = self.durable_offset if self.durable_offset <= end_offset else -1
        return kept

    # ---- recovery

    def load(self, end_offset: int) -> None:
        """List the snapshots in the directory; remove those of records that were cut off after `end_offset`."""
        names = self._disk.list(self._directory)
        stems = [name[:NAME_DIGITS] for name in names if name[NAME_DIGITS:] == SNAPSHOT]
        for offset in sorted(int(stem) for stem in stems if stem.isdigit()):
            if offset <= end_offset:
                self.offsets.append(offset)
            else:
                self._remove_durably(offset)

    def remove_up_to(self, offset: int) -> None:
        """Remove the snapshots in the directory that know of nothing from `offset` on."""
        for name in self._disk.list(self._directory):
            if name[NAME_DIGITS:] == SNAPSHOT and int(name[:NAME_DIGITS]) <= offset:
                self._disk.remove(f"{self._directory}/{name}")

    def newest_between(self, first: int, last: int) -> tuple[ProducerState, int]:
        """Return the newest usable snapshot from `first` to `last` with its offset; without one, no producers.

        One older than the first segment is of no use: it tells of nothing that is left, and a transaction that it
        calls open may have ended among the deleted records.
        """
        for offset in [offset for offset in reversed(self.offsets) if first <= offset <= last]:
            path = self.path(offset)
            try:
                data = read_file(self._disk, path)
                return ProducerState.decode(data, producers_max=self._limits.producers_max), offset
            except CorruptionError as error:
                logger.warning("%s: %s Replaying from an older one.", path, error)
                self.offsets.remove(offset)
                self._remove_durably(offset)
        return ProducerState(producers_max=self._limits.producers_max), first

    def _remove_durably(self, offset: int) -> None:
        """ORDER: the name is gone from the disk BEFORE anything is written, else a power loss could bring it back
        among records that it knows nothing of. A process killed in between leaves a file set aside, by which the
        next one sees that the directory must be synced.
        """
        path = self.path(offset)
        self._disk.rename(path, path + ASIDE)
        self._disk.sync_dir(self._directory)
        self._disk.remove(path + ASIDE)

    def rewrite(self) -> None:
        """Make pages dirty again that a failed fsync left marked clean, so that the next sync writes them."""
        for offset in self.offsets:
            file = self._disk.open(self.path(offset))
            try:
                file.pwrite(file.pread(file.size(), 0), 0)
            finally:
                file.close()
