"""What opening a log makes of its batches: who its producers are, and which transactions were aborted.

The newest usable snapshot, then every batch after it, tells of the producers. Aborted transactions are worked out
anew for segments that were scanned; only those who wrote before a marker tell where what it ends began, so for them
the reading begins with an older snapshot. Invariant: what was known before a crash of what is left is known again.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from typing import Final

from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import CONTROL, NO_PRODUCER_ID, BatchHeader
from flintmq.records.limits import REPLAYED_BYTES_MAX
from flintmq.records.markers import ABORT, COMMIT, Marker, control_type, coordinator_epoch
from flintmq.records.record import records_of
from flintmq.storage.log import LogState
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import Segment, segment_index

logger: Final = logging.getLogger(__name__)


def replay(
    state: LogState, partition_dir: PartitionDir, scanned: Container[int], first_marked: int | None
) -> ProducerState:
    """Return the producers of the log, and fill `aborted` of the segments that were `scanned`.

    Those are named by their base offsets; `first_marked` is the first of them that has markers.
    """
    first = state.segments[0].base_offset if state.segments else state.start_offset
    producers, replay_from = state.snapshots.newest_between(first, state.end_offset)
    replayed = _Replay(state.segments, partition_dir, scanned)
    if first_marked is not None and first_marked < replay_from:
        earlier, marked_from = state.snapshots.newest_between(first, first_marked)
        replayed.apply(earlier, marked_from, replay_from)
    replayed.apply(producers, replay_from, state.end_offset)
    return producers


class _Replay:
    def __init__(
        self, segments: Sequence[Segment], partition_dir: PartitionDir, scanned: Container[int]
    ) -> None:
        self._segments = segments
        self._disk = partition_dir.disk
        self._name = partition_dir.name
        self._scanned = scanned

    def apply(self, producers: ProducerState, start: int, end: int) -> None:
        """Add the batches from `start` to `end` to the producers as they were at `start`."""
        if start >= end:
            return
        for segment in self._segments[segment_index(self._segments, start) :]:
            if segment.base_offset >= end:
                return
            try:
                found = segment.locate(self._disk, start)
                for position, header in segment.walk(found[0]) if found is not None else ():
                    if start <= header.base_offset < end and header.producer_id != NO_PRODUCER_ID:
                        if header.attributes & CONTROL:
                            self._apply_marker(producers, segment, position, header)
                        else:
                            producers.record(header, header.base_offset)
            except CorruptionError as error:
                logger.error("some of the producers of %s are not remembered: %s", self._name, error)

    def _apply_marker(
        self, producers: ProducerState, segment: Segment, position: int, header: BatchHeader
    ) -> None:
        data = memoryview(segment.open().pread(header.size, position))
        try:
            for record in records_of(data, limit=REPLAYED_BYTES_MAX):
                kind = control_type(record.key)
                if kind in (ABORT, COMMIT):
                    marker = Marker(
                        header.producer_id,
                        header.producer_epoch,
                        coordinator_epoch(record.value),
                        kind == COMMIT,
                    )
                    first_offset = producers.end_transaction(marker, record.timestamp)
                    if first_offset is not None and kind == ABORT and segment.base_offset in self._scanned:
                        segment.add_aborted(
                            header.producer_id, first_offset, record.offset, producers.first_unstable_offset
                        )
        except (CorruptionError, RequestError) as error:
            logger.error(
                "%s: the marker at offset %d makes no sense: %s", self._name, header.base_offset, error
            )
