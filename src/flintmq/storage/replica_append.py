"""Batches that a follower takes over from its leader's log: what they must be, before they are written. Pure.

The caller has checked the CRCs. Base offset, length, magic and leader epoch are outside of them, so these are checked
here. Gaps between batches are allowed, for the leader's log may be compacted.
"""

from __future__ import annotations

from flintmq.errors import CorruptionError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, BatchHeader, read_header

_MAGIC = 2


def fetched_headers(data: memoryview, *, end_offset: int, leader_epoch: int) -> list[BatchHeader]:
    """Return the headers of the batches that `data` consists of.

    CorruptionError if they are not whole, do not follow `end_offset` in ascending order, or fall below an earlier
    leader epoch, the first of which is `leader_epoch`.
    """
    found: list[BatchHeader] = []
    position, size = 0, len(data)
    while position < size:
        if size - position < HEADER_SIZE:
            raise CorruptionError(f"The fetched data ends with {size - position} bytes that are no batch.")
        header = read_header(data, position)
        if header.length < HEADER_SIZE - LENGTH_END or header.magic != _MAGIC or header.last_offset_delta < 0:
            raise CorruptionError(f"The fetched data holds something else than a batch at byte {position}.")
        if header.size > size - position:
            raise CorruptionError("The last fetched batch is cut short.")
        if header.base_offset < end_offset:
            raise CorruptionError(
                f"A fetched batch begins at offset {header.base_offset}; {end_offset} is the lowest that may come."
            )
        if header.leader_epoch < leader_epoch:
            raise CorruptionError(
                f"The fetched batch at offset {header.base_offset} has leader epoch {header.leader_epoch}, "
                f"which is below {leader_epoch}."
            )
        found.append(header)
        end_offset, leader_epoch = header.last_offset + 1, header.leader_epoch
        position += header.size
    return found
