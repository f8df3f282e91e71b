"""The work of making a log durable up to its end: which files are synced, and which are replaced, in order.

It is prepared on the loop and run in a thread, so it holds what it needs: open files, encoded indexes, and a
guard, which keeps it from touching a directory that has meanwhile been closed, deleted or given to another topic.
It decides nothing and knows no offsets but those it carries.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from flintmq.effects import Disk, File, write_atomically, write_plainly
from flintmq.errors import StorageError
from flintmq.records.uuids import decode_uuid, encode_uuid
from flintmq.storage.aborted_transactions import encode_aborted
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment

logger: Final = logging.getLogger(__name__)

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
METADATA_FILE: Final = "partition.metadata"
FLUSH_FAILED: Final = "flush-failed"
"""Left in a directory by a failed fsync, for the next process on this machine.

The kernel marks pages clean that never reached the disk, and serves them from memory until it is rebooted.
A process that finds this file rewrites what it found above the recovery point. It need not be durable: a
reboot takes the pages and the file alike.
"""


NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
"""No file can be opened just now: clients hold too many connections. Nothing was written, and it will pass."""


class NoSpace(StorageError):
    """A file could not be opened or written for want of room; nothing is lost by trying again."""


class CloseGuard:
    """Open while the directory is this log's. A thread replaces files only inside it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self.syncing = threading.Lock()
        """Held by a flush. The one at a stop waits for it: of two syncs of one file only one is told of an error."""
        self.sync_failed = False
        self.generation = 0
        """Raised when the log is truncated: what was prepared before writes nothing from then on."""

    def close(self) -> None:
        """Wait until nobody is inside, and let nobody in again."""
        with self._lock:
            self._closed = True

    @contextmanager
    def entered(self) -> Iterator[bool]:
        """Whether the directory is still this log's, which it stays until the end of the block."""
        with self._lock:
            yield not self._closed

    def replace(
        self,
        disk: Disk,
        path: str,
        data: bytes,
        segment: Segment | None = None,
        generation: int | None = None,
    ) -> None:
        """Replace a file atomically, unless it is no longer this log's or its segment is gone.

        Nor is it replaced by what was prepared in an earlier `generation`.
        """
        with self.entered() as is_mine:
            if not is_mine or (segment is not None and segment.removed):
                return
            if generation is not None and generation != self.generation:
                return
            try:
                write_atomically(disk, path, data)
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise NoSpace(f"No space left for {path}.") from error
                raise

    def write_empty(self, disk: Disk, path: str) -> None:
        """Write an empty file, unless the directory is no longer this log's."""
        with self.entered() as is_mine:
            if is_mine:
                write_plainly(disk, path, b"")


class SealedSegment(NamedTuple):
    """A segment that is complete but not yet flushed, with the contents of its index files."""

    segment: Segment
    file: File | None
    """Held from the last write on, so that no writeback error goes by unseen; None after recovery."""
    positions: bytes
    times: bytes


def sync_sealed(disk: Disk, close_guard: CloseGuard, sealed: SealedSegment, generation: int) -> None:
    """Sync a sealed segment and write its indexes, unless it is removed meanwhile."""
    segment, file, positions, times = sealed
    is_removed = segment.removed
    if is_removed:
        return
    try:
        file = file or disk.open(segment.path(LOG))
    except FileNotFoundError:
        if segment.removed:
            return
        raise
    file.sync()
    # ORDER: aborted transactions come first, for where there is no file of them a start that finds the indexes
    # takes it that there are none.
    if segment.aborted:
        close_guard.replace(
            disk, segment.path(TXN_INDEX), encode_aborted(segment.aborted), segment, generation
        )
    close_guard.replace(disk, segment.path(INDEX), positions, segment, generation)
    close_guard.replace(disk, segment.path(TIME_INDEX), times, segment, generation)


