"""What opening a log makes of its batches: who its producers are, and which transactions were aborted.

The newest usable snapshot, then every batch after it, tells of the producers. Aborted transactions are worked out
anew for segments that were scanned; only those who wrote before a marker tell where what it ends began, so for them
the reading begins with an older snapshot. Invariant: what was known before a crash of what is left is known again.
"""

from __future__ import annotations

import logging
from collections.abc import Container

from flintmq.effects import ASIDE, read_file
from flintmq.errors import CorruptionError, RequestError
from flintmq.records.batch import CONTROL, NO_PRODUCER_ID, BatchHeader
from flintmq.records.markers import ABORT, COMMIT, Marker, control_type, coordinator_epoch
from flintmq.records.record import records_of
from flintmq.storage.log import Log
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import SNAPSHOT, Segment, file_name
from flintmq.storage.timestamp_lookup import UNPACKED_BYTES_MAX

logger = logging.getLogger(__name__)

_NAME_DIGITS = 20


def replay(log: Log, scanned: Container[int], first_marked: int | None) -> None:
    """Fill `log.producers`, and `aborted` of the segments that were `scanned`, named by their base offsets.

    `first_marked` is the first of these that has markers.
    """
    _list_snapshots(log)
    producers, replay_from = _snapshot(log, log.end_offset)
    if first_marked is not None and first_marked < replay_from:
        log.producers, marked_from = _snapshot(log, first_marked)
        _replay_range(log, scanned, marked_from, replay_from)
    log.producers = producers
    _replay_range(log, scanned, replay_from, log.end_offset)


def _list_snapshots(log: Log) -> None:
    stems = [name[:_NAME_DIGITS] for name in log.disk.list(log.folder) if name[_NAME_DIGITS:] == SNAPSHOT]
    for offset in sorted(int(stem) for stem in stems if stem.isdigit()):
        if offset <= log.end_offset:
            log.snapshots.append(offset)
        else:  # of records that were cut
            _remove_snapshot(log, offset)


def _snapshot(log: Log, offset_max: int) -> tuple[ProducerState, int]:
    """The newest usable one up to there, and from where on batches must be added to it."""
    first = log.segments[0].base_offset
    # One older than what is left of the log tells of nothing that is there, and who has an open transaction by it
    # may have ended that among what was deleted.
    for offset in [offset for offset in reversed(log.snapshots) if first <= offset <= offset_max]:
        path = f"{log.folder}/{file_name(offset, SNAPSHOT)}"
        try:
            return ProducerState.decode(read_file(log.disk, path)), offset
        except CorruptionError as error:
            logger.warning("%s: %s Replaying from an older one.", path, error)
            log.snapshots.remove(offset)
            _remove_snapshot(log, offset)
    return ProducerState(), first


def _remove_snapshot(log: Log, offset: int) -> None:
    """ORDER: its name is gone from the disk BEFORE anything is written, else a power loss could bring it back among
    records that it knows nothing of. A process that is killed here leaves a file that tells the next one of it.
    """
    path = f"{log.folder}/{file_name(offset, SNAPSHOT)}"
    log.disk.rename(path, path + ASIDE)
    log.disk.sync_dir(log.folder)
    log.disk.remove(path + ASIDE)


def _replay_range(log: Log, scanned: Container[int], start: int, end: int) -> None:
    """Tell the producers, as they were at `start`, of the batches from there to `end`."""
    if start >= end:
        return
    for segment in log.segments[log.segment_index(start) :]:
        if segment.base_offset >= end:
            return
        try:
            found = segment.locate(log.disk, start)
            for position, header in segment.walk(found[0]) if found is not None else ():
                if start <= header.base_offset < end and header.producer_id != NO_PRODUCER_ID:
                    if header.attributes & CONTROL:
                        _replay_marker(log, segment, position, header, segment.base_offset in scanned)
                    else:
                        log.producers.record(header, header.base_offset)
        except CorruptionError as error:
            logger.error("some of the producers of %s are not remembered: %s", log.name, error)


def _replay_marker(log: Log, segment: Segment, position: int, header: BatchHeader, is_scanned: bool) -> None:
    data = memoryview(segment.open().pread(header.size, position))
    try:
        for record in records_of(data, limit=UNPACKED_BYTES_MAX):
            kind = control_type(record.key)
            if kind in (ABORT, COMMIT):
                marker = Marker(
                    header.producer_id, header.producer_epoch, coordinator_epoch(record.value), kind == COMMIT
                )
                began = log.producers.end_transaction(marker, record.timestamp)
                if began is not None and kind == ABORT and is_scanned:
                    log.note_aborted(segment, header.producer_id, began, record.offset)
    except (CorruptionError, RequestError) as error:
        logger.error("%s: the marker at offset %d makes no sense: %s", log.name, header.base_offset, error)
