"""DescribeSegments: which files a reader that shares the disk may open (P2)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from flintmq.broker.apis import ADVERTISED
from flintmq.broker.handlers.own import describe_segments
from flintmq.errors import ErrorCode
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.codegen.schema import own_definitions
from flintmq.protocol.codegen.structures import build
from flintmq.protocol.messages import DescribeSegmentsRequest, DescribeSegmentsResponse
from flintmq.records.batch import read_header
from flintmq.records.markers import Marker
from flintmq.records.record import build_batch
from flintmq.storage.corrupt_ranges import CorruptRange
from support.broker.single_broker import SingleBroker

NOW = 1_700_000_000_000
EVERYTHING = 1 << 62


def describe(
    broker: SingleBroker,
    start: int = 0,
    end: int = EVERYTHING,
    *,
    committed: bool = True,
    index: int = 0,
    active: bool = False,
) -> DescribeSegmentsResponse.DescribedPartition:
    wanted = DescribeSegmentsRequest.SegmentsPartition(
        partition_index=index, start_offset=start, end_offset=end
    )
    request = DescribeSegmentsRequest(
        topics=[DescribeSegmentsRequest.SegmentsTopic(name="t", partitions=[wanted])],
        isolation_level=1 if committed else 0,
        includes_active=active,
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


# ---- the active segment


def test_the_active_segment_is_for_those_who_ask_for_it(broker: SingleBroker) -> None:
    broker.create("t")
    assert describe(broker, active=True).segments == [], "it has no file yet"
    write_segments(broker, 3)
    assert bases(describe(broker)) == [(0, 2), (2, 4)]
    *complete, active = describe(broker, active=True).segments
    assert [one.is_active for one in complete] == [False, False]
    assert active.is_active
    assert (active.base_offset, active.end_offset) == (4, 6)
    assert active.size == broker.partition("t").log.active.size
    assert active.max_timestamp == NOW + 2
    assert bases(describe(broker, 2, 4, active=True)) == [(2, 4)]
    assert bases(describe(broker, 6, active=True)) == []


def test_the_active_segment_ends_at_the_high_watermark(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 1)
    log = broker.partition("t").log
    size = log.active.size
    hidden = memoryview(bytearray(build_batch([(None, b"hidden", NOW, ())])))
    log.append(hidden, read_header(hidden), leader_epoch=0, now_ms=NOW)
    assert log.high_watermark < log.end_offset
    for committed in (True, False):
        (active,) = describe(broker, committed=committed, active=True).segments
        assert (active.end_offset, active.size) == (2, size)
    log.roll(NOW)
    assert describe(broker, active=True).segments == [], "neither complete nor active"


def test_the_active_segment_ends_at_the_last_stable_offset_for_committed_reads(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 1)
    size = broker.partition("t").log.active.size
    broker.append("t", NOW, producer_id=7, transactional=True)
    write_segments(broker, 1)
    (committed,) = describe(broker, active=True).segments
    assert (committed.end_offset, committed.size) == (2, size)
    (uncommitted,) = describe(broker, committed=False, active=True).segments
    assert (uncommitted.end_offset, uncommitted.size) == (5, broker.partition("t").log.active.size)
    assert describe(broker, 2, active=True).segments == []


def test_aborted_transactions_of_the_active_segment_are_those_of_the_range(broker: SingleBroker) -> None:
    broker.create("t")
    partition = broker.partition("t")
    for producer_id in (7, 8, 9):
        broker.append("t", NOW, producer_id=producer_id, transactional=True)
        partition.append_marker(Marker(producer_id, 0, 0, committed=False), NOW, bumps_epoch=False)
    write_segments(broker, 1)

    def aborted(start: int, end: int = EVERYTHING) -> list[int]:
        return [one.first_offset for one in describe(broker, start, end, active=True).aborted]

    assert aborted(0) == [0, 2, 4]
    assert aborted(2) == [2, 4]
    assert aborted(2, 4) == [2]
    assert aborted(6) == []


def test_a_damaged_active_segment_is_left_out(broker: SingleBroker) -> None:
    broker.create("t")
    write_segments(broker, 2)
    broker.partition("t").log.add_corrupt(CorruptRange(3, 4))
    assert bases(describe(broker, active=True)) == [(0, 2)]


def test_the_index_of_the_active_segment_is_a_bounded_sample_for_the_range(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create("t", index_interval_bytes="0")
    for at in range(20):
        broker.append("t", NOW + at)
    log = broker.partition("t").log
    positions = {header.last_offset: position for position, header in log.active.walk(0)}

    def index(start: int = 0, end: int = EVERYTHING) -> list[tuple[int, int]]:
        (active,) = describe(broker, start, end, active=True).segments
        return [(one.last_offset, one.position) for one in active.index]

    assert index() == [(at, positions[at]) for at in range(1, 20)]
    assert index(7, 12) == [(at, positions[at]) for at in range(7, 12)]
    monkeypatch.setattr(describe_segments, "SEGMENT_INDEX_ENTRIES_MAX", 4)
    assert index() == [(at, positions[at]) for at in (1, 9, 17)]
    assert index(17) == [(at, positions[at]) for at in (17, 18, 19)]
    monkeypatch.setattr(describe_segments, "INDEX_ENTRIES_MAX", 1)
    assert index(9) == [(9, positions[9])]


def before_the_active_segment(name: str) -> Any:
    """The message as brokers and clients know it that know nothing of the active segment."""
    schema = own_definitions().parse(name)
    known = {
        struct: tuple(field for field in fields if field.tag < 0) for struct, fields in schema.structs.items()
    }
    assert known != schema.structs
    return build(schema._replace(structs=known), __name__)


def test_clients_and_brokers_of_either_age_understand_each_other() -> None:
    old_request = before_the_active_segment("DescribeSegmentsRequest")
    old_response = before_the_active_segment("DescribeSegmentsResponse")
    asked = DescribeSegmentsRequest(topics=[], isolation_level=1, includes_active=True)
    received, _ = decode(old_request, encode(asked, 0), 0)
    assert received == old_request(topics=[], isolation_level=1)
    assert not decode(DescribeSegmentsRequest, encode(received, 0), 0)[0].includes_active

    complete = DescribeSegmentsResponse.DescribedSegment(base_offset=0, end_offset=2, size=3, max_timestamp=4)
    partition = DescribeSegmentsResponse.DescribedPartition(folder="d", segments=[complete])
    topic = DescribeSegmentsResponse.DescribedTopic(name="t", partitions=[partition])
    response = DescribeSegmentsResponse(topics=[topic])
    assert encode(decode(old_response, encode(response, 0), 0)[0], 0) == encode(response, 0)


def test_an_unknown_partition_is_answered_as_such(broker: SingleBroker) -> None:
    broker.create("t")
    assert describe(broker, index=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_clients_of_others_are_not_told_of_it() -> None:
    assert "DescribeSegments" not in {api.name for api in ADVERTISED}
