"""The log of one partition: appends at the end, rolls segments, and moves its start. One writer: the event loop.

Three ends, never confused: `end_offset` (what is written), `high_watermark` (what may be seen and acknowledged) and
`last_stable_offset` (what a read_committed consumer may see); `visibility` keeps the last two. `start_offset` is the
first offset that still exists for clients. Recovery builds a log from its directory, `reader` reads it.

As a replica's it takes over batches of its leader as they are, and is truncated where its leader has others.
`generation` counts truncations: what was prepared in an earlier generation comes to nothing.

The log knows bytes and offsets; it does not know requests, replicas or the event loop. Others read its fields; only
its own methods change them.
"""

from __future__ import annotations

import logging
from typing import Final

from flintmq.errors import CorruptionError, LogOffline, RequestError, StorageError
from flintmq.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    MAX_INT32,
    NO_PRODUCER_ID,
    BatchHeader,
    assign_offsets,
    read_header,
)
from flintmq.records.markers import Marker, marker_batch
from flintmq.storage.corrupt_ranges import truncate_ranges
from flintmq.storage.durability.flush import (
    NO_DESCRIPTORS,
    NO_SPACE,
)
from flintmq.storage.log_segments import LogSegments
from flintmq.storage.replica_append import fetched_headers
from flintmq.storage.rolling import is_full, must_roll
from flintmq.storage.segment import LOG, Segment, segment_index
from flintmq.storage.transaction_markers import markers_in
from flintmq.storage.truncation.truncation import KeptSegments, Truncation, find_cut

logger: Final = logging.getLogger(__name__)


