"""When the active segment is sealed and the next one begins, by size, by age and by what indexes can express.

Decides, and touches nothing. Age counts as in Kafka: by the records' own time where they have one, else by the age of
the file.
"""

from __future__ import annotations

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import MAX_INT32
from flintmq.settings import TopicConfig
from flintmq.storage.segment import Segment


def must_roll(
    segment: Segment, config: TopicConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int
) -> bool:
    """Whether a batch of `size` bytes goes to a new segment. RequestError if no segment can hold it."""
    if size > config.segment_bytes:
        raise RequestError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batch has {size} bytes; a segment holds {config.segment_bytes} (segment.bytes).",
        )
    return segment.size > 0 and is_full(
        segment, config, segment.size, size, segment.first_timestamp, max_timestamp, last_offset, now_ms
    )


def is_full(
    segment: Segment,
    config: TopicConfig,
    used: int,
    size: int,
    first_timestamp: int,
    max_timestamp: int,
    last_offset: int,
    now_ms: int,
) -> bool:
    """Whether a segment that holds batches takes no batch of `size` bytes more.

    `used` and `first_timestamp` are those of the segment with the batches that are about to be written.
    """
    if used + size > config.segment_bytes:
        return True
    age_max_ms = config.segment_ms
    if config.compacts:
        # The active segment is not compacted: it must end before its records are overdue.
        age_max_ms = min(age_max_ms, config.max_compaction_lag_ms)
    if first_timestamp >= 0 and max_timestamp >= 0:
        age_ms = max_timestamp - first_timestamp
    else:
        age_ms = now_ms - segment.created_ms
    return (
        age_ms > age_max_ms - segment.jitter_ms
        or last_offset - segment.base_offset > MAX_INT32
        or segment.index_bytes >= config.segment_index_bytes
    )
