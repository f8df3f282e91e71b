"""What must hold of a log beside the model of it, whatever happened to it.

`check` may be asked at any time. With `is_new` a process has just opened the log, and the model goes on from what it
found.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from flintmq.effects import read_file
from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import BatchHeader, crc_is_right
from flintmq.storage import reader
from flintmq.storage.indexes import OffsetIndex, TimeIndex
from flintmq.storage.log import Log
from flintmq.storage.segment import INDEX, TIME_INDEX, FileRange, Segment
from flintmq.storage.timestamp_lookup import offset_for_time
from flintmq.storage.visibility import Isolation
from support.log.committed import read_committed
from support.log.model import LogModel, Told, Written
from support.wire.batches import split

PLENTY = 1 << 30
Reading = tuple[FileRange, bytes]
"""A range on its way to a client, and the bytes that it had at first."""


def check(
    model: LogModel, log: Log, random: Random, *, is_new: bool = False, readings: Sequence[Reading] = ()
) -> None:
    """The log holds what the model says; a new process goes on from what it found."""
    batches = read_batches(model, log)
    assert log.topic_id == model.topic_id
    _check_written(model, log, batches, is_new=is_new)
    if is_new:
        _check_survivors(model, log)
        if model.is_replica:
            assert log.start_offset <= log.high_watermark <= max(model.high_watermark_max, log.start_offset)
        else:
            assert log.high_watermark == log.end_offset
        assert (
            model.start_acknowledged <= log.start_offset <= max(model.start_asked, model.start_acknowledged)
        )
        model.resume(batches, start=log.start_offset, end=log.end_offset)
    assert log.end_offset == model.end
    assert log.recovery_point <= log.end_offset
    assert not log.corrupt, f"sound records are called damaged: {log.corrupt}"
    found = records_in(log, batches)
    _check_records(model, log, batches, found)
    _check_visible(log)
    # Of a transaction whose batches were compacted away and whose marker was cut off since, nothing need be known.
    if log.truncation is None and not model.compacted_away:
        _check_producers(model, log)
        _check_stable(model, log)
    if model.markers:
        _check_committed(model, log, found, random)
    for part, data in readings:
        assert part.read() == data, "a reader was given other bytes than those it asked for"
    if log.start_offset:
        with pytest.raises(RequestError, match=ErrorCode.OFFSET_OUT_OF_RANGE.name):
            reader.read(log, log.start_offset - 1, 1, Isolation.LOG_END, at_least_one=True)
    if is_new:
        _check_indexes(model, log, batches, random)
        _check_epochs(log, batches)


def learn(model: LogModel, log: Log) -> None:
    """What anybody may know of the log at this moment, before it is checked or crashes."""
    if log.topic_id == model.topic_id and log.offline is None:
        model.promised = max(model.promised, min(log.recovery_point, model.end))
        model.start_asked = max(model.start_asked, log.start_offset)
        model.high_watermark_max = max(model.high_watermark_max, log.high_watermark)
        model.first_dirty = max(model.first_dirty, log.first_dirty_offset)


def read_batches(model: LogModel, log: Log) -> list[Written]:
    """Everything a replica could fetch, batch by batch."""
    found: list[Written] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = reader.read(log, offset, PLENTY, Isolation.LOG_END, at_least_one=True)
        if part is None:
            assert model.is_replica or log.end_offset <= model.cleaned_below, (
                f"nothing from {offset} to {log.end_offset}"
            )
            break
        batches = split(part.read())
        assert sum(len(data) for _, data in batches) == part.size, "a torn batch is served"
        for header, data in batches:
            assert header.last_offset >= offset, "batches are out of order"
            offset = header.last_offset + 1
            found.append(Written(header, data))
    return found


def records_in(log: Log, batches: Sequence[Written]) -> dict[int, Told]:
    """By offset, from the start of the log on."""
    found: dict[int, Told] = {}
    for written in batches:
        for offset, told in written.records.items():
            if offset >= log.start_offset:
                assert offset not in found
                found[offset] = told
    return found


def _check_written(model: LogModel, log: Log, batches: list[Written], *, is_new: bool) -> None:
    """Where no compaction was: only what was written, whole, in order, without a gap."""
    candidates = {written.data for written in model.ghosts} if is_new else set()
    told = {written.base: written for written in model.batches}
    untouched = model.untouched(batches)
    expected = max(log.start_offset, model.cleaned_below)
    for written in untouched:
        if is_new:
            assert crc_is_right(memoryview(written.data), written.header.crc)
        if model.is_replica:
            assert written.base >= expected or written is untouched[0]
        else:
            assert written.base <= expected if written is untouched[0] else written.base == expected
        original = told.get(written.base)
        is_original = original is not None and original.data == written.data
        assert is_original or written.data in candidates, f"offset {written.base} holds what nobody wrote"
        # What was promised is the very thing.
        assert is_original or written.end > model.promised
        expected = written.end
    if model.is_replica:
        assert log.end_offset >= expected or not untouched
    elif untouched:
        assert log.end_offset == expected
    else:
        assert log.end_offset <= expected


def _check_survivors(model: LogModel, log: Log) -> None:
    """If only the process died all that was written is there, else all that was promised."""
    survivors = model.promised if model.power_was_lost else model.end
    assert log.end_offset >= survivors, f"{log.name} ends at {log.end_offset}; {survivors} was safe"
    assert log.end_offset <= max([model.end, *(ghost.end for ghost in model.ghosts)])


def _check_records(model: LogModel, log: Log, batches: list[Written], found: dict[int, Told]) -> None:
    records, markers = model.records, model.markers
    for offset, told in found.items():
        assert told == records[offset], f"offset {offset} holds what nobody wrote"
    for written in batches:
        if written.header.is_control:
            marker = markers[written.base].marker
            assert (written.header.producer_id, written.header.producer_epoch) == (
                marker.producer_id,
                marker.epoch,
            )
    back = model.gone & found.keys()
    assert not back, f"offsets {sorted(back)} came back"
    _check_missing(model, log, records, found)
    below = [told.key for offset, told in found.items() if offset < model.first_dirty]
    assert not model.config.compacts or len(set(below)) == len(below), "a key is twice in the clean part"


def _check_missing(model: LogModel, log: Log, records: dict[int, Told], found: dict[int, Told]) -> None:
    """Only what a newer record of its key replaced may be missing, and tombstones; with it all before it.

    Records of aborted transactions may be missing, and replace none; those of open ones do not either.
    """
    aborted = model.aborted()
    counts_not = aborted | model.undecided()
    newest: dict[bytes | None, int] = {}
    for offset, told in records.items():
        if offset < model.cleaned_below and offset not in counts_not:
            newest[told.key] = offset
    oldest: dict[bytes | None, int] = {}
    for offset in sorted(found.keys() - counts_not, reverse=True):
        oldest[found[offset].key] = offset
    for offset, told in records.items():
        if offset < log.start_offset or offset in found or offset in model.compacted_away:
            continue
        assert model.config.compacts, f"offset {offset} is lost"
        assert offset < model.cleaned_below, f"offset {offset} is lost without compaction"
        if offset not in aborted:
            assert newest.get(told.key, -1) > offset or told.value is None, (
                f"offset {offset}, the newest of {told.key!r}, is lost"
            )
            assert oldest.get(told.key, offset) >= offset, f"{told.key!r} has an older value than it had"
        model.gone.add(offset)


def _check_producers(model: LogModel, log: Log) -> None:
    """A retry is known, and nothing is taken for a retry that was not written.

    Of older batches than a producer's last one, compaction may have taken what is known: they are refused then.
    """
    oldest = log.segments[0].base_offset
    for producer_id in model.producer_ids():
        mine = model.last_of(producer_id)
        for written in mine:
            if written.base < oldest:
                continue  # its records are deleted, and it may be forgotten with them
            may_be_refused = written is not mine[-1] and model.cleaned_below > 0
            try:
                known = log.producers.check(written.header)
            except RequestError:
                assert may_be_refused, f"the batch at {written.base} would be refused"
                continue
            assert known is not None, f"the batch at {written.base} would be written twice"
            assert (known.first_offset, known.last_offset + 1) == (written.base, written.end)
    places = {(w.base, w.end, w.header.producer_id, w.header.base_sequence) for w in model.batches}
    for producer in log.producers:
        for batch in producer.batches:
            place = (batch.first_offset, batch.last_offset + 1, producer.producer_id, batch.first_sequence)
            assert batch.first_offset < oldest or place in places, "a batch is remembered that is not there"


def _check_visible(log: Log) -> None:
    """A consumer sees nothing from the high watermark on."""
    for segment in log.segments:
        offset = max(segment.base_offset, log.start_offset)
        if offset < log.high_watermark:
            part = reader.read(log, offset, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
            for header, _ in split(part.read()) if part else ():
                assert header.last_offset < log.high_watermark, "what may still be lost is visible"


def _check_stable(model: LogModel, log: Log) -> None:
    """The last stable offset is where the first transaction began that is open, or whose marker may be lost.

    What was forgotten with deleted records may be left out.
    """
    lowest = highest = log.high_watermark
    for one in model.transactions():
        if one.marker_offset is not None and one.marker_offset < log.high_watermark:
            continue
        bases = [header.base_offset for header in one.batches]
        lowest = min(lowest, bases[0])
        highest = min([highest, *(base for base in bases if base >= log.segments[0].base_offset)])
    lowest, highest = max(lowest, log.start_offset), max(highest, log.start_offset)
    assert lowest <= log.last_stable_offset <= highest, (
        f"stable up to {log.last_stable_offset}, which should be {lowest} to {highest}"
    )


def _check_committed(model: LogModel, log: Log, found: dict[int, Told], random: Random) -> None:
    """Who reads committed records gets those, whatever else there is, from wherever and in whatever pieces."""
    aborted = model.aborted()
    expected = {
        offset: told
        for offset, told in found.items()
        if offset < log.last_stable_offset and offset not in aborted
    }
    middle = random.randrange(log.start_offset, max(log.end_offset, log.start_offset + 1))
    for offset, max_bytes in ((log.start_offset, 300), (middle, PLENTY)):
        records = read_committed(log, offset, max_bytes)
        got = {record.offset: Told(record.key, record.value, record.timestamp) for record in records}
        assert got == {at: told for at, told in expected.items() if at >= offset}, (
            f"another view of what is committed from offset {offset} on"
        )


def _check_indexes(model: LogModel, log: Log, batches: list[Written], random: Random) -> None:
    """The indexes lead where a walk from the beginning leads."""
    for segment in log.segments:
        walked = list(segment.walk(0))
        assert segment.max_timestamp == max((h.max_timestamp for _, h in walked), default=-1)
        _check_entries(log, segment, dict(walked))
        for position, header in random.sample(walked, min(2, len(walked))):
            for offset in (header.base_offset, header.last_offset):
                assert segment.locate(log.disk, offset) == (position, header)
    if not batches or model.cleaned_below:
        return
    timestamp = random.choice(batches).header.max_timestamp + random.choice((0, 0, 1))
    first = next((w for w in batches if w.header.max_timestamp >= timestamp), None)
    answer = offset_for_time(log, timestamp)
    assert (answer.offset if answer else None) == (max(first.base, log.start_offset) if first else None)


def _check_entries(log: Log, segment: Segment, headers: dict[int, BatchHeader]) -> None:
    offsets, times = segment.offset_index, segment.time_index
    if offsets is None or times is None:
        offsets = OffsetIndex.decode(read_file(log.disk, segment.path(INDEX)))
        times = TimeIndex.decode(read_file(log.disk, segment.path(TIME_INDEX)))
    for relative, position in zip(offsets.offsets, offsets.positions, strict=True):
        assert headers[position].last_offset == segment.base_offset + relative
    assert times.is_sound()
    by_last = {header.last_offset: header for header in headers.values()}
    for timestamp, relative in zip(times.timestamps, times.offsets, strict=True):
        assert by_last[segment.base_offset + relative].max_timestamp == timestamp


def _check_epochs(log: Log, batches: list[Written]) -> None:
    for written in batches:
        at = max(written.base, log.start_offset)
        assert log.epochs.epoch_of(at) == written.header.leader_epoch
