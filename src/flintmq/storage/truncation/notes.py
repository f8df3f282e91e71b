"""What truncations leave on disk, so that a crash at any moment finds a log that can be opened.

`truncation` in the log's directory bounds what the checkpoints say, which are written for all logs together and may
be older: nothing from `recovery_point` on was synced, and all below it was. It goes once checkpoints that know of the
truncation are on stable storage.

`<base offset>.cut` holds the size at which a segment ends. The file itself stays as long as it was until the log is
closed or opened: readers may hold ranges of what was cut off, and the kernel may still be sending its pages, which
cutting the file would fill with zeros. Invariant: no byte of a file that readers may know is ever changed.
"""

from __future__ import annotations

import msgspec

from flintmq.effects import Disk, read_file, write_atomically
from flintmq.errors import CorruptionError
from flintmq.storage.segment import CUT, LOG, Segment

NOTE_FILE = "truncation"


class TruncationNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    recovery_point: int
    start_offset: int
    """Where the log begins. The checkpoint may name another start, if the log began again."""
    restarts: bool = False
    """Whether it began again, with nothing in it: what lies below its start is not part of it."""


def write_note(disk: Disk, directory: str, note: TruncationNote) -> None:
    write_atomically(disk, f"{directory}/{NOTE_FILE}", msgspec.json.encode(note))


def read_note(disk: Disk, directory: str) -> TruncationNote:
    path = f"{directory}/{NOTE_FILE}"
    try:
        return msgspec.json.decode(read_file(disk, path), type=TruncationNote)
    except msgspec.MsgspecError as error:
        # It was replaced atomically: only the disk can have done that.
        raise CorruptionError(f"{path} makes no sense: {error}.") from error


def remove_note(disk: Disk, directory: str) -> None:
    path = f"{directory}/{NOTE_FILE}"
    if disk.exists(path):
        disk.remove(path)
        disk.sync_dir(directory)


def write_cut(disk: Disk, segment: Segment) -> None:
    """Let the segment end at its size, now and after a crash."""
    write_atomically(disk, segment.path(CUT), str(segment.size).encode())


def apply_cut(disk: Disk, segment: Segment) -> None:
    """Cut a segment's file at the size that was noted. The caller makes the removal of the note durable.

    ORDER: the file is cut on stable storage BEFORE the note goes.
    """
    path = segment.path(CUT)
    try:
        size = int(read_file(disk, path))
    except ValueError as error:
        raise CorruptionError(f"{path} makes no sense: {error}.") from error
    file = disk.open(segment.path(LOG))
    try:
        if file.size() > size:
            file.truncate(size)
        # A process that was killed may have cut it, and not synced it.
        file.sync()
    finally:
        file.close()
    disk.remove(path)
