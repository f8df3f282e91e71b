"""What opening a log makes of its batches: who its producers are, and which transactions were aborted.

The newest usable snapshot, then every batch after it, tells of the producers. Aborted transactions are worked out
anew for segments that were scanned; only those who wrote before a marker tell where what it ends began, so for them
the reading begins with an older snapshot. Invariant: what was known before a crash of what is left is known again.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import CONTROL, NO_PRODUCER_ID, BatchHeader
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import Segment, segment_index
from flintmq.storage.transaction_markers import markers_in

logger: Final = logging.getLogger(__name__)


class Replayed(NamedTuple):
    producers: ProducerState
    ended: list[tuple[int, int]]
    """Transactions whose markers lie from `ended_from` on: (offset of the marker, first offset)."""


def replay(
    segments: Sequence[Segment],
    snapshots: ProducerSnapshots,
    partition_dir: PartitionDir,
    *,
    first_offset: int,
    end_offset: int,
    scanned: Container[int] = (),
    first_marked: int | None = None,
    ended_from: int | None = None,
) -> Replayed:
    """Return the producers of a log that ends at `end_offset`; fill `aborted` of the segments that were `scanned`.

    Those are named by their base offsets; `first_marked` is the first of them that has markers.
    """
    producers, replay_from = snapshots.newest_between(first_offset, end_offset)
    replayed = _Replay(segments, partition_dir, scanned, ended_from)
    wanted_from = min(
        replay_from if first_marked is None else first_marked,
        replay_from if ended_from is None else ended_from,
    )
    if wanted_from < replay_from:
        earlier, earlier_from = snapshots.newest_between(first_offset, wanted_from)
        replayed.apply(earlier, earlier_from, replay_from)
    replayed.apply(producers, replay_from, end_offset)
    return Replayed(producers, replayed.ended)


class _Replay:
    def __init__(
        self,
        segments: Sequence[Segment],
        partition_dir: PartitionDir,
        scanned: Container[int],
        ended_from: int | None,
    ) -> None:
        self.ended: list[tuple[int, int]] = []
        self._segments = segments
        self._disk = partition_dir.disk
        self._name = partition_dir.name
        self._scanned = scanned
        self._ended_from = ended_from

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
            for marker, offset, timestamp in markers_in(header, data):
                first_offset = producers.end_transaction(marker, timestamp)
                if first_offset is None:
                    continue
                if not marker.committed and segment.base_offset in self._scanned:
                    segment.add_aborted(
                        header.producer_id, first_offset, offset, producers.first_unstable_offset
                    )
                if self._ended_from is not None and offset >= self._ended_from:
                    self.ended.append((offset, first_offset))
        except (CorruptionError, RequestError) as error:
            logger.error(
                "%s: the marker at offset %d makes no sense: %s", self._name, header.base_offset, error
            )