class Appended:
    """Where a batch is in the log."""

    __slots__ = ("append_time_ms", "base_offset", "last_offset")

    def __init__(self, base_offset: int, last_offset: int, append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.append_time_ms = append_time_ms
        """-1 unless the topic stamps append time."""


class Log(LogSegments):
    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        visible_at_once: bool = False,
    ) -> Appended:
        """Write one checked batch at the end, or find that it repeats an earlier one.

        The buffer is changed in place: the batch gets its offset and epoch. The caller may reuse it afterwards.
        With `visible_at_once` the high watermark is at the end afterwards.
        """
        if self.offline is not None or self.truncation is not None:
            self._refuse_changes()
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        if header.producer_id != NO_PRODUCER_ID:
            duplicate = self.producers.check(header)
            if duplicate is not None:
                self.counters.duplicates += 1
                return Appended(
                    duplicate.first_offset,
                    duplicate.last_offset,
                    duplicate.timestamp if append_time >= 0 else -1,
                )
        if self._create_directory is not None:
            self._create_files(self._create_directory)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        size = len(batch)
        if must_roll(segment, self.config, size, header.max_timestamp, last_offset, now_ms):
            segment = self.roll(now_ms)
        assign_offsets(batch, base_offset, leader_epoch)
        position = segment.size
        try:
            segment.append(batch, last_offset, header.max_timestamp)
        except OSError as error:
            self._undo_write(segment, error)
        end_offset = self.end_offset = last_offset + 1
        if header.producer_id != NO_PRODUCER_ID:
            self.producers.record(header, base_offset)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if visible_at_once:
            self.visibility.advance_to_end(end_offset, segment)
        else:
            self.visibility.add_hidden(end_offset, segment)
        recent = self.recent_positions
        recent[base_offset] = position
        if len(recent) > self._recent_batches:
            del recent[next(iter(recent))]
        return Appended(base_offset, last_offset, append_time)

    def append_marker(
        self,
        marker: Marker,
        *,
        bumps_epoch: bool,
        leader_epoch: int,
        now_ms: int,
        visible_at_once: bool = False,
    ) -> Appended:
        """Write the end of a transaction. Raise RequestError if the marker's epoch is stale."""
        self.producers.check_marker(marker, bumps_epoch=bumps_epoch)
        batch = memoryview(bytearray(marker_batch(marker, now_ms)))
        # A marker is no batch of the producer: its state changes in `end_transaction`, not in `append`.
        header = read_header(batch)._replace(producer_id=NO_PRODUCER_ID)
        appended = self.append(
            batch, header, leader_epoch=leader_epoch, now_ms=now_ms, visible_at_once=visible_at_once
        )
        self._end_transaction(marker, appended.base_offset, now_ms)
        return appended

    def append_replicated(self, data: memoryview, now_ms: int) -> int:
        """Write whole batches of the leader's log as they are; return the end of the log. None becomes visible.

        The caller has checked their CRCs. CorruptionError, and nothing is written, if their offsets or leader epochs
        do not fit the log. After a StorageError some of the batches may be in the log, each of them whole.
        """
        self._refuse_changes()
        headers = fetched_headers(data, end_offset=self.end_offset, leader_epoch=self.epochs.latest)
        if headers and self._create_directory is not None:
            self._create_files(self._create_directory)
        begun, position, first = 0, 0, 0
        for at, header in enumerate(headers):
            segment = self.active
            used = segment.size + position - begun
            first_timestamp = segment.first_timestamp if segment.size else headers[first].max_timestamp
            if used and is_full(
                segment, self.config, used, header.size, first_timestamp, header.max_timestamp,
                header.last_offset, now_ms,
            ):  # fmt: skip
                self._write_run(data[begun:position], headers[first:at])
                self._roll_for(header, now_ms)
                begun, first = position, at
            position += header.size
        if headers:
            self._write_run(data[begun:position], headers[first:])
        return self.end_offset

    def _roll_for(self, header: BatchHeader, now_ms: int) -> None:
        """Begin the segment of a batch. Its base offset is the end of the log, but for a gap that no index spans."""
        self.roll(now_ms, max(self.end_offset, header.last_offset - MAX_INT32))

    def _write_run(self, data: memoryview, headers: list[BatchHeader]) -> None:
        """Write batches to the active segment at once, and take account of each."""
        if not headers:
            return
        segment = self.active
        position, begun = segment.size, segment.size
        try:
            segment.open().pwrite(data, position)
        except OSError as error:
            self._undo_write(segment, error)
        recent = self.recent_positions
        for header in headers:
            if header.leader_epoch != self.epochs.latest:
                # An epoch begins no later than where the batch before ended: what a gap held may have been of either.
                self.epochs.assign(header.leader_epoch, self.end_offset)
            segment.add_batch(position, header.size, header.last_offset, header.max_timestamp)
            self.end_offset = header.last_offset + 1
            if header.producer_id != NO_PRODUCER_ID:
                if header.attributes & CONTROL:
                    self._end_replicated(header, data[position - begun : segment.size - begun])
                else:
                    self.producers.record(header, header.base_offset)
            self.visibility.add_hidden(self.end_offset, segment)
            recent[header.base_offset] = position
            position = segment.size
        for offset in list(recent)[: -self._recent_batches]:
            del recent[offset]

    def _end_replicated(self, header: BatchHeader, batch: memoryview) -> None:
        try:
            markers = markers_in(header, batch)
        except (CorruptionError, RequestError) as error:
            logger.error(
                "%s: the marker at offset %d makes no sense: %s", self.name, header.base_offset, error
            )
            return
        for marker, offset, timestamp in markers:
            self._end_transaction(marker, offset, timestamp)

    def _end_transaction(self, marker: Marker, offset: int, timestamp: int) -> None:
        """Take account of a marker that is in the active segment."""
        first_offset = self.producers.end_transaction(marker, timestamp)
        if first_offset is not None:
            self.visibility.add_ended_transaction(offset, first_offset)
            if not marker.committed:
                self.active.add_aborted(
                    marker.producer_id, first_offset, offset, self.producers.first_unstable_offset
                )

    def advance(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, which must be a batch's end; True if it moved."""
        visibility = self.visibility
        before = visibility.high_watermark
        if offset <= before:
            return False
        if offset >= self.end_offset:
            visibility.advance_to_end(self.end_offset, self.segments[-1])
        elif offset < visibility.known_from:
            visibility.advance_to_found(max(before, self._batch_end(offset)))
        else:
            visibility.advance(offset)
        return visibility.high_watermark > before

    def recover_visibility(self, high_watermark: int, ended: list[tuple[int, int]]) -> None:
        """Begin with a high watermark that may lie below the end. One inside a batch counts as before it."""
        found = max(self.start_offset, self._batch_end(high_watermark))
        self.visibility.recover(found, self.end_offset, ended)

    def _batch_end(self, offset: int) -> int:
        """Return `offset`, or where the batch begins that it is inside of."""
        try:
            found = self.segments[segment_index(self.segments, offset)].locate(self.disk, offset)
        except (OSError, CorruptionError) as error:
            logger.warning("%s: offset %d could not be looked up: %s", self.name, offset, error)
            return 0
        return offset if found is None else min(offset, found[1].base_offset)

    def _undo_write(self, segment: Segment, error: OSError) -> None:
        """Cut off the part of a batch that may have been written; where that fails, serve nothing more."""
        if error.errno in NO_DESCRIPTORS:
            raise StorageError(f"No descriptor is left for {self.name}: {error}.") from error
        try:
            file = segment.open()
            file.truncate(segment.size)
        except OSError as second:
            self.go_offline(f"a failed write to {self.name} could not be undone: {second}")
        if error.errno in NO_SPACE:
            raise StorageError(f"No space left for {self.name}: {error}.") from error
        self.go_offline(f"writing {segment.path(LOG)} failed: {error}")
        raise LogOffline(self.offline) from error

    # ---- truncation

    def begin_truncation(self, offset: int, now_ms: int) -> Truncation | None:
        """Let the log end at `offset`, or before the batch that holds it; None if it does not reach so far.

        From now on the log is the shorter one, and takes no change until `finish_truncation`. The caller runs the
        truncation in a thread in between.
        """
        self._refuse_changes()
        if offset >= self.end_offset:
            return None
        try:
            index, position, end_offset = find_cut(self.segments, self.disk, offset)
        except (OSError, CorruptionError) as error:
            self.go_offline(f"the end of its truncation could not be found: {error}")
            raise LogOffline(self.offline) from error
        if min(offset, end_offset) < self.start_offset:
            # Only where records were lost that had been seen: there is nothing to keep.
            return self.begin_restart(min(offset, end_offset), now_ms)
        segments, last = self.segments, self.segments[index]
        if not position:
            return self._begin(
                KeptSegments(segments[:index], None, None), segments[index:], end_offset, now_ms
            )
        if position == last.size and last is not self.active:
            kept = KeptSegments(segments[: index + 1], None, None)
            return self._begin(kept, segments[index + 1 :], end_offset, now_ms)
        cut = self.new_segment(last.base_offset, now_ms)
        cut.become_cut(last, position, end_offset)
        held = [sealed.file for sealed in self.sealed if sealed.segment is last]
        kept = KeptSegments([*segments[:index], cut], cut, held[0] if held else last.file)
        last.removed = True
        last.file = None
        return self._begin(kept, segments[index + 1 :], end_offset, now_ms)

    def begin_restart(self, offset: int, now_ms: int) -> Truncation:
        """Let the log begin again at `offset`, empty. Otherwise as `begin_truncation`."""
        self._refuse_changes()
        if self._create_directory is not None:
            self._create_files(self._create_directory)
        removed = [*self.pending_delete, *self.segments]
        self.pending_delete = []
        self.start_offset = offset
        return self._begin(KeptSegments([], None, None), removed, offset, now_ms, restarts=True)

    def _begin(
        self,
        kept: KeptSegments,
        removed: list[Segment],
        end_offset: int,
        now_ms: int,
        *,
        restarts: bool = False,
    ) -> Truncation:
        # ORDER: FIRST of all, for from here on no thread writes what it prepared earlier.
        self.generation += 1
        self.close_guard.generation = self.generation
        # What was stable stays so, unless a marker may go that was visible.
        stable = self.last_stable_offset if end_offset >= self.high_watermark else self.start_offset
        for segment in removed:
            segment.removed = True
            segment.file = None
        active = self.new_segment(end_offset, now_ms)
        # In place: a thread that removes files looks at this very list.
        self.segments[:] = [*kept.segments, active]
        staying = {id(segment) for segment in (*self.segments, *self.pending_delete)}
        self.sealed = [sealed for sealed in self.sealed if id(sealed.segment) in staying]
        self.end_offset = end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        high_watermark = end_offset if restarts else min(self.high_watermark, end_offset)
        self.visibility.recover(high_watermark, end_offset, [(end_offset, stable)])
        epochs_before = self.epochs.encode()
        self.epochs.truncate_from_end(0 if restarts else end_offset)
        self.corrupt = [] if restarts else truncate_ranges(self.corrupt, end_offset)
        self.recent_positions.clear()
        self.durable_segment = -1
        snapshots = self.snapshots
        self.snapshots = snapshots.up_to(-1 if restarts else end_offset)
        self.truncation = Truncation(
            self.partition_dir,
            self.config,
            kept=kept,
            removed=removed,
            active=active,
            sealed=list(self.sealed),
            kept_snapshots=self.snapshots,
            removed_snapshots=[
                snapshots.path(one) for one in snapshots.offsets if one not in self.snapshots.offsets
            ],
            epochs_before=epochs_before,
            epochs=self.epochs.encode(),
            start_offset=self.start_offset,
            high_watermark=high_watermark,
            restarts=restarts,
        )
        return self.truncation

    def finish_truncation(
        self, truncation: Truncation, now_ms: int, error: BaseException | None = None
    ) -> None:
        """Take over what `truncation.run` found, and take changes again. With its `error` the log goes offline."""
        if error is not None:
            self.go_offline(f"it could not be truncated: {error}")
        if self.offline is not None or truncation.flush is None:
            return
        self.truncation = None
        self.has_truncation_note = True
        self.producers = truncation.producers
        self.visibility.recover(self.high_watermark, self.end_offset, truncation.ended)
        self.flushed(truncation.flush, now_ms)
