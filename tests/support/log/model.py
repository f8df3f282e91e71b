"""A plain model of one log: what was written to it, and what clients and operators were told.

Which records are safe, where the log begins, below which offset no key is there twice, which transactions ended how.
Everything is worked out from scratch when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flintmq.records.batch import BatchHeader
from flintmq.records.markers import Marker
from flintmq.settings import TopicConfig

BATCHES_REMEMBERED = 5


class Told(NamedTuple):
    """A record as its producer sent it."""

    key: bytes | None
    value: bytes | None
    timestamp: int


class Ended(NamedTuple):
    """A marker as it was written."""

    marker: Marker
    timestamp: int


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
class Model:
    topic_id: bytes
    config: TopicConfig
    records: dict[int, Told] = field(default_factory=dict)
    """By offset, whatever has become of them."""
    batches: list[BatchHeader] = field(default_factory=list)
    """Of idempotent and transactional producers."""
    markers: dict[int, Ended] = field(default_factory=dict)
    """By offset."""
    end: int = 0
    promised: int = 0
    """Below this nothing is lost with the power."""
    start_asked: int = 0
    start_acknowledged: int = 0
    cleaned_below: int = 0
    """No compaction may have touched anything from here on."""
    first_dirty: int = 0
    """As the log said when a compaction was over."""
    gone: set[int] = field(default_factory=set)
    """Offsets that were looked for and not found: they stay away."""
    power_was_lost: bool = False

    def copy(self) -> Model:
        return replace(
            self,
            records=dict(self.records),
            batches=list(self.batches),
            markers=dict(self.markers),
            gone=set(self.gone),
        )

    def cut(self, end: int) -> None:
        """What lies from `end` on was lost before it was safe."""
        self.records = {offset: told for offset, told in self.records.items() if offset < end}
        self.batches = [header for header in self.batches if header.last_offset < end]
        self.markers = {offset: ended for offset, ended in self.markers.items() if offset < end}
        self.end = end

    def last_of(self, producer_id: int) -> list[BatchHeader]:
        """The batches of which a repetition may be known: the last five of the producer's latest epoch."""
        epoch = self.epoch_of(producer_id)
        mine = [header for header in self.batches if header.producer_id == producer_id]
        return [header for header in mine if header.producer_epoch == epoch][-BATCHES_REMEMBERED:]

    def epoch_of(self, producer_id: int) -> int:
        written = [header.producer_epoch for header in self.batches if header.producer_id == producer_id]
        ended = [one.marker.epoch for one in self.markers.values() if one.marker.producer_id == producer_id]
        return max(*written, *ended, 0, 0)

    def transactions(self) -> list[Transaction]:
        """All there ever were, the open ones too."""
        found: list[Transaction] = []
        open_ones: dict[int, Transaction] = {}
        events: list[tuple[int, BatchHeader | Ended]] = [
            (header.base_offset, header) for header in self.batches if header.is_transactional
        ]
        for offset, event in sorted([*events, *self.markers.items()], key=lambda one: one[0]):
            if isinstance(event, Ended):
                ended = open_ones.pop(event.marker.producer_id, None)
                if ended is not None:
                    ended.marker_offset, ended.committed = offset, event.marker.committed
            else:
                if event.producer_id not in open_ones:
                    found.append(open_ones.setdefault(event.producer_id, Transaction()))
                open_ones[event.producer_id].batches.append(event)
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
