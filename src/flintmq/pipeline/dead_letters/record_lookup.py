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
from flintmq.pipeline.dead_letters.staging import RejectedRecord
from flintmq.records.topic_partition import TopicPartition

_COLUMNS: Final = ("key", "value", "headers", "offset")
_GAP_MAX: Final = 2000
"""Records that are nearer to each other are fetched with what lies between them."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    rejected: RejectedRecord
    """Where the record was first, and why it is dead."""
    topic_partition: TopicPartition
    offset: int
    """Where it was found now."""
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Mapping[str, Any]] = ()
    attempt: int = 1
    is_lost: bool = False


class RecordLookup(Protocol):
    def find(self, rejected: Sequence[RejectedRecord]) -> list[DeadLetter]: ...


class SourceTopicLookup:
    """Records of the topics that sources read."""

    def __init__(self, client: ClusterClient, options: SourceOptions) -> None:
        self._client = client
        # What is gone is told in the letter; the others are to be published all the same.
        self._options = replace(options, fail_on_loss=False)

    def find(self, rejected: Sequence[RejectedRecord]) -> list[DeadLetter]:
        by_partition: dict[TopicPartition, set[int]] = {}
        for one in rejected:
            if not one.is_whole:
                by_partition.setdefault((one.topic, one.partition), set()).add(one.offset)
        found: dict[tuple[TopicPartition, int], Mapping[str, Any]] = {}
        for partition, offsets in by_partition.items():
            wanted = np.array(sorted(offsets), np.int64)
            for start, end in _spans(wanted.tolist()):
                for row in self._read(partition, start, end, wanted):
                    found[partition, row["offset"]] = row
        return [
            self._dead_letter(one, found.get(((one.topic, one.partition), one.offset))) for one in rejected
        ]

    @staticmethod
    def _dead_letter(rejected: RejectedRecord, row: Mapping[str, Any] | None) -> DeadLetter:
        partition = (rejected.topic, rejected.partition)
        if rejected.is_whole:
            return DeadLetter(
                rejected,
                partition,
                rejected.offset,
                rejected.key,
                rejected.value,
                rejected.headers or (),
            )
        if row is None:
            return DeadLetter(rejected, partition, rejected.offset, is_lost=True)
        return DeadLetter(
            rejected, partition, rejected.offset, row["key"], row["value"], row["headers"] or ()
        )

    def _read(
        self, partition: TopicPartition, start: int, end: int, offsets: npt.NDArray[np.int64]
    ) -> Iterator[Mapping[str, Any]]:
        try:
            topic_id = self._client.topic(partition[0]).id
        except NoSuchTopic:
            return
        wanted = OffsetRange(partition[0], topic_id, partition[1], start, end)
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
