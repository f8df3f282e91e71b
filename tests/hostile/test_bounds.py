"""The bounds themselves, one by one and without a broker: what is counted, and what happens beyond."""

from __future__ import annotations

import asyncio
import errno
import struct

import pytest

from flintmq.broker import limits
from flintmq.broker.fetch_sessions import EVICTION_IDLE_S, FetchSessions
from flintmq.broker.limits import ITEMS_PER_TURN, ParkedFetchLimit, SerialExecutor, gather_in_turns
from flintmq.broker.responses import reason_of
from flintmq.effects import Executor, File
from flintmq.errors import ErrorCode, ProtocolError, RequestError, StorageError
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.fetch import INLINE_BYTES_MAX, INLINED_BYTES_MAX, FetchedPartition, encode_response
from flintmq.protocol.messages import FetchRequest, MetadataRequest, MetadataResponse, ProduceRequest
from flintmq.protocol.primitives import REQUEST_ENTRIES_MAX
from flintmq.protocol.produce import decode_request
from flintmq.records.batch import read_header
from flintmq.records.record import CHECKED_ENTRIES_MAX, FAULTS_TOLD_MAX, RecordError, check_records
from flintmq.records.varint import append_varint
from flintmq.server.inbound import FrameBuffer
from flintmq.server.inbound_budget import InboundBudget
from flintmq.server.outbound_budget import OutboundBudget
from flintmq.storage.durability.disk_reserve import RESERVE_FILE, DiskReserve
from flintmq.storage.durability.flush import FLUSH_FAILED, NoSpace
from flintmq.storage.producer_state import ProducerState
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedRandom
from support.log.on_simulated_disk import DIRECTORY, Bench
from support.wire.batches import produced
from support.wire.wire import batch_of

PRODUCE, METADATA = 0, 3


# ---- protocol


def metadata_of(count: int) -> bytes:
    topics = [MetadataRequest.MetadataRequestTopic(name="")] * count
    return encode(MetadataRequest(topics=topics), 4)


def test_a_request_has_a_bounded_number_of_entries_and_a_response_has_not() -> None:
    message, _ = decode(MetadataRequest, metadata_of(REQUEST_ENTRIES_MAX), 4)
    assert len(message.topics or ()) == REQUEST_ENTRIES_MAX
    with pytest.raises(ProtocolError, match="entries in one request"):
        decode(MetadataRequest, metadata_of(REQUEST_ENTRIES_MAX + 1), 4)
    large = MetadataResponse(
        topics=[MetadataResponse.MetadataResponseTopic(name="")] * (REQUEST_ENTRIES_MAX + 1)
    )
    assert decode(MetadataResponse, encode(large, 4), 4)[0] == large


def test_entries_are_counted_over_all_arrays_and_tags_of_a_request() -> None:
    half = REQUEST_ENTRIES_MAX // 2
    partitions = [FetchRequest.FetchPartition()] * half
    fits = FetchRequest(topics=[FetchRequest.FetchTopic(topic="a", partitions=partitions)] * 1)
    decode(FetchRequest, encode(fits, 12), 12)
    twice = FetchRequest(topics=[FetchRequest.FetchTopic(topic="a", partitions=partitions)] * 2)
    with pytest.raises(ProtocolError, match="entries in one request"):
        decode(FetchRequest, encode(twice, 12), 12)
    # Each topic of version 9 ends with its tags: here ten, unknown and empty.
    topic = b"\x02a" + bytes([10]) + b"".join(bytes([100 + tag, 0]) for tag in range(10))
    count = REQUEST_ENTRIES_MAX // 11 + 1
    body = struct.pack("BBB", (count + 1) & 127 | 128, (count + 1) >> 7 & 127 | 128, (count + 1) >> 14)
    with pytest.raises(ProtocolError, match="entries in one request"):
        decode(MetadataRequest, body + topic * count + bytes(4), 9)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_the_decoder_of_produce_counts_too(version: int) -> None:
    def frame(count: int) -> memoryview:
        partitions = [ProduceRequest.PartitionProduceData(index=0, records=None)] * count
        topic = ProduceRequest.TopicProduceData(name="t", topic_id=bytes(16), partition_data=partitions)
        if version >= 13:
            topic.name = ""
        return memoryview(encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), version))

    assert (
        len(decode_request(frame(REQUEST_ENTRIES_MAX - 1), 0, version).topics[0][1])
        == REQUEST_ENTRIES_MAX - 1
    )
    with pytest.raises(ProtocolError, match="entries in one request"):
        decode_request(frame(REQUEST_ENTRIES_MAX), 0, version)


class Piece:
    size = INLINE_BYTES_MAX

    def read(self) -> bytes:
        return bytes(self.size)


