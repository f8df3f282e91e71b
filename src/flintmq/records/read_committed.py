"""Which batches a reader of committed records may see (KIP-98).

A fetch tells the aborted transactions among what it returns, each by its producer and its first offset. What that
producer wrote from there on is passed over until the marker comes that aborts it.
"""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.records.batch import BatchHeader
from flintmq.records.limits import MARKER_BYTES_MAX
from flintmq.records.markers import ABORT, control_type
from flintmq.records.record import records_of


class ReadCommittedFilter:
    """Sees every transactional batch and every marker once, in the order of the log, from chunk to chunk.

    `aborted` are (producer id, first offset). None of them may have ended before the first batch that is seen: its
    marker would never come, and hide what the producer wrote later.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        # The next one last, where it is taken from.
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether this batch's records count; not needed for one that is neither transactional nor a marker.

        RequestError or CorruptionError if it is a marker that makes no sense.
        """
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._aborting.add(self._coming.pop()[1])
        if header.is_control:
            # Compaction may leave a marker's batch without the marker.
            for record in records_of(batch, limit=MARKER_BYTES_MAX):
                if control_type(record.key) == ABORT:
                    self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)
