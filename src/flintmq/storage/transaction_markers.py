"""What a control batch says of transactions (KIP-98). Pure."""

from __future__ import annotations

from typing import NamedTuple

from flintmq.records.batch import BatchHeader
from flintmq.records.limits import REPLAYED_BYTES_MAX
from flintmq.records.markers import ABORT, COMMIT, Marker, control_type, coordinator_epoch
from flintmq.records.record import records_of


class WrittenMarker(NamedTuple):
    marker: Marker
    offset: int
    timestamp: int


def markers_in(header: BatchHeader, batch: memoryview) -> list[WrittenMarker]:
    """Return the markers of a control batch. CorruptionError or RequestError if it makes no sense."""
    found: list[WrittenMarker] = []
    for record in records_of(batch, limit=REPLAYED_BYTES_MAX):
        kind = control_type(record.key)
        if kind in (ABORT, COMMIT):
            marker = Marker(
                header.producer_id, header.producer_epoch, coordinator_epoch(record.value), kind == COMMIT
            )
            found.append(WrittenMarker(marker, record.offset, record.timestamp))
    return found