def test_an_answer_copies_a_bounded_part_of_its_records() -> None:
    count = 10 * INLINED_BYTES_MAX // INLINE_BYTES_MAX
    for version in (11, 12):
        pieces = encode_response(
            bytearray(),
            version,
            throttle_ms=0,
            error_code=0,
            session_id=0,
            topics=[("t", [FetchedPartition(number, records=Piece()) for number in range(count)])],
        )
        copied = sum(len(piece) for piece in pieces if isinstance(piece, bytearray))
        assert INLINED_BYTES_MAX <= copied < 1.2 * INLINED_BYTES_MAX
        assert sum(not isinstance(piece, bytearray) for piece in pieces) == count - count // 10


def test_a_reason_fits_an_answer() -> None:
    assert reason_of(RequestError(ErrorCode.INVALID_REQUEST, "short")) == "short"
    assert len(reason_of(RequestError(ErrorCode.INVALID_REQUEST, "long " * 10_000))) < 1000


# ---- frames


def test_only_frames_that_write_records_may_be_very_large() -> None:
    for kind, size, taken in ((PRODUCE, 900, True), (METADATA, 100, True), (METADATA, 101, False)):
        buffer = FrameBuffer(1000, 100)
        buffer.start(memoryview(struct.pack(">i", size)))
        data = struct.pack(">h", kind)
        buffer.grow()
        buffer.writable()[:2] = data
        if taken:
            assert buffer.received(2) is False
        else:
            with pytest.raises(ProtocolError, match=r"flint\.request\.max\.bytes"):
                buffer.received(2)


def test_the_kind_of_a_frame_is_judged_when_it_has_come_and_not_before() -> None:
    buffer = FrameBuffer(1000, 100)
    buffer.start(memoryview(struct.pack(">ib", 900, 0)))
    assert buffer.total == 904
    buffer.grow()
    buffer.writable()[:1] = b"\x01"
    with pytest.raises(ProtocolError, match=r"flint\.request\.max\.bytes"):
        buffer.received(1)


# ---- memory of the server


def test_beyond_the_limit_the_largest_backlog_is_dropped() -> None:
    backlog = OutboundBudget[str](100)
    assert backlog.hold("small", 20) == []
    assert backlog.hold("large", 60) == []
    assert backlog.hold("new", 30) == ["large"]
    assert (backlog.held, len(backlog)) == (50, 2)
    assert backlog.hold("new", 90) == ["new"]
    backlog.release("small")
    backlog.release("never held")
    assert backlog.held == 0


def test_among_equal_backlogs_the_oldest_goes() -> None:
    backlog = OutboundBudget[int](100)
    assert [backlog.hold(number, 40) for number in range(4)] == [[], [], [0], [1]]


def test_the_heaviest_make_up_half_of_what_is_used() -> None:
    budget = InboundBudget(100)
    for owner, size in (("a", 10), ("b", 40), ("c", 30), ("d", 20)):
        assert budget.grow(owner, size, lambda: None)
    assert budget.heaviest() == ["b", "c"]
    assert not budget.grow("e", 1, lambda: None) or budget.waiting == 0
    budget.keep("a", lambda: None)
    assert budget.finished == 1


# ---- fetches


def fetch_of(count: int, session: tuple[int, int] = (0, 0), first: int = 0) -> FetchRequest:
    partitions = [FetchRequest.FetchPartition(partition=first + number) for number in range(count)]
    return FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(topic="t", partitions=partitions)],
    )


def test_sessions_are_given_while_there_is_room_for_their_partitions() -> None:
    clock = SimulatedClock()
    sessions = FetchSessions(clock=clock, random=SimulatedRandom(1), slots=1000, partitions_max=100)
    first = sessions.context(fetch_of(60), 12).session_id
    assert first
    assert sessions.context(fetch_of(60), 12).session_id == 0, "no room"
    second = sessions.context(fetch_of(40), 12).session_id
    assert second
    # One that grows beyond the bound is dropped, and its client begins again.
    grown = sessions.context(fetch_of(10, (second, 1), first=1000), 12)
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 60
    assert sessions.context(fetch_of(60, (first, 1)), 12).error is ErrorCode.NONE, "the same ones again"
    clock.advance(EVICTION_IDLE_S + 1)
    assert sessions.context(fetch_of(100), 12).session_id, "the idle one made room"
    assert (len(sessions), sessions.partitions) == (1, 100)
    assert sessions.context(fetch_of(0, (0, 0)), 12).session_id == 0


