"""What there is to read, asked of the brokers on the driver: topics, starts, ends, times; the tasks of a batch read.

Invariant: no plan goes beyond what the isolation level may see when it is made: the high watermark, or the last
stable offset for committed reads. Asking is one Metadata, one ListOffsets for each broker and each kind of question,
and one DescribeSegments for each broker. This module must not read a record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Final

from flintmq.arrow.scan.data_loss import report_loss, span
from flintmq.arrow.scan.narrowing import Narrowing
from flintmq.arrow.scan.offset_range import OffsetRange, split
from flintmq.arrow.scan.offsets import (
    FROM_EARLIEST,
    FROM_LATEST,
    Bound,
    EdgeBound,
    Offsets,
    OffsetsBound,
    TimestampBound,
    check_complete,
    names,
)
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.segment_planner import SegmentFinder, Task, cut_by_bytes, recent, with_files
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets, sizes
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.client.errors import check
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ConfigurationError, ErrorCode, RequestError
from flintmq.records.topic_partition import TopicPartition

Known = Mapping[int, Mapping[TopicPartition, int]]
"""Offsets that were asked for already: by EARLIEST, by LATEST."""
NOTHING_KNOWN: Final[Known] = {}

_NOT_FOUND: Final = -1


class Planner:
    def __init__(self, client: ClusterClient, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._segments = SegmentFinder(client, options)

    def close(self) -> None:
        self._client.close()

    # ---- what there is

    def topics(self, *, known: Collection[str] = ()) -> dict[str, TopicMetadata]:
        """The topics to read, as they are now. One that is not there is an error, unless it was `known` before."""
        wanted = self._options.topics
        if wanted.pattern is not None:
            pattern = re.compile(wanted.pattern)
            every = self._client.all_topics()
            return {
                name: one for name, one in every.items() if pattern.fullmatch(name) and not one.is_internal
            }
        asked = wanted.names or tuple(dict.fromkeys(topic for topic, _ in wanted.partitions))

        def ask() -> dict[str, TopicMetadata]:
            failed = self._client.refresh(asked)
            for name, code in failed.items():
                if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    check(code, what=f"topic {name}")
                elif name not in known:
                    raise NoSuchTopic(name, self._client.nearest_topic(name))
            return {name: self._client.metadata.topics[name] for name in asked if name not in failed}

        return self._client.attempt(ask)

    def partitions(self, topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
        """Those of the topics that are read."""
        there = [(name, index) for name, topic in topics.items() for index in topic.partitions]
        assigned = self._options.topics.partitions
        if not assigned:
            return sorted(there)
        if missing := [
            partition for partition in assigned if partition[0] in topics and partition not in there
        ]:
            raise ConfigurationError(f"assign names partitions that are not there: {names(missing)}")
        return sorted(set(assigned) & set(there))

    def earliest(self, partitions: Sequence[TopicPartition]) -> Offsets:
        return offsets(self._client, partitions, EARLIEST)

    def latest(self, partitions: Sequence[TopicPartition]) -> Offsets:
        return offsets(self._client, partitions, LATEST, read_committed=self._options.read_committed)

    def since(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Offsets:
        """The first visible record at or after a time, where there is one."""
        found = offsets(self._client, partitions, timestamp_ms, read_committed=self._options.read_committed)
        return {partition: offset for partition, offset in found.items() if offset != _NOT_FOUND}

    # ---- where to start and to end

    def start(
        self, partitions: Sequence[TopicPartition], bound: Bound, known: Known = NOTHING_KNOWN
    ) -> Offsets:
        """`known` are starts and ends that need not be asked for again."""
        if not isinstance(bound, TimestampBound):
            return self._offsets_of(partitions, bound, known)
        found = self._offsets_at(partitions, bound)
        late = [partition for partition in partitions if partition not in found]
        if late and not self._options.late_start_is_latest:
            raise ConfigurationError(
                f"no record is so late as the starting time in {names(late)}; set "
                f"startingOffsetsByTimestampStrategy to latest to start there at the end"
            )
        return {**self._offsets_of(late, FROM_LATEST, known), **found}

    def end(self, partitions: Sequence[TopicPartition], bound: Bound, known: Known) -> Offsets:
        if not isinstance(bound, TimestampBound):
            return self._offsets_of(partitions, bound, known)
        latest = self._offsets_of(partitions, FROM_LATEST, known)
        found = self._offsets_at(partitions, bound)
        return {partition: min(found.get(partition, end), end) for partition, end in latest.items()}

    def _offsets_of(
        self, partitions: Sequence[TopicPartition], bound: EdgeBound | OffsetsBound, known: Known
    ) -> Offsets:
        given = (
            {partition: bound.offsets[partition] for partition in partitions}
            if isinstance(bound, OffsetsBound)
            else dict.fromkeys(partitions, bound.marker)
        )
        for marker, ask in ((EARLIEST, self.earliest), (LATEST, self.latest)):
            marked = [partition for partition, offset in given.items() if offset == marker]
            if marked:
                told = known[marker] if marker in known else ask(marked)
                given |= {partition: told[partition] for partition in marked}
        return given

    def _offsets_at(self, partitions: Sequence[TopicPartition], bound: TimestampBound) -> Offsets:
        if bound.timestamp_ms is not None:
            return self.since(partitions, bound.timestamp_ms)
        found: Offsets = {}
        for timestamp in sorted({bound.by_partition[partition] for partition in partitions}):
            found |= self.since(
                [partition for partition in partitions if bound.by_partition[partition] == timestamp],
                timestamp,
            )
        return found

    # ---- a batch read

    def batch(self, narrowing: Narrowing) -> list[Task]:
        """The tasks of a batch read."""
        options = self._options
        topics = self.topics()
        partitions = self.partitions(topics)
        # Before filters: which partitions are to be listed does not depend on the query.
        check_bound(options.starting, partitions, way="starting")
        check_bound(options.ending, partitions, way="ending")
        wanted = [partition for partition in partitions if narrowing.admits(*partition)]
        earliest, latest = self.earliest(wanted), self.latest(wanted)
        known = {EARLIEST: earliest, LATEST: latest}
        start = self.start(wanted, options.starting or FROM_EARLIEST, known)
        end = self.end(wanted, options.ending, known)
        since = {} if narrowing.since_ms is None else self.since(wanted, narrowing.since_ms)
        ranges = []
        for partition in wanted:
            low, high = self._kept(
                partition,
                start[partition],
                end[partition],
                earliest[partition],
                latest[partition],
            )
            if narrowing.since_ms is not None:
                low = max(low, since.get(partition, high))
            low, high = max(low, narrowing.start), min(high, narrowing.end)
            if low < high:
                ranges.append(OffsetRange(partition[0], topics[partition[0]].id, partition[1], low, high))
        return self.tasks(
            ranges,
            bytes_per_offset=self._bytes_per_offset(ranges, earliest, latest),
            since_ms=narrowing.since_ms,
        )

    def _kept(
        self, partition: TopicPartition, start: int, end: int, earliest: int, latest: int
    ) -> tuple[int, int]:
        """What of a range is there; what is not is reported."""
        fail = self._options.fail_on_loss
        if start < earliest:
            lost = span(*partition, start, min(end, earliest))
            report_loss(f"{lost} are deleted: the partition begins at {earliest}", fail=fail)
        if end > latest or start > latest:
            lost = span(*partition, max(start, latest), max(end, start + 1))
            report_loss(f"{lost} are not there: the partition ends before {latest}", fail=fail)
        return max(start, earliest), min(end, latest)

    def _bytes_per_offset(
        self, ranges: Sequence[OffsetRange], earliest: Offsets, latest: Offsets
    ) -> dict[TopicPartition, float]:
        """On disk; of partitions whose size the broker tells. Asked only if nobody has said how to split."""
        if not self._is_split_by_bytes or not ranges:
            return {}
        try:
            told = sizes(self._client, dict.fromkeys(one.topic for one in ranges))
        except RequestError:
            # A client may read a topic without being allowed to see the disks: then a partition is one task.
            return {}
        return {
            partition: size / (latest[partition] - earliest[partition])
            for partition, size in told.items()
            if latest.get(partition, 0) > earliest.get(partition, 0)
        }

    @property
    def _is_split_by_bytes(self) -> bool:
        return not (self._options.tasks_min or self._options.records_per_task_max)

    def tasks(
        self,
        ranges: Sequence[OffsetRange],
        *,
        bytes_per_offset: Mapping[TopicPartition, float] | None = None,
        since_ms: int | None = None,
    ) -> list[Task]:
        """Split as the options say; without a word of theirs, by the bytes that an offset takes.

        Segments whose records are all before `since_ms` are left out.
        """
        task_bytes = self._options.limits.task_bytes
        found = self._segments.find(ranges)
        parts: list[OffsetRange] = []
        for one in ranges:
            partition = (one.topic, one.partition)
            expected = (bytes_per_offset or {}).get(partition)
            if partition not in found:
                parts += one.cut(ceil(one.size * (expected or 0.0) / task_bytes))
                continue
            files = found[partition].files
            for left in recent(one, files, since_ms):
                if self._is_split_by_bytes:
                    parts += cut_by_bytes(left, files, task_bytes=task_bytes, bytes_per_offset=expected)
                else:
                    parts.append(left)
        options = self._options
        parts = split(parts, records_max=options.records_per_task_max, count_min=options.tasks_min)
        return [with_files(one, found.get((one.topic, one.partition))) for one in parts]


def check_bound(bound: Bound | None, partitions: Sequence[TopicPartition], *, way: str) -> None:
    """A list of offsets or times must fit the partitions that are read."""
    if isinstance(bound, OffsetsBound):
        check_complete(bound.offsets, partitions, what=f"{way}Offsets")
    elif isinstance(bound, TimestampBound) and bound.timestamp_ms is None:
        check_complete(bound.by_partition, partitions, what=f"{way}OffsetsByTimestamp")
