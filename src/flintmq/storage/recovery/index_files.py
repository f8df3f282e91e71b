"""What is taken from the files of a segment that is not scanned, after cheap looks at them."""

from __future__ import annotations

import logging
from typing import Final

from flintmq.effects import Disk, read_file
from flintmq.errors import CorruptionError
from flintmq.storage.aborted_transactions import decode_aborted
from flintmq.storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from flintmq.storage.leader_epochs import LeaderEpochs
from flintmq.storage.segment import INDEX, TIME_INDEX, TXN_INDEX, Segment

logger: Final = logging.getLogger(__name__)


def index_files_are_sound(disk: Disk, segment: Segment, following: int | None) -> bool:
    """A cheap look: whole entries, and the last of them inside the segment."""
    for suffix, entry in ((INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY)):
        path = segment.path(suffix)
        if not disk.exists(path):
            return False
        size = disk.size(path)
        if size % entry.size:
            return False
        if size:
            file = disk.open(path, writable=False)
            try:
                first, second = entry.unpack(file.pread(entry.size, size - entry.size))
            finally:
                file.close()
            relative = first if suffix == INDEX else second
            if following is not None and segment.base_offset + relative >= following:
                return False
            if suffix == INDEX and not 0 <= second < segment.size:
                return False
    return True


def read_max_timestamp(disk: Disk, segment: Segment) -> None:
    file = disk.open(segment.path(TIME_INDEX), writable=False)
    try:
        size = file.size()
        if size:
            timestamp, relative = TIME_ENTRY.unpack(file.pread(TIME_ENTRY.size, size - TIME_ENTRY.size))
            segment.max_timestamp = timestamp
            segment.max_timestamp_offset = segment.base_offset + relative
    finally:
        file.close()


def read_first_timestamp(segment: Segment) -> None:
    for _, header in segment.walk(0):
        segment.first_timestamp = header.max_timestamp
        return


def load_aborted(disk: Disk, segment: Segment, following: int) -> bool:
    """Read the aborted transactions of the segment; False if their file makes no sense."""
    try:
        aborted = decode_aborted(read_file(disk, segment.path(TXN_INDEX)))
        if not all(segment.base_offset <= one.last_offset < following for one in aborted):
            raise CorruptionError("It speaks of markers elsewhere.")
        segment.aborted = aborted
    except CorruptionError as error:
        logger.warning("%s: %s", segment.path(TXN_INDEX), error)
        return False
    return True


def rebuild_epochs(epochs: LeaderEpochs, segment: Segment) -> bool:
    """Add the leader epochs of the segment's batches; False if these make no sense."""
    expected = segment.base_offset
    try:
        for _, header in segment.walk(0):
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, expected)
            expected = header.last_offset + 1
    except CorruptionError:
        return False
    return True
