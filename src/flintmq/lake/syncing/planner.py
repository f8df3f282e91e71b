"""Plans a sync: for each topic the offsets that its table does not have yet, as offset ranges for the workers.

    planner.plan(wanted, topics) -> {topic: SyncPlan}

Invariant: the ranges of a partition follow each other without a hole, from where the table ends to at most the last
stable offset when the plan was made; `next_offsets` is where the table ends once they are in. Ranges end where
segments end, so that the next plan after a kill finds the files that were made before. What retention has deleted
before the table had it is an error or, if that is allowed, a warning that names it; never silence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from flintmq.arrow.scan.data_loss import span
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.planner import Planner
from flintmq.arrow.scan.segment_planner import SegmentFinder, Task, sized_parts, with_files
from flintmq.client.admin.segments import PartitionFiles
from flintmq.client.admin.topics import sizes
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import FlintError, RequestError
from flintmq.lake.limits import SYNC_LIMITS
from flintmq.lake.tables.table import TopicProgress
from flintmq.records.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


class SyncError(FlintError):
    """A topic and its table do not fit; the message says what to do."""


class SyncGap(SyncError):
    """Records are gone from the topic before the table had them."""


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A table as the plan needs to know it."""

    name: str
    progress: TopicProgress | None
    """None if nothing was synced yet."""


@dataclass(frozen=True, slots=True)
class SyncPlan:
    topic: TopicMetadata
    tasks: tuple[Task, ...]
    next_offsets: Mapping[int, int]
    """By partition, all of them."""
    ends: Mapping[int, int]
    """The last stable offsets that were found."""
    log_bytes: int | None = None
    """About how much of the log the tasks read; None if the broker does not say how large partitions are."""

    @property
    def is_complete(self) -> bool:
        """Whether it reaches the ends, not just as far as one commit goes."""
        return all(self.next_offsets[partition] >= end for partition, end in self.ends.items())


