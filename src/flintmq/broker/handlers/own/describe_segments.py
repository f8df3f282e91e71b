"""DescribeSegments (15004), version 0, of FlintMQ's own: which files hold a range of offsets (P2).

For readers that share this broker's disk. The response lists segments that are complete and wholly visible and, if
the request asks for it, the active segment as far as the isolation level may see it. Damaged segments are left out;
what is not listed is to be fetched. A segment may be deleted or compacted at any time: the reader opens the file,
checks it against the response, and fetches what has changed. Aborted transactions are those of the listed segments.

What concerns the active segment is in tagged fields: clients and brokers of either age understand each other, and
these APIs are not negotiated. The index of an active segment is in memory only, so the response has a sample of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_allowed
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode, FlintError, error_code_of
from flintmq.partitions.leadership import led_partition
from flintmq.protocol.messages import DescribeSegmentsRequest, DescribeSegmentsResponse
from flintmq.security.authorization.model import AclOperation, AclResource
from flintmq.storage.aborted_transactions import AbortedTransaction
from flintmq.storage.log import Log
from flintmq.storage.reader import aborted_between, end_position
from flintmq.storage.segment import Segment as LogSegment
from flintmq.storage.segment import segment_index
from flintmq.storage.visibility import Isolation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = DescribeSegmentsRequest.SegmentsPartition
Topic = DescribeSegmentsResponse.DescribedTopic
Partition = DescribeSegmentsResponse.DescribedPartition
Segment = DescribeSegmentsResponse.DescribedSegment
IndexEntry = DescribeSegmentsResponse.SegmentIndexEntry
Aborted = DescribeSegmentsResponse.AbortedTransaction

SEGMENTS_MAX = 100_000
ABORTED_MAX = 100_000
"""Of one response. What does not fit is left out, and so is fetched."""
INDEX_ENTRIES_MAX = 100_000
"""Of one response. Without entries a reader walks through the file from its start."""
SEGMENT_INDEX_ENTRIES_MAX = 256
"""Of one segment: in a segment of 1 GiB there is an entry every 4 to 8 MiB."""


def handle(
    request: Request, message: DescribeSegmentsRequest, services: Services
) -> DescribeSegmentsResponse:
    isolation = Isolation.READ_COMMITTED if message.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    room = _Room()
    topics = []
    for topic in message.topics:
        if not is_allowed(request, services, AclOperation.READ, AclResource.TOPIC, topic.name):
            topics.append(_refusal(topic))
            continue
        known = services.metadata.image.topics.get(topic.name)
        topics.append(
            Topic(
                name=topic.name,
                topic_id=bytes(16) if known is None else known.id,
                partitions=[
                    _describe(
                        topic.name, wanted, isolation, services, room, includes_active=message.includes_active
                    )
                    for wanted in topic.partitions
                ],
            )
        )
    return DescribeSegmentsResponse(topics=topics)


def _refusal(topic: DescribeSegmentsRequest.SegmentsTopic) -> Topic:
    return Topic(
        name=topic.name,
        topic_id=bytes(16),
        partitions=[
            Partition(partition_index=wanted.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for wanted in topic.partitions
        ],
    )


class _Room:
    """What the response may still hold."""

    def __init__(self) -> None:
        self.segments = SEGMENTS_MAX
        self.aborted = ABORTED_MAX
        self.index_entries = INDEX_ENTRIES_MAX


def _describe(
    topic: str,
    wanted: Wanted,
    isolation: Isolation,
    services: Services,
    room: _Room,
    *,
    includes_active: bool,
) -> Partition:
    index = wanted.partition_index
    try:
        log = led_partition(services.partitions, topic, index).log
    except FlintError as error:
        return Partition(partition_index=index, error_code=error_code_of(error))
    described = Partition(
        partition_index=index,
        error_code=ErrorCode.NONE,
        folder=os.path.abspath(log.directory),
        start_offset=log.start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
    )
    segments = _PartitionSegments(described, log, wanted, room, isolation)
    if segments.add_complete() and includes_active:
        segments.add_active()
    return described


class _PartitionSegments:
    """Adds the segments of one partition to its description."""

    def __init__(
        self, described: Partition, log: Log, wanted: Wanted, room: _Room, isolation: Isolation
    ) -> None:
        self._described = described
        self._log = log
        self._start = wanted.start_offset
        self._is_committed = isolation is Isolation.READ_COMMITTED
        self._visible = described.last_stable_offset if self._is_committed else described.high_watermark
        self._end = min(wanted.end_offset, self._visible)
        self._room = room
        # A transaction may span several segments.
        self._added: set[AbortedTransaction] = set()

    def add_complete(self) -> bool:
        """Return whether segments after these may be described too."""
        segments = self._log.segments
        for at in range(segment_index(segments, self._start), len(segments) - 1):
            segment, end_offset = segments[at], segments[at + 1].base_offset
            if segment.base_offset >= self._end or end_offset > self._visible:
                return False
            if self._is_damaged(segment.base_offset, end_offset) or not segment.size:
                continue
            described = Segment(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size=segment.size,
                max_timestamp=segment.max_timestamp,
            )
            if not self._add(described, segment.base_offset, end_offset):
                return False
        return True

    def add_active(self) -> None:
        segment = self._log.active
        start = max(segment.base_offset, self._start)
        if start >= self._end or self._is_damaged(segment.base_offset, self._visible):
            return
        try:
            size = end_position(self._log, segment, self._visible)
        except (OSError, FlintError):
            # A fetch meets the same fault, and its error says more.
            return
        if not size:
            return
        described = Segment(
            base_offset=segment.base_offset,
            end_offset=self._visible,
            size=size,
            max_timestamp=segment.max_timestamp,
            is_active=True,
        )
        # Only of the range: a stream asks for a little of a large segment, again and again.
        if self._add(described, start, self._end):
            self._add_index(described, segment, start)

    def _add_index(self, described: Segment, segment: LogSegment, start: int) -> None:
        if segment.offset_index is None:
            return
        base = segment.base_offset
        count_max = min(SEGMENT_INDEX_ENTRIES_MAX, self._room.index_entries)
        described.index = [
            IndexEntry(last_offset=base + relative_offset, position=position)
            for relative_offset, position in segment.offset_index.sample(
                start - base, self._end - base, count_max
            )
        ]
        self._room.index_entries -= len(described.index)

    def _is_damaged(self, start: int, end: int) -> bool:
        return any(bad.base_offset < end and start < bad.end_offset for bad in self._log.corrupt)

    def _add(self, described: Segment, start: int, end: int) -> bool:
        """Add a segment, with the aborted transactions of a range, if there is room for both."""
        aborted = aborted_between(self._log, start, end) if self._is_committed else []
        if not self._room.segments or len(aborted) > self._room.aborted:
            return False
        self._room.segments -= 1
        self._room.aborted -= len(aborted)
        self._described.segments.append(described)
        for one in aborted:
            if one not in self._added:
                self._added.add(one)
                self._described.aborted.append(
                    Aborted(
                        producer_id=one.producer_id,
                        first_offset=one.first_offset,
                        last_offset=one.last_offset,
                    )
                )
        return True
