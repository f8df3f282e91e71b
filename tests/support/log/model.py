"""A plain model of one log: what was written to it, and what clients and operators were told.

Which batches were written, acknowledged, promised to survive a power loss, deleted; below which offset no key is
there twice; which transactions ended how. Everything is worked out from scratch when it is asked for, by other means
than the log's own. What must hold of a log beside its model is in `support.log.checks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from flintmq.records.batch import NO_PRODUCER_ID, BatchHeader, read_header
from flintmq.records.markers import COMMIT, Marker, control_type, coordinator_epoch
from flintmq.records.record import records_of
from flintmq.settings import TopicConfig
from flintmq.storage.log import Log

BATCHES_REMEMBERED = 5
_UNPACKED_MAX = 1 << 20


class Told(NamedTuple):
    """A record as its producer sent it."""

    key: bytes | None
    value: bytes | None
    timestamp: int


class Ended(NamedTuple):
    """A marker as it was written."""

    marker: Marker
    timestamp: int


@dataclass(frozen=True)
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

    @cached_property
    def records(self) -> dict[int, Told]:
        """By offset; a marker has none."""
        if self.header.is_control:
            return {}
        found = [
            (one.offset, Told(one.key, one.value, one.timestamp))
            for one in records_of(self.data, limit=_UNPACKED_MAX)
        ]
        assert len(dict(found)) == len(found), "an offset is there twice"
        return dict(found)

    @cached_property
    def ended(self) -> Ended:
        """Of a batch that is a marker."""
        (record,) = records_of(self.data, limit=_UNPACKED_MAX)
        epoch, kind = coordinator_epoch(record.value), control_type(record.key)
        marker = Marker(self.header.producer_id, self.header.producer_epoch, epoch, kind == COMMIT)
        return Ended(marker, record.timestamp)


def placed(batch: bytes | bytearray, base_offset: int, leader_epoch: int) -> Written:
    """A batch as the log should write it there."""
    data = bytearray(batch)
    data[0:8] = base_offset.to_bytes(8, "big")
    data[12:16] = leader_epoch.to_bytes(4, "big")
    return Written(read_header(data), bytes(data))


@dataclass(slots=True)
class Transaction:
    batches: list[BatchHeader] = field(default_factory=list)
    marker_offset: int | None = None
    committed: bool = False

    @property
    def offsets(self) -> list[int]:
        return [
            offset for header in self.batches for offset in range(header.base_offset, header.last_offset + 1)
        ]


@dataclass(slots=True)
class LogModel:
    """What is known of one log from outside."""

    topic_id: bytes
    config: TopicConfig
    leader_epoch: int = 0
    batches: list[Written] = field(default_factory=list)
    """In order, whatever has become of them, as long as nothing else took their place."""
    ghosts: list[Written] = field(default_factory=list)
    """Batches whose write failed or did not return: they may turn up whole."""
    promised: int = 0
    """Below this nothing is lost with the power: it was acknowledged with `flush.messages=1`, or lies below a
    recovery point."""
    start_asked: int = 0
    start_acknowledged: int = 0
    cleaned_below: int = 0
    """No compaction may have touched anything from here on."""
    first_dirty: int = 0
    """As the log said when a compaction was over."""
    gone: set[int] = field(default_factory=set)
    """Offsets that were looked for and not found: they stay away."""
    power_was_lost: bool = False
    """Since a process last looked at the log."""
    is_replica: bool = False
    """Whether it may have gaps, and records that are not visible, after a start."""
    end_in_gap: int = 0
    """The log ends here at least, whatever batches there are."""
    high_watermark_max: int = 0
    """The highest that the log had, and may have again."""
    compacted_away: frozenset[int] = frozenset()
    """Offsets that were compacted away for the sake of records which a truncation cut off since."""
    whole: LogModel | None = None
    """The log before a truncation that is in progress."""
    restarts: bool = False
    """Whether that lets the log begin again."""

    @property
    def end(self) -> int:
        return max(self.batches[-1].end if self.batches else 0, self.start_asked, self.end_in_gap)

    def copy(self) -> LogModel:
        return replace(self, batches=list(self.batches), ghosts=list(self.ghosts), gone=set(self.gone))

    @property
    def records(self) -> dict[int, Told]:
        """By offset."""
        return {offset: told for written in self.batches for offset, told in written.records.items()}

    @property
    def markers(self) -> dict[int, Ended]:
        """By offset."""
        return {written.base: written.ended for written in self.batches if written.header.is_control}

    def untouched(self, found: list[Written]) -> list[Written]:
        """Those of the batches in the log that no compaction may have changed."""
        return [written for written in found if written.base >= self.cleaned_below]

    def resume(self, found: list[Written], *, start: int, end: int) -> None:
        """Go on from what a new process found, between `start` and `end`."""
        untouched = self.untouched(found)
        boundary = untouched[0].base if untouched else end
        kept = [written for written in self.batches if written.base < boundary and written.end <= end]
        self.batches = kept + untouched
        self.ghosts, self.power_was_lost = [], False
        self.start_asked = self.start_acknowledged = start
        self.promised = min(self.promised, end)
        self.end_in_gap, self.whole = (end if self.is_replica else 0), None
        # No compaction outlives its process.
        self.cleaned_below = min(self.cleaned_below, end)
        if self.config.flush_messages == 1:
            # Recovery syncs what it serves: a retry of it is acknowledged without another write.
            self.promised = end

    # ---- truncation

    def truncate(self, end: int, *, restarts: bool) -> None:
        """Begin a truncation to `end`, which is a batch's end, or lies between two."""
        whole = self.copy()
        whole.power_was_lost, whole.promised = True, 0 if restarts else min(self.promised, end)
        if restarts:
            whole.start_acknowledged, whole.start_asked = 0, max(self.end, end)
        self.whole, self.restarts = whole, restarts
        self.batches = [] if restarts else [written for written in self.batches if written.end <= end]
        self.ghosts = []
        self.end_in_gap = end
        if restarts:
            self.start_asked = self.start_acknowledged = end
        self.promised = min(self.promised, end)
        self.cleaned_below = 0 if restarts else min(self.cleaned_below, end)
        self.compacted_away = frozenset() if restarts else self.compacted_away
        self.first_dirty = min(self.first_dirty, end)
        self.gone = set() if restarts else {offset for offset in self.gone if offset < end}
        self.high_watermark_max = end if restarts else min(self.high_watermark_max, end)

    def found_after_crash(self, log: Log) -> LogModel:
        """Return what a crash within a truncation left: the log before it, as far as it is there, or after it."""
        if self.whole is None:
            return self
        if self.restarts:
            is_done = log.segments[0].base_offset == log.end_offset == self.end
        else:
            is_done = log.end_offset <= self.end
        return self if is_done else self.whole

    # ---- producers

    def producer_ids(self) -> set[int]:
        return {w.header.producer_id for w in self.batches} - {NO_PRODUCER_ID}

    def last_of(self, producer_id: int) -> list[Written]:
        """The batches of which a repetition may be known: the last five of the producer's latest epoch."""
        epoch = self.epoch_of(producer_id)
        mine = [w for w in self.batches if w.header.producer_id == producer_id and not w.header.is_control]
        return [w for w in mine if w.header.producer_epoch == epoch][-BATCHES_REMEMBERED:]

    def epoch_of(self, producer_id: int) -> int:
        """By its batches and its markers."""
        epochs = [w.header.producer_epoch for w in self.batches if w.header.producer_id == producer_id]
        return max(epochs, default=0)

    def remembered(self, from_offset: int) -> list[Written]:
        """The batches from there on of which a repetition may be known."""
        return [w for one in sorted(self.producer_ids()) for w in self.last_of(one) if w.base >= from_offset]

    # ---- transactions

    def transactions(self) -> list[Transaction]:
        """All there ever were, the open ones too."""
        found: list[Transaction] = []
        open_ones: dict[int, Transaction] = {}
        for written in self.batches:
            header = written.header
            if header.is_control:
                ended = open_ones.pop(header.producer_id, None)
                if ended is not None:
                    ended.marker_offset, ended.committed = written.base, written.ended.marker.committed
            elif header.is_transactional:
                if header.producer_id not in open_ones:
                    found.append(open_ones.setdefault(header.producer_id, Transaction()))
                open_ones[header.producer_id].batches.append(header)
        return found

    def aborted(self) -> set[int]:
        """The offsets of records that count for nothing."""
        return {
            offset
            for one in self.transactions()
            if one.marker_offset is not None and not one.committed
            for offset in one.offsets
        }

    def undecided(self) -> set[int]:
        return {offset for one in self.transactions() if one.marker_offset is None for offset in one.offsets}

    def stable(self, first_offset: int) -> int:
        """Below this all is decided, as a log may have it that begins there: what was deleted may be forgotten."""
        undecided = {
            offset
            for one in self.transactions()
            if one.marker_offset is None and one.offsets[-1] >= first_offset
            for offset in one.offsets
        }
        return min(undecided, default=self.end)
