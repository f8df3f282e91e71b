"""What one client may do to a broker, and what it may not: sizes, connections, idleness, broken records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import uuid4

import pytest
from crc32c import crc32c

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import MetadataRequest, MetadataResponse
from flintmq.records.batch import CRC_POSITION, CRC_START
from flintmq.records.compression import Codec
from flintmq.records.record import build_batch
from support.broker.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import CLIENTS, Message
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, records_in, values_of

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """For the tests that need no settings of their own; each has topics of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("limits") / "data") as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


def with_crc(batch: bytearray) -> bytes:
    """The batch with a CRC that fits what the test did to it."""
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[CRC_START:]))
    return bytes(batch)


# ---- frames


def test_a_frame_above_the_limit_closes_that_connection_only(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "socket.request.max.bytes=100000")
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.sock.sendall(struct.pack(">i", 100_001))
        assert wire.is_closed_by_the_broker()
        assert other.metadata().topics == []
    assert "socket.request.max.bytes" in broker.errors


@pytest.mark.parametrize(
    ("junk", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (struct.pack(">i", 0), "frame of 0 bytes"),
        (struct.pack(">i", -1), "frame of -1 bytes"),
        (struct.pack(">i", 3) + b"abc", "too short"),
        (struct.pack(">ihhih", 10, 3, 12, 1, -2), "negative"),
    ],
)
def test_junk_is_refused_and_named(broker: BrokerProcess, junk: bytes, said: str) -> None:
    with Wire(broker.address) as wire, Wire(broker.address) as other:
        wire.sock.sendall(junk)
        assert wire.is_closed_by_the_broker()
        assert other.metadata().error_code == 0
    assert said in broker.errors
    assert "Traceback" not in broker.errors


