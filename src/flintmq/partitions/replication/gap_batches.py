"""Batches that fill a gap in a damaged log, as another replica sends them: checked before any is written. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flintmq.errors import CorruptionError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, crc_is_right, read_header


class GapBatches(NamedTuple):
    """Batches that fill a part of a gap in a damaged log."""

    data: memoryview
    next_offset: int
    """Where the gap goes on; its end if nothing is missing any more."""


def gap_batches(
    data: memoryview,
    *,
    offset: int,
    first_offset: int,
    end_offset: int,
    has_holes: bool,
    epoch_of: Callable[[int], int],
) -> GapBatches:
    """Return the whole batches at the beginning of `data` that lie in a gap, of which `offset` was fetched.

    The first batch may begin before `offset`, where that is the start of the log, but not before `first_offset`.
    `epoch_of` is what the damaged log knows of the leader epochs of its offsets: two logs with a batch of the same
    epoch at the same offset agree up to there. CorruptionError if a batch is damaged, has another epoch or goes
    beyond the gap, or if offsets are missing in a log without holes.
    """
    position, expected = 0, offset
    while position + HEADER_SIZE <= len(data) and expected < end_offset:
        header = read_header(data, position)
        if header.length < HEADER_SIZE - LENGTH_END or header.magic != 2 or header.last_offset_delta < 0:
            raise CorruptionError(f"It sent something else than a batch for offset {expected}.")
        base_offset, end = header.base_offset, position + header.size
        if end > len(data):
            break
        if base_offset < first_offset or header.last_offset < expected:
            raise CorruptionError(f"It sent offset {base_offset} in place of {expected}.")
        if base_offset > expected and not has_holes:
            raise CorruptionError(f"It lacks the offsets from {expected} to {base_offset - 1}.")
        if not crc_is_right(data[position:end], header.crc):
            raise CorruptionError(f"It sent a damaged batch at offset {base_offset}.")
        if base_offset >= end_offset:
            expected = end_offset
            break
        if header.last_offset >= end_offset:
            raise CorruptionError(
                f"It sent a batch at offset {base_offset} that is longer than what is missing."
            )
        if header.leader_epoch != epoch_of(base_offset) >= 0:
            raise CorruptionError(
                f"It sent epoch {header.leader_epoch} at offset {base_offset}, not {epoch_of(base_offset)}."
            )
        first_offset = expected = header.last_offset + 1
        position = end
    return GapBatches(data[:position], expected)