class Flush:
    """Files to sync, away from the loop. Holding them keeps their descriptors open."""

    def __init__(
        self,
        *,
        disk: Disk,
        close_guard: CloseGuard,
        directory: str,
        end_offset: int,
        active: Segment,
        sealed: list[SealedSegment],
        snapshot: str | None,
        snapshot_offset: int,
        metadata: bytes,
        epochs: bytes,
        names_are_durable: bool,
    ) -> None:
        self.generation = close_guard.generation
        self.end_offset = end_offset
        self.segment_base = active.base_offset
        self.sealed = sealed
        self.snapshot_offset = snapshot_offset
        self._snapshot = snapshot
        self._file = active.open()
        self._disk = disk
        self._close_guard = close_guard
        self._directory = directory
        self._metadata = metadata
        self._epochs = epochs
        self._names_are_durable = names_are_durable

    def run(self) -> None:
        """ORDER: data before the indexes that point into it, both before the names that lead to them."""
        with self._close_guard.syncing:
            self.sync()

    def sync(self) -> None:
        """Do what `run` does. The caller holds `syncing`."""
        if self.generation != self._close_guard.generation:
            # The log was truncated: some of the files are gone, and the others were synced then.
            return
        try:
            if self._snapshot is not None:
                self._sync_snapshot(self._snapshot)
            for sealed in self.sealed:
                self._sync_sealed(sealed)
            self._file.sync()
            if not self._names_are_durable:
                self._replace(f"{self._directory}/{METADATA_FILE}", self._metadata)
                self._replace(f"{self._directory}/{EPOCHS_FILE}", self._epochs)
                self._disk.sync_dir(self._directory.rpartition("/")[0])
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                # An open, for no sync fails like that.
                raise NoSpace(f"No descriptor is left for the files of {self._directory}.") from error
            self._close_guard.sync_failed = True
            self._write_failure_mark()
            raise

    def run_at_shutdown(self) -> None:
        """The same with far fewer waits, for a caller that syncs the volume before it relies on any name.

        The data itself is synced file by file all the same: only that reports errors.
        """
        with self._close_guard.syncing:
            if self._close_guard.sync_failed:
                raise StorageError(f"A sync in {self._directory} has failed.")
            self._run_at_shutdown()

    def _run_at_shutdown(self) -> None:
        try:
            for sealed in self.sealed:
                segment, file, positions, times = sealed
                if segment.removed:
                    continue
                if file is None:
                    # Scanned at the start, perhaps below the recovery point: the next start trusts what it finds.
                    self._sync_sealed(sealed)
                    continue
                file.sync()
                if segment.aborted:
                    write_plainly(self._disk, segment.path(TXN_INDEX), encode_aborted(segment.aborted))
                write_plainly(self._disk, segment.path(INDEX), positions)
                write_plainly(self._disk, segment.path(TIME_INDEX), times)
            self._file.sync()
        except OSError:
            self._write_failure_mark()
            raise

    def sync_data(self) -> None:
        """What needs no room on the disk: the batches, the topic's id, and the names."""
        for sealed in self.sealed:
            (sealed.file or self._disk.open(sealed.segment.path(LOG))).sync()
        self._file.sync()
        self._disk.open(f"{self._directory}/{METADATA_FILE}").sync()
        self._disk.sync_dir(self._directory)
        self._disk.sync_dir(self._directory.rpartition("/")[0])

    def _sync_sealed(self, sealed: SealedSegment) -> None:
        sync_sealed(self._disk, self._close_guard, sealed, self.generation)

    def _replace(self, path: str, data: bytes) -> None:
        self._close_guard.replace(self._disk, path, data, generation=self.generation)

    def _sync_snapshot(self, path: str) -> None:
        with self._close_guard.entered() as is_mine:
            if not is_mine:
                return
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
            self._disk.sync_dir(self._directory)

    def _write_failure_mark(self) -> None:
        try:
            self._close_guard.write_empty(self._disk, f"{self._directory}/{FLUSH_FAILED}")
        except OSError as error:
            logger.error("%s/%s could not be written either: %s", self._directory, FLUSH_FAILED, error)


def encode_metadata(topic_id: bytes) -> bytes:
    """Kafka's `partition.metadata`: which topic a directory belongs to, whatever its name says."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def decode_metadata(data: bytes) -> bytes | None:
    """The topic id, or None if the file makes no sense."""
    fields = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
    return decode_uuid(fields.get("topic_id", ""))
