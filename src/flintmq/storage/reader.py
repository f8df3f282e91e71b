"""Reading a log: batches from an offset on, and the aborted transactions among them. Changes nothing but the list of
ranges known to be damaged.

A reader gets a range of a file, which goes to its socket without being copied. The tail, where most readers are, is
found without an index.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final, NoReturn

from flintmq.errors import CorruptionError, ErrorCode, LogOffline, RequestError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, crc_is_right, read_header
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.log import Log
from flintmq.storage.segment import FileRange, Segment, segment_index
from flintmq.storage.visibility import Isolation

_last_offset: Final = attrgetter("last_offset")


def read(
    log: Log, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
) -> FileRange | None:
    """Return batches from the one that holds `offset`, at most `max_bytes` (but one whole batch if asked).

    The end may be inside a batch, as clients expect. None if nothing may be seen there yet.
    """
    if log.offline is not None:
        raise LogOffline(log.offline)
    if offset < log.start_offset or offset > log.end_offset:
        raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
    bound = _bound(log, isolation)
    if offset >= bound:
        return None
    if log.corrupt:
        bound = refuse_corrupt(log, offset, bound)
    position = log.recent_positions.get(offset)
    batch_size = -1
    if position is not None:
        segment = log.segments[-1]
    else:
        found = _find(log, offset)
        if found is None:
            return None
        segment, position, header = found
        if header.base_offset >= bound:
            return None
        batch_size = header.size
    available = end_position(log, segment, bound) - position
    if available <= 0:
        return None
    if available > max_bytes:
        if batch_size < 0:
            batch_size = next(segment.walk(position))[1].size
        available = max_bytes if max_bytes >= batch_size else batch_size if at_least_one else 0
    if available <= 0:
        return None
    return FileRange(segment.open(), position, available, segment.base_offset)


def _bound(log: Log, isolation: Isolation) -> int:
    if isolation is Isolation.READ_UNCOMMITTED:
        return log.visibility.high_watermark
    return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.end_offset


def end_position(log: Log, segment: Segment, bound: int) -> int:
    """Return where in `segment` the offsets from `bound` on begin."""
    if bound >= log.end_offset:
        return segment.size
    if bound == log.visibility.high_watermark:
        position = log.visibility.end_position(segment)
        if position is not None:
            return position
    if bound <= segment.base_offset:
        return 0
    following = segment.locate(log.disk, bound)
    return following[0] if following is not None else segment.size


def _find(log: Log, offset: int) -> tuple[Segment, int, BatchHeader] | None:
    """Find the first batch that ends at or after `offset`; a hole leads into the next segment."""
    segments = log.segments
    for at in range(segment_index(segments, offset), len(segments)):
        found = segments[at].locate(log.disk, offset)
        if found is not None:
            return segments[at], *found
    return None


# ---- aborted transactions


def aborted_transactions(log: Log, found: FileRange, offset: int) -> list[AbortedTransaction]:
    """Return what a reader of committed records must know of a range that was just read from `offset` on."""
    if not any(segment.aborted for segment in log.segments[segment_index(log.segments, offset) :]):
        return []
    return aborted_between(log, offset, _offset_after(log, found))


def aborted_between(log: Log, offset: int, end: int) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in a range of offsets.

    A transaction's entry stands with its marker, in the same segment or a later one; where an entry says that
    all was stable up to the end of the range, none after it can be about it.
    """
    aborted = []
    for segment in log.segments[segment_index(log.segments, offset) :]:
        # Markers come in order, and so do their entries.
        for one in segment.aborted[bisect_left(segment.aborted, offset, key=_last_offset) :]:
            if one.first_offset < end:
                aborted.append(one)
            if one.last_stable_offset >= end:
                return aborted
    return aborted


def _offset_after(log: Log, found: FileRange) -> int:
    """Return an offset that no batch of the range reaches, as near as the index tells."""
    segments = log.segments
    at = segment_index(segments, found.base_offset)
    following = segments[at + 1].base_offset if at + 1 < len(segments) else log.end_offset
    bound = segments[at].offset_after(log.disk, found.position + found.size)
    return following if bound is None else min(bound, following)


# ---- damage


def refuse_corrupt(log: Log, offset: int, bound: int) -> int:
    """Return `bound`, or the first damaged offset before it. CorruptionError if `offset` itself is damaged."""
    for bad in log.corrupt:
        if bad.base_offset <= offset < bad.end_offset:
            _refuse(log, bad)
        if offset < bad.base_offset:
            bound = min(bound, bad.base_offset)
    return bound


def verify(log: Log, found: FileRange) -> None:
    """Check every whole batch in a range that was read (`flint.verify.on.read`).

    The CRC does not cover the base offset, the length and the magic, so those are checked too.
    """
    data = memoryview(found.read())
    position, expected = 0, 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if header.length < HEADER_SIZE - LENGTH_END or header.magic != 2 or header.base_offset < expected:
            raise CorruptionError(
                f"{log.name} holds something else than a batch at byte {found.position + position} "
                f"of {found.file.path}."
            )
        if position + header.size > len(data):
            return
        if not crc_is_right(data[position : position + header.size], header.crc):
            _refuse(log, CorruptRange(header.base_offset, header.last_offset + 1))
        position += header.size
        expected = header.last_offset + 1


def _refuse(log: Log, bad: CorruptRange) -> NoReturn:
    log.add_corrupt(bad)
    raise CorruptionError(f"Offsets {bad.base_offset} to {bad.end_offset - 1} of {log.name} are damaged.")
