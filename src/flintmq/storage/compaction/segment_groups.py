"""Which neighbouring segments are cleaned into one, so that segments do not become ever smaller. Pure.

The rules are Apache Kafka's: a group's log bytes stay within `segment.bytes`, its index files each within
`segment.index.bytes`, and its offsets within what an index can express. A segment that breaks a rule alone is a
group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flintmq.records.batch import MAX_INT32


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Sequence[SegmentSizes], *, segment_bytes: int, segment_index_bytes: int, end_offset: int
) -> list[list[SegmentSizes]]:
    """All of `segments`, in order, in groups; the last one ends at or before `end_offset`."""
    groups: list[list[SegmentSizes]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for number, segment in enumerate(segments):
        # Where the next one begins says where this one ends at the latest, without reading it.
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if (
            groups
            and log_bytes + segment.log_bytes <= segment_bytes
            and index_bytes + segment.index_bytes <= segment_index_bytes
            and time_index_bytes + segment.time_index_bytes <= segment_index_bytes
            # An empty segment has no offsets; were it left alone, one would remain for every 2^31 offsets.
            and (not segment.log_bytes or following - 1 - groups[-1][0].base_offset <= MAX_INT32)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes = index_bytes = time_index_bytes = 0
        log_bytes += segment.log_bytes
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
    return groups
