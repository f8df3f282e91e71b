"""Batches as a follower receives them from its leader: checked by header and CRC before any is written. Pure."""

from __future__ import annotations

from flintmq.errors import CorruptionError
from flintmq.records.batch import HEADER_SIZE, LENGTH_END, crc_is_right, read_header


def whole_batches(data: memoryview, *, end_offset: int, fetch_epoch: int, epoch_before: int) -> memoryview:
    """Return the whole batches at the beginning of `data`; the last one may have been cut by the size of the fetch.

    CorruptionError if one of them is damaged, does not follow what the follower has (`end_offset`, and `epoch_before`
    of its last batch), or was written in an epoch above that of the fetch: a leader that answers so has been elected
    since, and its log must be compared first.
    """
    position, expected = 0, end_offset
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if header.length < HEADER_SIZE - LENGTH_END or header.magic != 2:
            raise CorruptionError(f"The leader sent something else than a batch for offset {expected}.")
        end = position + header.size
        if end > len(data):
            break
        if header.base_offset < expected:
            # The first batch of a response may begin before the offset that was asked for; a follower's cannot.
            raise CorruptionError(f"The leader sent offset {header.base_offset} in place of {expected}.")
        if not epoch_before <= header.leader_epoch <= fetch_epoch:
            raise CorruptionError(
                f"The leader sent epoch {header.leader_epoch} at offset {header.base_offset}; "
                f"the epochs {epoch_before} to {fetch_epoch} are possible there."
            )
        if not crc_is_right(data[position:end], header.crc):
            raise CorruptionError(f"The leader sent a damaged batch at offset {header.base_offset}.")
        epoch_before = header.leader_epoch
        expected = header.last_offset + 1
        position = end
    return data[:position]
