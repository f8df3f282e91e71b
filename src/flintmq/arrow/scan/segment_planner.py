"""Segment files in a plan: asked for at the brokers, left out if all too old, given to the tasks.

    found = SegmentFinder(client, options).find(ranges)
    task = with_files(wanted, found[wanted.topic, wanted.partition])

Invariant: a task's files lie in its range of offsets, ascending, each once; what they do not cover is fetched. So a
segment that is not listed costs time, never a row. The last file may be that of the active segment, up to the end
that was visible when the broker responded. Files are opened here only to see whether this machine has them.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from math import ceil
from operator import attrgetter
from typing import Final, NamedTuple

from flintmq.arrow.scan.offset_range import TASKS_MAX, OffsetRange
from flintmq.arrow.scan.options import Segments, SourceOptions
from flintmq.arrow.scan.segment_file import UnusableSegment, open_segment
from flintmq.client.admin.segments import (
    AbortedRange,
    IndexEntry,
    PartitionFiles,
    SegmentFile,
    describe_segments,
)
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import ClientError, NotFlintMQ
from flintmq.errors import ConfigurationError, RequestError
from flintmq.records.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_last_offset: Final = attrgetter("last_offset")
_ASKED_MAX: Final = 2
"""A broker that stops closes connections too; one that closes them twice at this request does not know it."""


class FileTask(NamedTuple):
    """A range of offsets, and the files that hold some of it."""

    wanted: OffsetRange
    segments: tuple[SegmentFile, ...]
    aborted: tuple[AbortedRange, ...]
    log_start_offset: int = 0
    """What is below is fetched: the broker reports it as deleted, whatever files still hold."""


Task = OffsetRange | FileTask


class LocatedSegments(NamedTuple):
    files: PartitionFiles
    are_used: bool
    """Whether tasks are told of them. Where they begin and end, and how large they are, says something anyway."""


class SegmentFinder:
    """For one query."""

    def __init__(self, client: ClusterClient, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._is_asked = options.segments is not Segments.NEVER
        self._has_answered = False

    def find(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, LocatedSegments]:
        """By partition; those that have no segment files for their range are not there."""
        if not self._is_asked or not ranges:
            return {}
        files = self._ask(ranges)
        planned = {(one.topic, one.partition): one.topic_id for one in ranges}
        return {
            partition: LocatedSegments(one, self._options.segments is Segments.ALWAYS or _is_here(one))
            for partition, one in files.items()
            if one.topic_id == planned[partition]
        }

    def _ask(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, PartitionFiles]:
        wanted = {(one.topic, one.partition): (one.start, one.end) for one in ranges}
        for _ in range(_ASKED_MAX):
            try:
                found = describe_segments(self._client, wanted, committed=self._options.read_committed)
                self._has_answered = True
                return found
            except NotFlintMQ as error:
                failure = error
            except (ClientError, RequestError) as error:
                # Nothing that the workers would not meet too; they know how to wait for a broker.
                logger.info("no segments are read from files this time: %s", error)
                return {}
        if not self._has_answered:
            if self._options.segments is Segments.ALWAYS:
                raise ConfigurationError(
                    f"segments cannot be read from files: {failure}. "
                    "Use the format flintmq, and leave the option segments out"
                ) from failure
            self._is_asked = False
        return {}


def recent(one: OffsetRange, files: PartitionFiles, since_ms: int | None) -> list[OffsetRange]:
    """The range without those segments that hold nothing but records before a time."""
    if since_ms is None:
        return [one]
    left, position = [], one.start
    for segment in files.segments:
        is_older = segment.max_timestamp < since_ms
        if is_older and _overlaps(one, segment.base_offset, segment.end_offset):
            if segment.base_offset > position:
                left.append(one._replace(start=position, end=segment.base_offset))
            position = segment.end_offset
    if position < one.end:
        left.append(one._replace(start=position))
    return left


def cut_by_bytes(
    one: OffsetRange, files: PartitionFiles, *, task_bytes: int, bytes_per_offset: float | None = None
) -> list[OffsetRange]:
    """Cut the range into ranges of about the same number of bytes, however unevenly files hold offsets.

    `bytes_per_offset` is for what is in no file; without it, that is taken to be like the files.
    """
    if bytes_per_offset is None:
        offsets = sum(segment.end_offset - segment.base_offset for segment in files.segments)
        bytes_per_offset = sum(segment.size for segment in files.segments) / max(1, offsets)
    parts = list(sized_parts(one, files.segments, bytes_per_offset))
    total = sum(size for _, _, size in parts)
    count = min(ceil(total / task_bytes), TASKS_MAX)
    edges, before = [one.start], 0.0
    for start, end, size in parts:
        while len(edges) < count and (due := total * len(edges) / count - before) < size:
            edges.append(start + int((end - start) * due / size))
        before += size
    return [one._replace(start=start, end=end) for start, end in pairwise((*edges, one.end)) if start < end]


def with_files(wanted: OffsetRange, found: LocatedSegments | None) -> Task:
    """Return the task that reads the range, with the files that it may use."""
    if found is None or not found.are_used:
        return wanted
    files = found.files
    segments = tuple(
        _with_index_of(one, wanted)
        for one in files.segments
        if _overlaps(wanted, one.base_offset, one.end_offset)
    )
    if not segments:
        return wanted
    aborted = tuple(one for one in files.aborted if _overlaps(wanted, one.first_offset, one.last_offset + 1))
    return FileTask(wanted, segments, aborted, files.start_offset)


def _with_index_of(segment: SegmentFile, wanted: OffsetRange) -> SegmentFile:
    """Return the segment with those index entries only that the range needs: each task is sent on its own."""
    if not segment.index:
        return segment
    first = max(0, bisect_right(segment.index, wanted.start, key=_last_offset) - 1)
    end = bisect_left(segment.index, wanted.end, key=_last_offset)
    return replace(segment, index=segment.index[first:end])


def sized_parts(
    one: OffsetRange, segments: Sequence[SegmentFile], bytes_per_offset: float
) -> Iterator[tuple[int, int, float]]:
    """Yield the segments in the range and what lies between them, in order: start, end and about its bytes."""
    position = one.start
    for segment in segments:
        for first, after, size in _indexed_parts(segment):
            start, end = max(position, first), min(one.end, after)
            if start >= end:
                continue
            if position < start:
                yield position, start, (start - position) * bytes_per_offset
            yield start, end, size * (end - start) / (after - first)
            position = end
    if position < one.end:
        yield position, one.end, (one.end - position) * bytes_per_offset


def _indexed_parts(segment: SegmentFile) -> Iterator[tuple[int, int, int]]:
    """Yield the parts of a segment between its index entries: first offset, the offset after it and its bytes."""
    start, position = segment.base_offset, 0
    for entry in (*segment.index, IndexEntry(segment.end_offset, segment.size)):
        if entry.last_offset > start:
            yield start, entry.last_offset, entry.position - position
            start, position = entry


def _overlaps(one: OffsetRange, start: int, end: int) -> bool:
    return start < one.end and one.start < end


def _is_here(files: PartitionFiles) -> bool:
    """Whether this process can open the partition's files; then the workers, perhaps elsewhere, are to try."""
    try:
        with closing(open_segment(files.segments[0], files.topic_id)):
            return True
    except UnusableSegment as why:
        logger.debug("segments are not read from files: %s", why)
        return False
