"""What is known of a log from outside, and the comparison of a log with it.

The story of a log is what a client and an operator know: which batches were written, acknowledged, promised to
survive a power loss, deleted. It is told in bytes and offsets, by other means than the log's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from flintmq.effects import read_file
from flintmq.records.batch import NO_PRODUCER_ID, BatchHeader, crc_is_right
from flintmq.settings import TopicConfig
from flintmq.storage import reader
from flintmq.storage.indexes import OffsetIndex, TimeIndex
from flintmq.storage.log import Log
from flintmq.storage.segment import INDEX, TIME_INDEX, Segment
from flintmq.storage.timestamp_lookup import offset_for_time
from flintmq.storage.visibility import Isolation
from support.wire.batches import split

BATCHES_REMEMBERED = 5
_EVERYTHING = 1 << 30


@dataclass(frozen=True, slots=True)
class Written:
    """A batch at its place in the log, as it was handed to the disk."""

    header: BatchHeader
    data: bytes

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.last_offset + 1


@dataclass(slots=True)
class Story:
    """What is known of one log from outside."""

    topic_id: bytes
    config: TopicConfig
    epoch: int = 0
    batches: list[Written] = field(default_factory=list)
    """In order; those below the start too, as long as nothing else took their place."""
    ghosts: list[Written] = field(default_factory=list)
    """Batches whose write failed or did not return: they may turn up whole."""
    promised: int = 0
    """Below this everything was acknowledged with `flush.messages=1`, or lies below a recovery point."""
    start_asked: int = 0
    start_acknowledged: int = 0
    power_was_lost: bool = False
    """Since a process last looked at the log."""

    @property
    def end(self) -> int:
        return max(self.batches[-1].end if self.batches else 0, self.start_asked)

    def copy(self) -> Story:
        return replace(self, batches=list(self.batches), ghosts=list(self.ghosts))


def remembered(story: Story, from_offset: int) -> list[Written]:
    """The batches of which a repetition must be known: the last five of each producer's latest epoch."""
    latest: dict[int, list[Written]] = {}
    for written in story.batches:
        header = written.header
        if header.producer_id == NO_PRODUCER_ID:
            continue
        mine = latest.setdefault(header.producer_id, [])
        if mine and mine[-1].header.producer_epoch != header.producer_epoch:
            mine.clear()
        mine.append(written)
    return [w for mine in latest.values() for w in mine[-BATCHES_REMEMBERED:] if w.base >= from_offset]


def read_all(log: Log) -> list[Written]:
    """Everything a replica could fetch, batch by batch."""
    found: list[Written] = []
    offset = log.start_offset
    while offset < log.end_offset:
        part = reader.read(log, offset, _EVERYTHING, Isolation.LOG_END, at_least_one=True)
        assert part is not None, f"nothing at offset {offset}, before the end {log.end_offset}"
        batches = split(part.read())
        assert sum(len(data) for _, data in batches) == part.size, "a torn batch is served"
        found += [Written(header, data) for header, data in batches]
        offset = found[-1].end
    return found


def check(story: Story, log: Log, random: Random) -> None:
    """What was found must be what the story tells; then the story goes on from there."""
    found = read_all(log)
    candidates = {written.data for written in story.ghosts}
    told = {written.base: written for written in story.batches}
    assert log.topic_id == story.topic_id
    assert log.high_watermark == log.last_stable_offset == log.end_offset
    # (d) nothing deleted comes back, nothing else is deleted
    assert story.start_acknowledged <= log.start_offset <= max(story.start_asked, story.start_acknowledged)
    # (c) only what was written, whole, in order, without a gap
    expected = log.start_offset
    for written in found:
        assert crc_is_right(memoryview(written.data), written.header.crc)
        assert written.base <= expected if written is found[0] else written.base == expected
        original = told.get(written.base)
        is_original = original is not None and original.data == written.data
        assert is_original or written.data in candidates, f"offset {written.base} holds what nobody wrote"
        # (b) and what was promised is the very thing
        assert is_original or written.end > story.promised
        expected = written.end
    assert log.end_offset == expected
    # (a) the process alone died: all that was written is there; (b) else all that was promised
    survivors = story.promised if story.power_was_lost else story.end
    assert log.end_offset >= survivors, f"{log.name} ends at {log.end_offset}; {survivors} was safe"
    story.batches = [w for w in story.batches if w.end <= log.start_offset] + found
    story.ghosts, story.power_was_lost = [], False
    story.start_asked = story.start_acknowledged = log.start_offset
    story.promised = min(story.promised, log.end_offset)
    if log.config.flush_messages == 1:
        # All that is visible now is on disk, or a retry would be acknowledged in vain.
        story.promised = log.end_offset
    check_producers(story, log)
    check_indexes(log, found, random)
    check_epochs(log, found)


def check_producers(story: Story, log: Log) -> None:
    """(e) A retry is known, and nothing is taken for a retry that is not in the log."""
    oldest = log.segments[0].base_offset
    for written in remembered(story, oldest):
        known = log.producers.check(written.header)
        assert known is not None, f"the batch at {written.base} would be written twice"
        assert (known.first_offset, known.last_offset + 1) == (written.base, written.end)
    places = {(w.base, w.end, w.header.producer_id, w.header.base_sequence) for w in story.batches}
    for producer in log.producers:
        for batch in producer.batches:
            place = (batch.first_offset, batch.last_offset + 1, producer.producer_id, batch.first_sequence)
            assert batch.first_offset < oldest or place in places, "a batch is remembered that is not there"


def check_indexes(log: Log, found: list[Written], random: Random) -> None:
    """(f) The indexes lead where a walk from the beginning leads."""
    for segment in log.segments:
        walked = list(segment.walk(0))
        assert segment.max_timestamp == max((h.max_timestamp for _, h in walked), default=-1)
        _check_entries(log, segment, dict(walked))
        for position, header in random.sample(walked, min(2, len(walked))):
            for offset in (header.base_offset, header.last_offset):
                assert segment.locate(log.disk, offset) == (position, header)
    if not found:
        return
    timestamp = random.choice(found).header.max_timestamp + random.choice((0, 0, 1))
    first = next((w for w in found if w.header.max_timestamp >= timestamp), None)
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


def check_epochs(log: Log, found: list[Written]) -> None:
    for written in found:
        at = max(written.base, log.start_offset)
        assert log.epochs.epoch_of(at) == written.header.leader_epoch
