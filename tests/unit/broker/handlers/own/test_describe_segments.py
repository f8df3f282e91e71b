"""DescribeSegments: which files a reader that shares the disk may open (P2)."""

from __future__ import annotations

import os

from flintmq.broker.apis import ADVERTISED
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeSegmentsRequest, DescribeSegmentsResponse
from flintmq.records.markers import Marker
from flintmq.storage.corrupt_ranges import CorruptRange
from support.broker.single_broker import SingleBroker

NOW = 1_700_000_000_000
EVERYTHING = 1 << 62


def describe(
    broker: SingleBroker, start: int = 0, end: int = EVERYTHING, *, committed: bool = True, index: int = 0
) -> DescribeSegmentsResponse.DescribedPartition:
    wanted = DescribeSegmentsRequest.SegmentsPartition(
        partition_index=index, start_offset=start, end_offset=end
    )
    request = DescribeSegmentsRequest(
        topics=[DescribeSegmentsRequest.SegmentsTopic(name="t", partitions=[wanted])],
        isolation_level=1 if committed else 0,
    )
    (topic,) = broker.ask(request, DescribeSegmentsResponse, 0).topics
    (partition,) = topic.partitions
    return partition


def bases(partition: DescribeSegmentsResponse.DescribedPartition) -> list[tuple[int, int]]:
    return [(segment.base_offset, segment.end_offset) for segment in partition.segments]


def write_segments(broker: SingleBroker, count: int) -> None:
    """Two records each, the last one being the active one."""
    for number in range(count):
        if number:
            broker.partition("t").log.roll(NOW)
        broker.append("t", NOW + number, NOW + number)


def test_complete_segments_are_told_of_with_their_sizes_and_times(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 3)
    answer = describe(broker)
    assert bases(answer) == [(0, 2), (2, 4)]
    assert answer.folder == os.path.abspath(broker.partition("t").log.directory)
    assert [one.size for one in answer.segments] == [
        one.size for one in broker.partition("t").log.segments[:2]
    ]
    assert [one.max_timestamp for one in answer.segments] == [NOW, NOW + 1]
    assert (answer.start_offset, answer.high_watermark, answer.last_stable_offset) == (0, 6, 6)


def test_only_segments_that_touch_the_range_are_told_of(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 5)
    assert bases(describe(broker, 3, 5)) == [(2, 4), (4, 6)]
    assert bases(describe(broker, 3, 4)) == [(2, 4)]
    assert bases(describe(broker, 8)) == []


def test_what_an_open_transaction_holds_back_is_for_readers_of_everything_only(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 1)
    broker.append("t", NOW, producer_id=7, transactional=True)
    broker.partition("t").log.roll(NOW)
    write_segments(broker, 2)
    assert bases(describe(broker)) == []
    assert bases(describe(broker, committed=False)) == [(0, 3), (3, 5)]


def test_aborted_transactions_are_told_once_even_if_they_span_segments(broker: SingleBroker) -> None:
    broker.create("t")
    broker.append("t", NOW, producer_id=7, transactional=True)
    broker.partition("t").log.roll(NOW)
    write_segments(broker, 2)
    partition = broker.partition("t")
    offset = partition.append_marker(Marker(7, 0, 0, committed=False), NOW, bumps_epoch=False).base_offset
    partition.log.roll(NOW)
    write_segments(broker, 1)
    told = describe(broker)
    assert bases(told) == [(0, 1), (1, 3), (3, 6)]
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in told.aborted] == [(7, 0, offset)]
    assert describe(broker, committed=False).aborted == []
    # A reader of a later segment alone must know of it as well, for its records may go on there.
    assert [one.producer_id for one in describe(broker, 3).aborted] == [7]


def test_a_damaged_segment_is_left_out(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 4)
    broker.partition("t").log.add_corrupt(CorruptRange(2, 3))
    assert bases(describe(broker)) == [(0, 2), (4, 6)]


def test_an_unknown_partition_is_answered_as_such(broker: SingleBroker) -> None:
    broker.create("t")
    assert describe(broker, index=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_clients_of_others_are_not_told_of_it() -> None:
    assert "DescribeSegments" not in {api.name for api in ADVERTISED}
