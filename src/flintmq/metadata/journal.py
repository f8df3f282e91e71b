"""The two files of the local metadata store: `journal`, an entry per revision, and `snapshot`, all items.

    journal    "FMQJ" version 0 0 0, then entries
    entry      mark, payload length, CRC32C (of position, length and payload); payload:
               revision, synced position, item count, items
    snapshot   "FMQS" version 0 0 0, CRC32C of the rest, revision, item count, items
    item       key length, kind (0 deleted, 1 put), revision, lease, value length; key, value

Invariant: what `append` returned for is found by every later `open`, in order, whole.

An entry carries the position up to which the journal was synced before it was written. So a hole can be
judged: entries of one unsynced append may survive a power loss in any combination, and such a tail is cut;
but a bad entry below the synced position of a later good one was once safe and is damage, which is refused.
The position under the CRC keeps bytes that were once an entry elsewhere from being taken for one.

Everything here blocks. It must not know of expectations, leases' lives or watchers.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flintmq.effects import Disk, File, read_file, write_atomically
from flintmq.errors import CorruptionError, StorageError
from flintmq.metadata.store import StoreChange, StoreItem
from flintmq.records.checksum import crc32c

log = logging.getLogger(__name__)

VERSION = 1
_JOURNAL_MAGIC = b"FMQJ"
_SNAPSHOT_MAGIC = b"FMQS"
_FILE_HEADER = struct.Struct(">4sB3x")
_MARK = b"\xf1\x17\xe4\x7e"
_FRAME = struct.Struct(">4sII")
_CHECKED = struct.Struct(">QI")
_ENTRY = struct.Struct(">QQI")
_SNAPSHOT = struct.Struct(">IQI")
_ITEM = struct.Struct(">IBQQI")


@dataclass(frozen=True, slots=True)
class RecoveredJournal:
    """What the files said: the snapshot's items, then the changes after its revision, one by one."""

    revision: int
    items: dict[str, StoreItem]
    changes: list[StoreChange]


@dataclass(frozen=True, slots=True)
class _Entry:
    change: StoreChange
    synced: int
    end: int


class Journal:
    """The open files. One thread at a time; after any error it must not be used again."""

    def __init__(self, disk: Disk, directory: str, file: File, end: int) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self._end = end

    @classmethod
    def open(cls, disk: Disk, directory: str) -> tuple[Journal, RecoveredJournal]:
        """Read both files, creating the journal if there is none; what is returned is durable.

        The folder is made too, but its parent is the caller's: that must be safe on disk already.
        Raises CorruptionError where something that was once safe cannot be read.
        """
        journal_path, snapshot_path = f"{directory}/journal", f"{directory}/snapshot"
        if not disk.exists(journal_path):
            if disk.exists(snapshot_path):
                raise CorruptionError(
                    f"{journal_path} is missing beside {snapshot_path}, so changes may be lost: "
                    f"restore both files from one backup"
                )
            # ORDER: the folder's own name is safe before the journal exists, so a journal implies it.
            disk.makedirs(directory)
            disk.sync_dir(directory.rpartition("/")[0])
            write_atomically(disk, journal_path, _FILE_HEADER.pack(_JOURNAL_MAGIC, VERSION))
        revision, items = 0, dict[str, StoreItem]()
        if disk.exists(snapshot_path):
            revision, items = _decode_snapshot(snapshot_path, read_file(disk, snapshot_path))
        file = disk.open(journal_path)
        try:
            data = file.pread(file.size(), 0)
            entries, end = _scan(journal_path, data, revision)
            if end < len(data):
                log.warning(
                    "%s: cut %d bytes at position %d, the rest of a write that never finished",
                    journal_path,
                    len(data) - end,
                    end,
                )
            # ORDER: the snapshot's name is safe before the entries that it replaces are cut.
            disk.sync_dir(directory)
            if entries and entries[-1].change.revision <= revision:
                # A crash came while they were being cut. What is left must not stand before new ones.
                entries, end = [], _FILE_HEADER.size
            _settle(file, data, entries, end)
        except BaseException:
            file.close()
            raise
        changes = [entry.change for entry in entries if entry.change.revision > revision]
        return cls(disk, directory, file, end), RecoveredJournal(revision, items, changes)

    @property
    def size_bytes(self) -> int:
        """Of the entries alone."""
        return self._end - _FILE_HEADER.size

    def append(self, changes: Sequence[StoreChange]) -> None:
        """Write these and return once they are durable: one write, one sync."""
        synced = self._end
        position = synced
        frames = []
        for change in changes:
            frame = _encode_entry(change, position=position, synced=synced)
            frames.append(frame)
            position += len(frame)
        self._file.pwrite(b"".join(frames), synced)
        self._file.sync()
        self._end = position

    def snapshot(self, revision: int, items: Mapping[str, StoreItem]) -> int:
        """Write all items aside, then forget the entries they replace; the snapshot's size in bytes.

        ORDER: the snapshot is durable before the journal shrinks. A crash between leaves entries at or below
        the snapshot's revision, which `open` skips. The shrinking is durable before the next entry is
        written, so an old entry never stands after a new one.
        """
        data = _encode_snapshot(revision, items)
        write_atomically(self._disk, f"{self._directory}/snapshot", data)
        self._file.truncate(_FILE_HEADER.size)
        self._file.sync()
        self._end = _FILE_HEADER.size
        return len(data)

    def close(self) -> None:
        self._file.close()