def test_polls_of_few_partitions_may_wait_longest() -> None:
    polls = ParkedFetchLimit()
    assert polls.may_wait(limits.PARKED_PARTITIONS_MAX)
    polls.partitions = limits.PARKED_PARTITIONS_MAX
    assert not polls.may_wait(limits.SMALL_FETCH_PARTITIONS + 1)
    assert polls.may_wait(limits.SMALL_FETCH_PARTITIONS)
    polls.partitions = limits.SMALL_FETCHES_PARTITIONS_MAX
    assert not polls.may_wait(1)


# ---- work in turns


def test_a_lane_does_one_thing_at_a_time() -> None:
    class Threads:
        def __init__(self) -> None:
            self.now, self.most = 0, 0

        async def run(self, work: object, *args: object) -> object:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return args

    async def scenario() -> None:
        lane, threads = SerialExecutor(), Threads()
        executor: Executor = threads  # type: ignore[assignment]
        results = await asyncio.gather(*(lane.run(executor, print, number) for number in range(5)))
        assert results == [(number,) for number in range(5)]
        assert threads.most == 1

    asyncio.run(scenario())


def test_many_topics_are_handled_some_at_a_time() -> None:
    async def scenario() -> None:
        begun = 0

        async def one(number: int) -> int:
            nonlocal begun
            begun += 1
            await asyncio.sleep(0)
            return number

        results = asyncio.ensure_future(gather_in_turns(one(number) for number in range(3 * ITEMS_PER_TURN)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert begun == ITEMS_PER_TURN
        assert await results == list(range(3 * ITEMS_PER_TURN))

    asyncio.run(scenario())


# ---- records


def test_records_and_headers_are_counted_together() -> None:
    record = bytearray(b"\0\0\0\1\1")
    append_varint(record, CHECKED_ENTRIES_MAX)
    record += bytes(2 * CHECKED_ENTRIES_MAX)
    payload = bytearray()
    append_varint(payload, len(record))
    payload += record
    with pytest.raises(RequestError) as error:
        check_records(bytes(payload), 1, base_timestamp=0)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_producer_is_told_of_so_many_records_at_fault() -> None:
    batch = produced(*[b"x"] * (FAULTS_TOLD_MAX + 10))
    with pytest.raises(RecordError) as error:
        check_records(batch[61:], FAULTS_TOLD_MAX + 10, base_timestamp=0, require_keys=True)
    assert len(error.value.faults) == FAULTS_TOLD_MAX
    assert error.value.code is ErrorCode.INVALID_RECORD


def test_producers_beyond_the_bound_push_out_who_wrote_longest_ago() -> None:
    known = ProducerState(producers_max=3)

    def write(producer_id: int, sequence: int = 0) -> None:
        header = read_header(
            batch_of(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        )
        assert known.check(header) is None
        known.record(header, 0)

    for producer_id in (1, 2, 3):
        write(producer_id)
    write(1, sequence=1)
    write(4)
    assert [one.producer_id for one in known] == [3, 1, 4]
    assert [one.producer_id for one in ProducerState.decode(known.encode())] == [3, 1, 4]


def test_a_producer_with_an_open_transaction_is_not_pushed_out() -> None:
    known = ProducerState(producers_max=2)
    for producer_id, txn in ((1, True), (2, False), (3, False)):
        header = read_header(
            produced(b"x", producer_id=producer_id, epoch=0, sequence=0, is_transactional=txn)
        )
        known.record(header, producer_id)
    assert [one.producer_id for one in known] == [1, 3]
    assert known.first_unstable_offset == 1


# ---- the disk


def test_the_reserve_is_given_up_once_and_made_again() -> None:
    disk = SimulatedDisk(1)
    disk.makedirs("data")
    reserve = DiskReserve(disk, "data")
    assert not reserve.release()
    reserve.create()
    assert disk.exists(f"data/{RESERVE_FILE}")
    assert reserve.release()
    assert not disk.exists(f"data/{RESERVE_FILE}")
    assert not reserve.release()
    reserve.create()
    assert disk.exists(f"data/{RESERVE_FILE}")


def test_without_a_descriptor_a_log_refuses_and_stays_in_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients hold them all: that passes, and nothing was written."""
    bench = Bench()
    bench.fill(3)
    bench.log.active.file = None

    def none_left(*args: object, **kwargs: object) -> File:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(bench.disk, "open", none_left)
        with pytest.raises(StorageError, match="descriptor"):
            bench.fill(1)
    assert bench.log.offline is None
    bench.fill(1)
    flush = bench.log.prepare_flush()
    with monkeypatch.context() as patched:
        patched.setattr(bench.disk, "open", none_left)
        with pytest.raises(NoSpace):
            flush.run()
    assert not bench.disk.exists(f"{DIRECTORY}/{FLUSH_FAILED}")
    flush.run()
    assert (bench.log.offline, bench.log.end_offset) == (None, 4)
