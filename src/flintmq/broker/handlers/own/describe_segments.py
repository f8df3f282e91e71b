"""DescribeSegments (15004), version 0, of FlintMQ's own: which files hold a range of offsets (P2).

For readers that share this broker's disk. Only segments that are complete and wholly visible are told of, the
damaged ones left out; what is not told of is to be fetched. A segment may be taken away or compacted at any time: the
reader opens the file, compares its size, and fetches what has changed. Aborted transactions are those of the
segments told of.
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
from flintmq.storage.reader import aborted_between
from flintmq.storage.segment import segment_index
from flintmq.storage.visibility import Isolation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = DescribeSegmentsRequest.SegmentsPartition
Topic = DescribeSegmentsResponse.DescribedTopic
Partition = DescribeSegmentsResponse.DescribedPartition
Segment = DescribeSegmentsResponse.DescribedSegment
Aborted = DescribeSegmentsResponse.AbortedTransaction

SEGMENTS_MAX = 100_000
ABORTED_MAX = 100_000
"""Of one answer. What does not fit is left out, and so is fetched."""


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
                    _describe(topic.name, wanted, isolation, services, room) for wanted in topic.partitions
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
    """What the answer may still hold."""

    def __init__(self) -> None:
        self.segments = SEGMENTS_MAX
        self.aborted = ABORTED_MAX


def _describe(topic: str, wanted: Wanted, isolation: Isolation, services: Services, room: _Room) -> Partition:
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
    is_committed = isolation is Isolation.READ_COMMITTED
    bound = min(wanted.end_offset, described.last_stable_offset if is_committed else log.high_watermark)
    _add_segments(described, log, wanted.start_offset, bound, room, is_committed=is_committed)
    return described


def _add_segments(
    described: Partition, log: Log, start_offset: int, bound: int, room: _Room, *, is_committed: bool
) -> None:
    segments = log.segments
    # One may span several segments.
    added: set[AbortedTransaction] = set()
    for at in range(segment_index(segments, start_offset), len(segments) - 1):
        segment, end_offset = segments[at], segments[at + 1].base_offset
        if segment.base_offset >= bound or end_offset > log.high_watermark:
            return
        is_stable = not is_committed or end_offset <= described.last_stable_offset
        is_damaged = any(
            bad.base_offset < end_offset and segment.base_offset < bad.end_offset for bad in log.corrupt
        )
        if not is_stable or is_damaged or not segment.size:
            continue
        aborted = aborted_between(log, segment.base_offset, end_offset) if is_committed else []
        if not room.segments or len(aborted) > room.aborted:
            return
        room.segments -= 1
        room.aborted -= len(aborted)
        described.segments.append(
            Segment(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size=segment.size,
                max_timestamp=segment.max_timestamp,
            )
        )
        for one in aborted:
            if one not in added:
                added.add(one)
                described.aborted.append(
                    Aborted(
                        producer_id=one.producer_id,
                        first_offset=one.first_offset,
                        last_offset=one.last_offset,
                    )
                )
