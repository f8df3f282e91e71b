"""The segments in a folder, checked without a broker, also while one writes there. Nothing is ever written.

A broker may roll, delete or compact segments meanwhile: what looks damaged in a folder that changed under the check
is checked again. At the end of the newest segment a batch may be on its way; it is waited for. This module must not
know how anything is printed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from flintmq.cli.common.output import UNKNOWN_END
from flintmq.cli.log.files import FileKind, files_in, kind_of
from flintmq.effects.real import RealDisk, RealFile
from flintmq.storage.corrupt_ranges import merge_ranges
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.scrub import scrub
from flintmq.storage.segment import LOG, Segment, file_name

_PIECE_BYTES: Final = 16 * 1024 * 1024
_ZEROS_STEP: Final = 1024 * 1024
_ATTEMPTS: Final = 5
_LOOKS: Final = 4
_LOOK_AGAIN_S: Final = 0.05

Note = Callable[[int], object]
"""Told how many more bytes were read."""


@dataclass(slots=True)
class VerifiedLog:
    path: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of offsets: the first, and the one after the last or `UNKNOWN_END`."""

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.path))


def logs_in(path: str) -> dict[str, list[int]]:
    """Folders and the segments to check in them: of a data folder, of a partition's folder, or one segment alone."""
    found: dict[str, list[int]] = {}
    for file in files_in(path):
        if kind_of(file) is FileKind.SEGMENT:
            directory, name = os.path.split(file)
            found.setdefault(directory or ".", []).append(int(os.path.splitext(name)[0]))
    return found


def size_of(logs: dict[str, list[int]]) -> int:
    return sum(_file_size(_path(directory, base)) for directory, bases in logs.items() for base in bases)


def verify(directory: str, wanted: Iterable[int], *, is_whole: bool, note: Note) -> VerifiedLog | None:
    """Check these segments, or when `is_whole` all that there are by now; None if the folder is gone."""
    for attempt in range(_ATTEMPTS):
        try:
            before = _segments(directory)
            bases = sorted(before) if is_whole else sorted(wanted)
            verified = _verify(directory, bases, sorted(before), note)
            if not verified.damaged or attempt + 1 == _ATTEMPTS or _segments(directory) == before:
                return verified
        except FileNotFoundError:
            if not os.path.isdir(directory):
                return None
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _verify(directory: str, bases: list[int], all_bases: list[int], note: Note) -> VerifiedLog:
    verified = VerifiedLog(directory)
    following = dict(pairwise(all_bases))
    descriptors = Descriptors(RealDisk(), 0)
    for base in bases:
        segment = Segment(directory, base, descriptors, index_interval=0, created_ms=0)
        # ORDER: opened here, for reading only, BEFORE the segment would open it by itself.
        file = RealDisk().open(_path(directory, base), writable=False)
        segment.file = file
        try:
            _verify_segment(segment, file, following.get(base), verified, note)
        finally:
            file.close()
        verified.segments += 1
    verified.damaged = merge_ranges(verified.damaged)
    return verified


def _verify_segment(
    segment: Segment, file: RealFile, following: int | None, verified: VerifiedLog, note: Note
) -> None:
    end_offset = UNKNOWN_END if following is None else following
    size, position, expected = file.size(), 0, segment.base_offset
    while position < size:
        found = scrub(
            segment, position, size=size, expected=expected, end_offset=end_offset, limit=_PIECE_BYTES
        )
        verified.batches += found.batches
        verified.records += found.records
        lost_at = size - found.lost_bytes
        if following is None and found.lost_bytes and found.damage is not None:
            if _is_zero(file, lost_at, size):  # preallocated
                size = lost_at
                break
            grown = _grown(file, size)
            if grown > size:
                note(lost_at - position)
                size, position, expected = grown, lost_at, found.damage.base_offset
                continue
        if found.damage is not None:
            verified.damaged.append(found.damage)
        note(found.position - position)
        position, expected = found.position, found.next_offset
    verified.size += size


def _grown(file: RealFile, size: int) -> int:
    """The size of a file that a broker may be writing to, once it has changed, or the same after a while."""
    for _ in range(_LOOKS):
        now = file.size()
        if now > size:
            return now
        time.sleep(_LOOK_AGAIN_S)
    return file.size()


def _is_zero(file: RealFile, position: int, size: int) -> bool:
    return not any(any(file.pread(_ZEROS_STEP, at)) for at in range(position, size, _ZEROS_STEP))


def _segments(directory: str) -> dict[int, tuple[int, int]]:
    """By base offset, what tells a file from another that took its name; the newest is written to."""
    bases = sorted(
        int(os.path.splitext(name)[0]) for name in os.listdir(directory) if kind_of(name) is FileKind.SEGMENT
    )
    found: dict[int, tuple[int, int]] = {}
    for base in bases:
        status = os.stat(_path(directory, base))
        found[base] = status.st_ino, 0 if base == bases[-1] else status.st_mtime_ns
    return found


def _file_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _path(directory: str, base: int) -> str:
    return os.path.join(directory, file_name(base, LOG))
