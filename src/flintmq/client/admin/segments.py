"""Which files hold a range of offsets, for readers that share the broker's disk. Only FlintMQ can be asked this.

NotFlintMQ is raised where another broker answers; then everything is to be fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flintmq.client.admin.maintenance import exchange_own
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeSegmentsRequest, DescribeSegmentsResponse
from flintmq.records.topic_partition import TopicPartition

_COMMITTED, _UNCOMMITTED = 1, 0


class IndexEntry(NamedTuple):
    last_offset: int
    """Of a batch."""
    position: int
    """Where that batch begins in the file."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment as the broker described it: complete, or the visible part of the active one.

    The file of a complete segment has exactly this size, or it is another file than was described. The file of an
    active segment may grow; it holds every offset from the base to the end in this many bytes.
    """

    path: str
    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    is_active: bool = False
    index: tuple[IndexEntry, ...] = ()
    """Ascending, a sample: the index of an active segment is in no file."""


class AbortedRange(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Its marker's."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    topic_id: bytes
    folder: str
    segments: tuple[SegmentFile, ...]
    """Ascending. Offsets between and after them are to be fetched."""
    aborted: tuple[AbortedRange, ...]
    """Those with records in these segments."""
    start_offset: int = 0
    """Of the log. Files may still hold older records, which are deleted for clients."""


def describe_segments(
    client: ClusterClient, ranges: Mapping[TopicPartition, tuple[int, int]], *, committed: bool
) -> dict[TopicPartition, PartitionFiles]:
    """The files of these ranges of offsets (the last one excluded). A partition that has none is not there."""

    def ask() -> dict[TopicPartition, PartitionFiles]:
        client.freshen()
        by_leader: dict[int, dict[str, list[DescribeSegmentsRequest.SegmentsPartition]]] = {}
        for (topic, index), (start, end) in ranges.items():
            wanted = DescribeSegmentsRequest.SegmentsPartition(
                partition_index=index, start_offset=start, end_offset=end
            )
            by_leader.setdefault(client.leader(topic, index), {}).setdefault(topic, []).append(wanted)
        requests = {
            node: DescribeSegmentsRequest(
                isolation_level=_COMMITTED if committed else _UNCOMMITTED,
                # A tagged field: brokers that do not know it describe complete segments only.
                includes_active=True,
                topics=[
                    DescribeSegmentsRequest.SegmentsTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for node, topics in by_leader.items()
        }
        responses = exchange_own(client, requests, DescribeSegmentsResponse)
        return {
            (topic.name, one.partition_index): _files(topic.topic_id, one)
            for response in responses.values()
            for topic in response.topics
            for one in topic.partitions
            if one.error_code == ErrorCode.NONE and one.segments
        }

    # Not again and again at a broker that does not know the question.
    return client.attempt(ask, repeatable=False)


def _files(topic_id: bytes, one: DescribeSegmentsResponse.DescribedPartition) -> PartitionFiles:
    return PartitionFiles(
        topic_id=bytes(topic_id),
        folder=one.folder,
        segments=tuple(
            SegmentFile(
                f"{one.folder}/{segment.base_offset:020d}.log",
                segment.base_offset,
                segment.end_offset,
                segment.size,
                segment.max_timestamp,
                segment.is_active,
                tuple(IndexEntry(entry.last_offset, entry.position) for entry in segment.index),
            )
            for segment in one.segments
        ),
        aborted=tuple(
            AbortedRange(aborted.producer_id, aborted.first_offset, aborted.last_offset)
            for aborted in one.aborted
        ),
        start_offset=one.start_offset,
    )