def _settle(file: File, data: bytes, entries: Sequence[_Entry], end: int) -> None:
    """Make what was read durable before anybody relies on it, and cut the rest.

    The entries of the last append may be in the page cache only: its process was killed, or its fsync failed,
    after which the system calls the pages clean. So they are written again, and then synced.
    """
    if entries:
        synced = entries[-1].synced
        file.pwrite(data[synced:end], synced)
    if end < len(data):
        file.truncate(end)
    file.sync()


def _scan(path: str, data: bytes, snapshot_revision: int) -> tuple[list[_Entry], int]:
    """The entries that can be relied on, and where they end."""
    _check_header(path, data, _JOURNAL_MAGIC)
    position = _FILE_HEADER.size
    entries: list[_Entry] = []
    while (entry := _decode_entry(data, position)) is not None:
        expected = entries[-1].change.revision + 1 if entries else snapshot_revision + 1
        revision = entry.change.revision
        if entries and revision < expected:
            break  # written before a snapshot, and brought back by a file system that forgot the cut
        if revision > expected:
            raise CorruptionError(
                f"{path} has revision {revision} at position {position} where {expected} should be: "
                f"the journal and the snapshot beside it do not belong together; "
                f"restore both files from one backup"
            )
        entries.append(entry)
        position = entry.end
    candidate = data.find(_MARK, position + 1)
    while candidate >= 0:
        later = _decode_entry(data, candidate)
        if later is not None and later.synced > position and later.change.revision > snapshot_revision:
            raise CorruptionError(
                f"{path} is damaged at position {position}: the entry there cannot be read, though it was "
                f"safe on disk before revision {later.change.revision} at position {candidate} was written. "
                f"Restore the folder from a backup; or, to give up every change from there on, "
                f"cut the file: truncate -s {position} {path}"
            )
        candidate = data.find(_MARK, candidate + 1)
    return entries, position


def _encode_entry(change: StoreChange, *, position: int, synced: int) -> bytes:
    payload = _ENTRY.pack(change.revision, synced, len(change.items)) + _encode_items(change.items.items())
    return _FRAME.pack(_MARK, len(payload), _entry_crc(position, payload)) + payload


def _decode_entry(data: bytes, position: int) -> _Entry | None:
    """The entry at this position, or None if there is no whole one."""
    start = position + _FRAME.size
    if start > len(data):
        return None
    mark, length, crc = _FRAME.unpack_from(data, position)
    payload = data[start : start + length]
    if mark != _MARK or len(payload) != length or _entry_crc(position, payload) != crc:
        return None
    revision, synced, count = _ENTRY.unpack_from(payload)
    return _Entry(StoreChange(revision, _decode_items(payload, _ENTRY.size, count)), synced, start + length)


def _entry_crc(position: int, payload: bytes) -> int:
    return crc32c(payload, crc32c(_CHECKED.pack(position, len(payload))))


def _encode_snapshot(revision: int, items: Mapping[str, StoreItem]) -> bytes:
    body = _encode_items(items.items())
    crc = crc32c(body, crc32c(_CHECKED.pack(revision, len(items))))
    return _FILE_HEADER.pack(_SNAPSHOT_MAGIC, VERSION) + _SNAPSHOT.pack(crc, revision, len(items)) + body


def _decode_snapshot(path: str, data: bytes) -> tuple[int, dict[str, StoreItem]]:
    _check_header(path, data, _SNAPSHOT_MAGIC)
    start = _FILE_HEADER.size + _SNAPSHOT.size
    if len(data) >= start:
        crc, revision, count = _SNAPSHOT.unpack_from(data, _FILE_HEADER.size)
        body = data[start:]
        if crc == crc32c(body, crc32c(_CHECKED.pack(revision, count))):
            items = _decode_items(body, 0, count)
            return revision, {key: item for key, item in items.items() if item is not None}
    raise CorruptionError(
        f"{path} is damaged: its content, from position {_FILE_HEADER.size} on, fails its check. "
        f"Restore it and the journal beside it from one backup"
    )


def _check_header(path: str, data: bytes, magic: bytes) -> None:
    if len(data) < _FILE_HEADER.size or not data.startswith(magic):
        raise CorruptionError(
            f"{path} is damaged at position 0: it does not begin as a file of the metadata store. "
            f"Restore the folder from a backup"
        )
    _, version = _FILE_HEADER.unpack_from(data)
    if version != VERSION:
        raise StorageError(
            f"{path} has format version {version} and this program reads version {VERSION}: "
            f"start the version of FlintMQ that wrote it"
        )


def _encode_items(items: Iterable[tuple[str, StoreItem | None]]) -> bytes:
    parts: list[bytes] = []
    for key, item in items:
        name = key.encode()
        if item is None:
            parts += (_ITEM.pack(len(name), 0, 0, 0, 0), name)
        else:
            parts += (_ITEM.pack(len(name), 1, item.revision, item.lease, len(item.value)), name, item.value)
    return b"".join(parts)


def _decode_items(data: bytes, position: int, count: int) -> dict[str, StoreItem | None]:
    items: dict[str, StoreItem | None] = {}
    for _ in range(count):
        key_size, kind, revision, lease, value_size = _ITEM.unpack_from(data, position)
        key_start = position + _ITEM.size
        value_start = key_start + key_size
        position = value_start + value_size
        key = data[key_start:value_start].decode()
        items[key] = StoreItem(data[value_start:position], revision, lease) if kind else None
    return items