def test_claimed_lengths_cost_no_memory(broker: BrokerProcess) -> None:
    """Sixty clients announce 90 MB each and send 1 KB."""

    def resident_kb() -> int:
        with open(f"/proc/{broker.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    with Wire(broker.address) as wire:
        wire.metadata()
        before = resident_kb()
        claimants = [Wire(broker.address) for _ in range(60)]
        try:
            for claimant in claimants:
                claimant.sock.sendall(struct.pack(">i", 90 * MEGABYTE) + bytes(1000))
            wire.metadata()
            wire.metadata()
            assert resident_kb() - before < 20 * 1024
        finally:
            for claimant in claimants:
                claimant.sock.close()


def test_large_requests_pass_one_after_the_other_within_a_small_budget(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "queued.max.request.bytes=1000000", "--set", "message.max.bytes=20000000")
    wires = [Wire(broker.address) for _ in range(4)]
    try:
        wires[0].create_topic("t", partitions=4)
        frames = []
        for at, wire in enumerate(wires):
            request = produce_request("t", batch_of(b"%d" % at * (5 * MEGABYTE)), partition=at)
            frames.append(wire.frame(request, 9, 1))
        # All begin, none is complete; then all go on. Sent without waiting, so that none blocks the others.
        for wire in wires:
            wire.sock.setblocking(False)
        left = [memoryview(frame) for frame in frames]
        while any(left):
            for at, wire in enumerate(wires):
                try:
                    left[at] = left[at][wire.sock.send(left[at][:200_000]) :] if left[at] else left[at]
                except BlockingIOError:
                    continue
        for wire in wires:
            wire.sock.settimeout(60)
            wire.receive()
        found = wires[0].fetch(
            fetch_request("t", dict.fromkeys(range(4), 0), partition_max_bytes=10 * MEGABYTE)
        )
        assert values_of(found) == {at: [b"%d" % at * (5 * MEGABYTE)] for at in range(4)}
    finally:
        for wire in wires:
            wire.sock.close()


def test_a_client_that_takes_nothing_does_not_hurt_the_others(broker: BrokerProcess, topic: str) -> None:
    with Wire(broker.address, receive_buffer=4096) as stubborn, Wire(broker.address) as other:
        other.create_topic(topic)
        for _ in range(20):
            other.produce(topic, batch_of(b"x" * 900_000))
        for _ in range(200):
            stubborn.send(fetch_request(topic, {0: 0}, partition_max_bytes=20 * MEGABYTE), 12)
        for _ in range(5):
            assert (
                len(values_of(other.fetch(fetch_request(topic, {0: 0}, partition_max_bytes=2 * MEGABYTE)))[0])
                == 2
            )


# ---- connections


def test_connections_beyond_the_limit_are_closed(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "max.connections=2")
    with Wire(broker.address) as first, Wire(broker.address) as second:
        first.metadata()
        second.metadata()
        with Wire(broker.address) as third:
            assert third.is_closed_by_the_broker()
        first.metadata()
    assert "max.connections" in broker.errors


def test_idle_connections_are_closed_and_waiting_ones_are_not(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "connections.max.idle.ms=300")
    with Wire(broker.address) as idle, Wire(broker.address) as waiting:
        waiting.create_topic("t")
        idle.metadata()
        waiting.send(fetch_request("t", {0: 0}, max_wait_ms=1000), 12)
        assert idle.is_closed_by_the_broker()
        waiting.receive()
        assert [topic.name for topic in waiting.metadata().topics] == ["t"]


# ---- records


def refused(wire: Wire, topic: str, batch: bytes, version: int = 9) -> ErrorCode:
    return ErrorCode(wire.produce(topic, batch, version=version).error_code)


def test_batches_that_are_not_sound_are_refused_and_nothing_is_written(
    broker: BrokerProcess, topic: str
) -> None:
    good = bytearray(batch_of(b"one", b"two", b"three"))

    def changed(position: int, layout: str, value: int) -> bytes:
        batch = bytearray(good)
        struct.pack_into(layout, batch, position, value)
        return with_crc(batch)

    flipped = bytearray(good)
    flipped[70] ^= 1
    cases = {
        "a flipped bit": (bytes(flipped), ErrorCode.CORRUPT_MESSAGE),
        "cut short": (bytes(good[:-1]), ErrorCode.CORRUPT_MESSAGE),
        "two batches": (bytes(good + good), ErrorCode.INVALID_RECORD),
        "no batch": (b"", ErrorCode.INVALID_RECORD),
        "magic 1": (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
        "a count that lies": (changed(57, ">i", 2), ErrorCode.INVALID_RECORD),
        "a delta that lies": (changed(23, ">i", 7), ErrorCode.INVALID_RECORD),
        "a control batch": (changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        "an unknown codec": (changed(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "a base offset": (changed(0, ">q", 5), ErrorCode.INVALID_RECORD),
        "a time far ahead": (batch_of(b"x", timestamp=1 << 50), ErrorCode.INVALID_TIMESTAMP),
    }
    with Wire(broker.address) as wire:
        wire.create_topic(topic)
        for what, (batch, code) in cases.items():
            assert refused(wire, topic, batch) is code, what
        assert refused(wire, topic, batch_of(b"x", codec=Codec.ZSTD), version=6) is (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
        assert wire.produce(topic, bytes(good)).base_offset == 0


def test_records_that_do_not_add_up_are_refused_where_they_are_looked_at(broker: BrokerProcess) -> None:
    """`flint.validate.records=deep`: a count that lies inside a compressed batch is found."""
    batch = bytearray(batch_of(b"one", b"two", b"three", codec=Codec.GZIP))
    struct.pack_into(">i", batch, 23, 3)
    struct.pack_into(">i", batch, 57, 4)
    lying = with_crc(batch)
    plain, deep = f"t-{uuid4()}", f"t-{uuid4()}"
    with Wire(broker.address) as wire:
        wire.create_topic(plain)
        wire.create_topic(deep, flint_validate_records="deep")
        assert wire.produce(deep, lying).error_code == ErrorCode.INVALID_RECORD
        assert wire.produce(deep, batch_of(b"one", codec=Codec.GZIP)).base_offset == 0
        # A header that is consistent in itself is trusted otherwise.
        assert wire.produce(plain, lying).error_code == 0


def test_a_decompression_bomb_is_refused(broker: BrokerProcess, topic: str) -> None:
    bomb = build_batch([(None, bytes(200 * MEGABYTE), 1_700_000_000_000, ())], codec=Codec.ZSTD)
    assert len(bomb) < MEGABYTE
    with Wire(broker.address) as wire:
        wire.create_topic(topic, flint_validate_records="deep")
        assert wire.produce(topic, bomb).error_code != 0
        assert wire.produce(topic, batch_of(b"fine")).base_offset == 0


def test_compacted_topics_need_keys(broker: BrokerProcess, topic: str) -> None:
    with Wire(broker.address) as wire:
        wire.create_topic(topic, cleanup_policy="compact")
        assert wire.produce(topic, batch_of(b"x")).error_code == ErrorCode.INVALID_RECORD
        assert wire.produce(topic, batch_of(b"x", key=b"k")).error_code == 0


@pytest.mark.parametrize("kind", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_topic_may_choose_its_compression(
    broker: BrokerProcess, topic: str, kind: str, sent: Codec
) -> None:
    """`compression.type` other than `producer` recompresses; clients notice nothing."""
    expected = Codec.NONE if kind == "uncompressed" else Codec[kind.upper()]
    with Wire(broker.address) as wire:
        wire.create_topic(topic, compression_type=kind)
        assert wire.produce(topic, batch_of(b"v" * 1000, None, b"w", key=b"k", codec=sent)).base_offset == 0
        (partition,) = wire.fetch(fetch_request(topic, {0: 0})).responses[0].partitions
        data = partition.records
        assert data is not None
        assert struct.unpack_from(">h", data, 21)[0] & 7 == expected
        assert [(one.key, one.value) for one in records_in(data)] == [
            (b"k", b"v" * 1000),
            (b"k", None),
            (b"k", b"w"),
        ]
    found = CLIENTS["confluent-kafka"].consume(broker.address, topic, 0, 3)
    assert found == [Message(value, b"k", 1_700_000_000_000) for value in (b"v" * 1000, None, b"w")]


def test_append_time_is_the_brokers(broker: BrokerProcess, topic: str) -> None:
    """`message.timestamp.type=LogAppendTime`."""
    with Wire(broker.address) as wire:
        wire.create_topic(topic, message_timestamp_type="LogAppendTime")
        old = 1_000_000
        answer = wire.produce(topic, batch_of(b"a", b"b", timestamp=old))
        assert answer.log_append_time_ms > 1_700_000_000_000
        (partition,) = wire.fetch(fetch_request(topic, {0: 0})).responses[0].partitions
        assert [one.timestamp for one in records_in(partition.records)] == [answer.log_append_time_ms] * 2
    for client in CLIENTS.values():
        found = client.consume(broker.address, topic, 0, 2)
        assert [one.timestamp for one in found] == [answer.log_append_time_ms] * 2
        assert client.offset_at(broker.address, topic, old) == 0
        assert client.offset_at(broker.address, topic, answer.log_append_time_ms + 1) is None


def test_a_topic_is_made_by_its_first_metadata_unless_forbidden(start_broker: StartBroker) -> None:
    """Z3."""
    with Wire(start_broker().address) as wire:
        assert wire.metadata("new", create=True).topics[0].error_code == 0
        unknown = wire.metadata("other", create=False).topics[0]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bad = wire.metadata("no/slash", create=True).topics[0]
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with Wire(start_broker("--set", "auto.create.topics.enable=false").address) as wire:
        assert wire.metadata("new", create=True).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Wire(start_broker("--set", "flint.auto.create.topics.on.produce=true").address) as wire:
        assert wire.produce("by-produce", batch_of(b"x")).base_offset == 0
        response = wire.ask(MetadataRequest(topics=None), 12)
        assert isinstance(response, MetadataResponse)
        assert [topic.name for topic in response.topics] == ["by-produce"]