class SyncPlanner:
    def __init__(
        self,
        client: ClusterClient,
        options: SourceOptions,
        *,
        piece_bytes: int,
        allow_gaps: bool = False,
        ranges_max: int = SYNC_LIMITS.ranges_max,
    ) -> None:
        self._client = client
        self._planner = Planner(client, options)
        self._segments = SegmentFinder(client, options)
        self._piece_bytes = piece_bytes
        self._allow_gaps = allow_gaps
        self._ranges_max = ranges_max

    def topics(self) -> dict[str, TopicMetadata]:
        return self._planner.topics()

    def ends(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
        """The last stable offsets."""
        return self._planner.latest(self._planner.partitions(topics))

    def starts(self, topics: Mapping[str, TopicMetadata]) -> dict[TopicPartition, int]:
        return self._planner.earliest(self._planner.partitions(topics))

    def plan(
        self, wanted: Mapping[str, SyncRequest], topics: Mapping[str, TopicMetadata]
    ) -> dict[str, SyncPlan | SyncError]:
        """By topic: a plan, or why there can be none. `topics` are as the broker has just told them."""
        partitions = [partition for partition in self._planner.partitions(topics) if partition[0] in wanted]
        earliest = self._planner.earliest(partitions)
        latest = self._planner.latest(partitions)
        ranges: list[OffsetRange] = []
        plans: dict[str, SyncPlan | SyncError] = {}
        for name, table in wanted.items():
            try:
                ranges += [
                    OffsetRange(
                        name,
                        topics[name].id,
                        partition[1],
                        self._start(
                            partition,
                            table,
                            topics[name],
                            earliest[partition],
                            latest[partition],
                        ),
                        latest[partition],
                    )
                    for partition in partitions
                    if partition[0] == name
                ]
            except SyncError as error:
                plans[name] = error
        by_topic: dict[str, list[list[Task]]] = {name: [] for name in wanted if name not in plans}
        new = [one for one in ranges if one.size > 0]
        densities = self._densities({one.topic for one in new}, earliest, latest)
        for pieces in self._pieces(new, densities):
            by_topic[range_of(pieces[0]).topic].append(pieces)
        for name in by_topic:
            chosen = _fair(by_topic[name], self._ranges_max)
            reached = {one.partition: one.start for one in ranges if one.topic == name}
            for task in chosen:
                piece = range_of(task)
                reached[piece.partition] = max(reached[piece.partition], piece.end)
            ends = {one.partition: one.end for one in ranges if one.topic == name}
            plans[name] = SyncPlan(topics[name], tuple(chosen), reached, ends, _log_bytes(chosen, densities))
        return plans

    def _start(
        self,
        partition: TopicPartition,
        table: SyncRequest,
        topic: TopicMetadata,
        earliest: int,
        latest: int,
    ) -> int:
        progress = table.progress
        if progress is not None and progress.topic_id != topic.id.hex():
            raise SyncError(
                f"{topic.name} is not the topic that the table {table.name} was made from: it was deleted and "
                f"made again (its id was {progress.topic_id}, and is {topic.id.hex()}). Sync it to another place "
                "with --to, or move the table away first"
            )
        start = None if progress is None else progress.next_offsets.get(partition[1])
        if start is None:
            return earliest
        if start > latest:
            raise SyncError(
                f"the table {table.name} has {partition[0]}-{partition[1]} up to offset {start - 1}, and the topic "
                f"ends before {latest}: the broker has lost records, or is another one. Look at the broker first; "
                "to go on, sync to another place with --to"
            )
        if start < earliest:
            lost = span(*partition, start, earliest)
            if not self._allow_gaps:
                raise SyncGap(
                    f"{lost} are deleted, and the table {table.name} does not have them: retention was faster than "
                    "the sync. To go on without them use --allow-gaps; to keep more, raise the topic's retention"
                )
            logger.warning("%s are deleted, and the table %s goes on without them", lost, table.name)
        return max(start, earliest)

    def _pieces(
        self, ranges: Sequence[OffsetRange], densities: Mapping[TopicPartition, float]
    ) -> Iterator[list[Task]]:
        """Of each range, in order."""
        found = self._segments.find(ranges)
        for one in ranges:
            files = found.get((one.topic, one.partition))
            cut = cut_at_segments(
                one,
                None if files is None else files.files,
                piece_bytes=self._piece_bytes,
                bytes_per_offset=densities.get((one.topic, one.partition), 0),
            )
            yield [with_files(piece, files) for piece in cut]

    def _densities(
        self,
        topics: set[str],
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, float]:
        """Bytes per offset, of the partitions whose size the broker tells."""
        try:
            told = sizes(self._client, topics)
        except RequestError:
            # Who may read a topic need not see the disks: what is in no segment is one piece then.
            return {}
        return {
            partition: size / max(1, latest[partition] - earliest[partition])
            for partition, size in told.items()
            if partition in latest
        }


def range_of(task: Task) -> OffsetRange:
    return task if isinstance(task, OffsetRange) else task.wanted


def cut_at_segments(
    one: OffsetRange, files: PartitionFiles | None, *, piece_bytes: int, bytes_per_offset: float
) -> list[OffsetRange]:
    """Pieces of up to about `piece_bytes`, of whole segments; a larger one is cut by itself, evenly."""
    pieces: list[OffsetRange] = []
    begun, size = one.start, 0.0
    segments = () if files is None else files.segments
    for start, end, part_size in sized_parts(one, segments, bytes_per_offset):
        if begun < start and size + part_size > piece_bytes:
            pieces.append(one._replace(start=begun, end=start))
            begun, size = start, 0.0
        if part_size > piece_bytes:
            *whole, last = one._replace(start=start, end=end).cut(ceil(part_size / piece_bytes))
            pieces += whole
            begun, size = last.start, part_size / (len(whole) + 1)
        else:
            size += part_size
    if begun < one.end:
        pieces.append(one._replace(start=begun))
    return pieces


def total_bytes(plans: Iterable[SyncPlan]) -> int | None:
    """About how much of the log several plans read; None if that is not known of all of them."""
    found = [one.log_bytes for one in plans]
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def _log_bytes(tasks: Sequence[Task], densities: Mapping[TopicPartition, float]) -> int | None:
    total = 0.0
    for task in tasks:
        piece = range_of(task)
        density = densities.get((piece.topic, piece.partition))
        if density is None:
            return None
        segments = () if isinstance(task, OffsetRange) else task.segments
        total += sum(size for _, _, size in sized_parts(piece, segments, density))
    return ceil(total)


def _fair(by_partition: Sequence[Sequence[Task]], count_max: int) -> list[Task]:
    """The first pieces of each partition, as many of one as of another, in the order of partitions."""
    taken = [0] * len(by_partition)
    left = count_max
    while left > 0 and any(taken[at] < len(pieces) for at, pieces in enumerate(by_partition)):
        for at, pieces in enumerate(by_partition):
            if left > 0 and taken[at] < len(pieces):
                taken[at] += 1
                left -= 1
    return [piece for pieces, count in zip(by_partition, taken, strict=True) for piece in pieces[:count]]
