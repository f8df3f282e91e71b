"""The records that dead letters are about, fetched again from where they are.

A worker that decodes has the record at hand; one that judges a step's rows can only name it, for carrying every value
along in case its row turned out to be bad would cost more than all the rest. Invariant: a letter for every record
that is dead, in order; one whose record is gone, by retention or compaction, is empty and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.range_reader import read_range
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.pipeline.dead_letters.staging import Dead
from flintmq.records.topic_partition import TopicPartition

_COLUMNS: Final = ("key", "value", "headers", "offset")
_GAP_MAX: Final = 2000
"""Records that are nearer to each other are fetched with what lies between them."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    dead: Dead
    """Where the record was first, and why it is dead."""
    place: TopicPartition
    offset: int
    """Where it was found now."""
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Mapping[str, Any]] = ()
    attempt: int = 1
    is_lost: bool = False


class Originals(Protocol):
    def find(self, dead: Sequence[Dead]) -> list[DeadLetter]: ...


class InTheirTopics:
    """Records of the topics that sources read."""

    def __init__(self, client: ClusterClient, options: SourceOptions) -> None:
        self._client = client
        # What is gone is told in the letter; the others are to be published all the same.
        self._options = replace(options, fail_on_loss=False)

    def find(self, dead: Sequence[Dead]) -> list[DeadLetter]:
        by_place: dict[TopicPartition, set[int]] = {}
        for one in dead:
            if not one.is_whole:
                by_place.setdefault((one.topic, one.partition), set()).add(one.offset)
        found: dict[tuple[TopicPartition, int], Mapping[str, Any]] = {}
        for place, offsets in by_place.items():
            wanted = np.array(sorted(offsets), np.int64)
            for start, end in _spans(wanted.tolist()):
                for row in self._read(place, start, end, wanted):
                    found[place, row["offset"]] = row
        return [self._letter(one, found.get(((one.topic, one.partition), one.offset))) for one in dead]

    @staticmethod
    def _letter(dead: Dead, row: Mapping[str, Any] | None) -> DeadLetter:
        place = (dead.topic, dead.partition)
        if dead.is_whole:
            return DeadLetter(dead, place, dead.offset, dead.key, dead.value, dead.headers or ())
        if row is None:
            return DeadLetter(dead, place, dead.offset, is_lost=True)
        return DeadLetter(dead, place, dead.offset, row["key"], row["value"], row["headers"] or ())

    def _read(
        self, place: TopicPartition, start: int, end: int, offsets: npt.NDArray[np.int64]
    ) -> Iterator[Mapping[str, Any]]:
        try:
            topic_id = self._client.topic(place[0]).id
        except NoSuchTopic:
            return
        wanted = OffsetRange(place[0], topic_id, place[1], start, end)
        for batch in read_range(wanted, _COLUMNS, self._options):
            chosen = np.isin(batch.column("offset").to_numpy(), offsets)
            yield from batch.filter(pa.array(chosen)).to_pylist()


def _spans(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ranges with all of these ascending offsets in them, and not much else."""
    start = end = -1
    for offset in offsets:
        if start >= 0 and offset - end > _GAP_MAX:
            yield start, end
            start = -1
        if start < 0:
            start = offset
        end = offset + 1
    if start >= 0:
        yield start, end
