"""Records that lie, burst, or come from a million producers: refused by code, or kept at a bounded price (R5, Z5)."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from functools import cache
from threading import Thread
from uuid import uuid4

import cramjam
import pytest
from crc32c import crc32c

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceResponse,
)
from flintmq.records.batch import CRC_POSITION, CRC_START, HEADER, HEADER_SIZE, BatchHeader
from flintmq.records.compression import Codec
from flintmq.records.record import FAULTS_TOLD_MAX
from flintmq.records.varint import append_varint
from flintmq.storage.limits import LOG_LIMITS
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.wire.wire import TIMESTAMP, Wire, batch_of, fetch_request, produce_request, values_of

MEGABYTE = 1 << 20
BOMBS = 5
CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
OPENING = {
    "deep": {"flint_validate_records": "deep"},
    "compact": {"cleanup_policy": "compact"},
    "recompressed": {"compression_type": "lz4"},
    "uncompressed": {"compression_type": "uncompressed"},
}


def sealed(payload: bytes, codec: Codec, count: int, **changed: int) -> bytes:
    """A batch around a payload that is compressed already, with a right CRC whatever the header says."""
    fields = {
        "base_offset": 0, "length": HEADER_SIZE - 12 + len(payload), "leader_epoch": -1, "magic": 2, "crc": 0,
        "attributes": int(codec), "last_offset_delta": count - 1, "base_timestamp": TIMESTAMP,
        "max_timestamp": TIMESTAMP, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1,
        "record_count": count,
    }  # fmt: skip
    batch = bytearray(HEADER.pack(*BatchHeader(**{**fields, **changed})) + payload)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[CRC_START:]))
    return bytes(batch)


def packed(codec: Codec, data: bytes) -> bytes:
    """As small as the codec makes it."""
    if codec is Codec.GZIP:
        return gzip.compress(data, 9)
    if codec is Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec is Codec.LZ4:
        stream = cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)
        stream.compress(data)
        return bytes(stream.finish())
    return bytes(cramjam.zstd.compress(data, level=19))


@cache
def packed_record(codec: Codec, size: int) -> bytes:
    """One large record; to compress it as well as possible takes longer than what is done with it."""
    return packed(codec, one_large_record(size))


def one_large_record(size: int) -> bytes:
    record = bytearray(b"\0\0\0\2k")
    append_varint(record, size)
    record += bytes(size) + b"\0"
    out = bytearray()
    append_varint(out, len(record))
    return bytes(out + record)


def code_of(wire: Wire, topic: str, batch: bytes) -> ErrorCode:
    return ErrorCode(wire.produce(topic, batch).error_code)


# ---- headers


def test_headers_that_lie_are_refused_each_by_its_code(broker: BrokerProcess) -> None:
    good = packed(Codec.GZIP, bytes(100))
    cases = {
        "magic 0": (sealed(b"x" * 20, Codec.NONE, 1, magic=0), ErrorCode.INVALID_RECORD),
        "magic 1": (sealed(b"x" * 20, Codec.NONE, 1, magic=1), ErrorCode.INVALID_RECORD),
        "magic 3": (sealed(b"x" * 20, Codec.NONE, 1, magic=3), ErrorCode.INVALID_RECORD),
        "codec 5": (sealed(good, Codec.NONE, 1, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "codec 7": (sealed(good, Codec.NONE, 1, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "no records": (sealed(b"", Codec.NONE, 0), ErrorCode.INVALID_RECORD),
        "a negative count": (sealed(b"x" * 9, Codec.NONE, -1), ErrorCode.INVALID_RECORD),
        "a count too large": (sealed(b"x" * 9, Codec.NONE, 1 << 30), ErrorCode.INVALID_RECORD),
        "a delta above the count": (
            sealed(b"x" * 9, Codec.NONE, 1, last_offset_delta=(1 << 31) - 1), ErrorCode.INVALID_RECORD
        ),
        "a negative delta": (sealed(b"x" * 9, Codec.NONE, 1, last_offset_delta=-5), ErrorCode.INVALID_RECORD),
        "a negative length": (sealed(b"x" * 9, Codec.NONE, 1, length=-100), ErrorCode.CORRUPT_MESSAGE),
        "the largest length": (sealed(b"x" * 9, Codec.NONE, 1, length=(1 << 31) - 1), ErrorCode.CORRUPT_MESSAGE),
        "the last of times": (
            sealed(b"x" * 9, Codec.NONE, 1, max_timestamp=(1 << 63) - 1), ErrorCode.INVALID_TIMESTAMP
        ),
        "a negative producer": (sealed(b"x" * 9, Codec.NONE, 1, producer_id=-7), ErrorCode.INVALID_RECORD),
        "a producer without epoch": (sealed(b"x" * 9, Codec.NONE, 1, producer_id=7), ErrorCode.INVALID_RECORD),
        "a control batch": (sealed(b"x" * 9, Codec.NONE, 1, attributes=0x20), ErrorCode.INVALID_RECORD),
        "too large": (batch_of(bytes(2 * MEGABYTE)), ErrorCode.MESSAGE_TOO_LARGE),
        "a transaction without its name": (
            sealed(
                b"x" * 9, Codec.NONE, 1, attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0
            ),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    }  # fmt: skip
    topic = f"t-{uuid4()}"
    with watched(broker), Wire(broker.address) as wire:
        wire.create_topic(topic)
        for what, (batch, expected) in cases.items():
            assert code_of(wire, topic, batch) is expected, what
        # Nothing of all that was written.
        assert wire.produce(topic, batch_of(b"fine")).base_offset == 0


def test_absurd_producers_and_times_are_taken_without_harm(broker: BrokerProcess) -> None:
    """What Kafka takes, too: any producer id, any sequence to begin with, any time that is past."""
    topic = f"t-{uuid4()}"
    last = (1 << 63) - 1
    with watched(broker), Wire(broker.address) as wire:
        wire.create_topic(topic)
        wrapping = batch_of(b"a", b"b", producer_id=last, producer_epoch=32767, base_sequence=(1 << 31) - 1)
        assert wire.produce(topic, wrapping).base_offset == 0
        assert wire.produce(topic, wrapping).base_offset == 0, "a retry"
        following = batch_of(b"c", producer_id=last, producer_epoch=32767, base_sequence=1)
        assert wire.produce(topic, following).base_offset == 2
        stale = batch_of(b"d", producer_id=last, producer_epoch=0, base_sequence=2)
        assert code_of(wire, topic, stale) is ErrorCode.INVALID_PRODUCER_EPOCH
        gap = batch_of(b"d", producer_id=last, producer_epoch=32767, base_sequence=99)
        assert code_of(wire, topic, gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for timestamp in (-(1 << 62), -2, 0, 1):
            assert code_of(wire, topic, batch_of(b"old", timestamp=timestamp)) is ErrorCode.NONE
        assert wire.produce(topic, batch_of(b"end")).base_offset == 7


# ---- bombs


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
@pytest.mark.parametrize("kind", OPENING)
def test_many_bombs_at_once_cost_no_more_than_one(own_broker: BrokerProcess, kind: str, codec: Codec) -> None:
    """Up to 1000:1, to a topic that opens batches, from several connections at once."""
    topic = "bombed"
    bomb = sealed(packed_record(codec, 60 * MEGABYTE), codec, 1)
    codes: list[ErrorCode] = []

    def throw() -> None:
        with Wire(own_broker.address, timeout_s=100) as wire:
            codes.append(code_of(wire, topic, bomb))

    with Wire(own_broker.address) as wire:
        wire.create_topic(topic, 1, **OPENING[kind], max_message_bytes=str(16 * MEGABYTE))
    with watched(own_broker):
        throwers = [Thread(target=throw) for _ in range(BOMBS)]
        for thrower in throwers:
            thrower.start()
        for thrower in throwers:
            thrower.join()
    kept = kind != "uncompressed"
    # Within what may be unpacked: taken as it is, unless it does not fit the topic when it is not compressed.
    assert codes == [ErrorCode.NONE if kept else ErrorCode.MESSAGE_TOO_LARGE] * BOMBS
    with Wire(own_broker.address) as wire:
        assert code_of(wire, topic, batch_of(b"fine", key=b"k")) is ErrorCode.NONE


def tiny_records(count: int) -> bytes:
    """Records of nothing at all, without keys."""
    out = bytearray()
    for delta in range(count):
        record = bytearray(b"\0\0")
        append_varint(record, delta)
        record += b"\1\1\0"
        append_varint(out, len(record))
        out += record
    return bytes(out)


def tiny_headers(count: int) -> bytes:
    record = bytearray(b"\0\0\0\1\1")
    append_varint(record, count)
    record += bytes(2 * count)
    out = bytearray()
    append_varint(out, len(record))
    return bytes(out + record)


EMPTY_RECORD = bytes((6 << 1, 0, 0, 0, 1, 1, 0))
CROWDS: dict[str, tuple[Callable[[], bytes], int, ErrorCode]] = {
    "9 million records": (lambda: EMPTY_RECORD * 9_000_000, 9_000_000, ErrorCode.MESSAGE_TOO_LARGE),
    "30 million headers": (lambda: tiny_headers(30_000_000), 1, ErrorCode.MESSAGE_TOO_LARGE),
    "100,000 records without keys": (lambda: tiny_records(100_000), 100_000, ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_crowds_of_tiny_records_are_looked_at_to_a_point(own_broker: BrokerProcess, crowd: str) -> None:
    """They are few bytes compressed, and each would cost time and memory: a fault to tell of among them."""
    payload, count, expected = CROWDS[crowd]
    batch = sealed(packed(Codec.ZSTD, payload()), Codec.ZSTD, count)
    assert len(batch) < MEGABYTE
    with Wire(own_broker.address) as wire:
        wire.create_topic("crowded", cleanup_policy="compact")
    with watched(own_broker):
        wires = [Wire(own_broker.address) for _ in range(4)]
        for wire in wires:
            wire.send(produce_request("crowded", batch), 9)
        for wire in wires:
            _, response = wire.receive()
            assert isinstance(response, ProduceResponse)
            (answer,) = response.responses[0].partition_responses
            assert answer.error_code == expected
            assert len(answer.record_errors) == (
                FAULTS_TOLD_MAX if expected is ErrorCode.INVALID_RECORD else 0
            )
            wire.sock.close()


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_a_bomb_that_lies_in_a_topic_is_not_opened_for_a_lookup(
    own_broker: BrokerProcess, codec: Codec
) -> None:
    """A plain topic keeps what it gets. Who looks for a time is told where the batch begins (and the poison of a
    payload that is nothing at all hurts no lookup either)."""
    bomb = sealed(packed_record(codec, 100 * MEGABYTE), codec, 1)
    poison = sealed(b"\xff" * 100, codec, 3)
    with Wire(own_broker.address) as wire:
        wire.create_topic("kept", max_message_bytes=str(16 * MEGABYTE))
        assert code_of(wire, "kept", bomb) is ErrorCode.NONE
        assert code_of(wire, "kept", poison) is ErrorCode.NONE
    with watched(own_broker):
        wires = [Wire(own_broker.address) for _ in range(8)]
        for wire in wires:
            for _ in range(4):
                wire.send(listing("kept", TIMESTAMP - 1), 7)
                wire.send(listing("kept", -3), 7)
        for wire in wires:
            for _ in range(8):
                _, response = wire.receive()
                assert isinstance(response, ListOffsetsResponse)
                (answer,) = response.topics[0].partitions
                assert (answer.error_code, answer.offset) == (0, 0)
            wire.sock.close()


def listing(topic: str, timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
            )
        ],
    )


# ---- crowds of producers, and offsets by the thousand million


def flood_with_producers(broker: BrokerProcess, topic: str, count: int) -> None:
    """Each writes one record under an id of its own, many under way at a time."""
    batch = bytearray(batch_of(b"x", producer_id=0, producer_epoch=0, base_sequence=0))
    with Wire(broker.address) as wire:
        frame = bytearray(wire.frame(produce_request(topic, bytes(batch)), 9, 1))
        start = frame.index(batch)
        burst = 500
        for first in range(0, count, burst):
            out = bytearray()
            for number in range(first, min(first + burst, count)):
                struct.pack_into(">q", batch, 43, number)
                struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[CRC_START:]))
                frame[start : start + len(batch)] = batch
                out += frame
            wire.sock.sendall(out)
            for _ in range(first, min(first + burst, count)):
                wire.receive_frame()


def check_producers_are_bounded(broker: BrokerProcess, count: int) -> None:
    topic = f"t-{uuid4()}"
    with Wire(broker.address) as wire:
        wire.create_topic(topic, segment_bytes=str(16 * MEGABYTE))
        known = batch_of(b"x", producer_id=1 << 40, producer_epoch=0, base_sequence=0)
        assert wire.produce(topic, known).base_offset == 0
        with watched(broker, memory_max_kib=96 * 1024):
            flood_with_producers(broker, topic, count)
        response = wire.ask(
            DescribeProducersRequest(
                topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
            ),
            0,
        )
        assert isinstance(response, DescribeProducersResponse)
        assert len(response.topics[0].partitions[0].active_producers) == LOG_LIMITS.producers_max
        # The last ones are known, the first are not: to write again is to begin afresh.
        retry = batch_of(b"x", producer_id=count - 1, producer_epoch=0, base_sequence=0)
        assert wire.produce(topic, retry).base_offset == count
        assert wire.produce(topic, known).base_offset == count + 1


def test_producers_beyond_the_bound_push_out_the_longest_idle(own_broker: BrokerProcess) -> None:
    check_producers_are_bounded(own_broker, LOG_LIMITS.producers_max + 5000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_million_producers_on_one_partition(own_broker: BrokerProcess) -> None:
    check_producers_are_bounded(own_broker, 1_000_000)


def test_counts_that_waste_offsets_make_no_endless_files(own_broker: BrokerProcess) -> None:
    """A header alone may claim as many records as could be in there: two thousand million in 500 KB of zstd. Each
    such batch needs a segment of its own; the broker lives with it, and with the next start."""
    most = (1 << 31) - 1
    batch = sealed(bytes(500_000), Codec.ZSTD, most)
    with Wire(own_broker.address) as wire:
        wire.create_topic("wasted")
        with watched(own_broker):
            for number in range(40):
                assert wire.produce("wasted", batch).base_offset == number * most
        assert wire.produce("wasted", batch_of(b"after")).base_offset == 40 * most
        found = wire.fetch(fetch_request("wasted", {0: 40 * most}))
        assert values_of(found) == {0: [b"after"]}
    assert own_broker.stop() == 0
    own_broker.start()
    with Wire(own_broker.address) as wire:
        assert wire.produce("wasted", batch_of(b"again")).base_offset == 40 * most + 1
