"""Clients that take nothing, send hardly anything, come in thousands, or leave in the middle (Z5, B12)."""

from __future__ import annotations

import os
import resource
import socket
import struct
from contextlib import ExitStack
from uuid import uuid4

import pytest

from flintmq.protocol.messages import FetchRequest, FindCoordinatorRequest, MetadataRequest
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import sockets, watched
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, values_of

MEGABYTE = 1 << 20
CONNECTIONS, CONNECTIONS_LONG = 2000, 10_000
_ABORT = struct.pack("ii", 1, 0)


def filled(wire: Wire, *, partitions: int, batches: int, size: int) -> str:
    topic = f"t-{uuid4()}"
    wire.create_topic(topic, partitions)
    for _ in range(batches):
        for partition in range(partitions):
            wire.send(produce_request(topic, batch_of(bytes(size)), partition=partition), 9)
            wire.receive()
    return topic


def send_all_that_fits(wire: Wire, data: bytes) -> int:
    """Without waiting for the broker to take it."""
    wire.sock.setblocking(False)
    sent = 0
    left = memoryview(data)
    try:
        while sent < len(data):
            sent += wire.sock.send(left[sent:])
    except (BlockingIOError, ConnectionResetError, BrokenPipeError):
        pass
    return sent


# ---- not reading


def test_clients_that_never_read_large_fetches(broker: BrokerProcess) -> None:
    """Forty of them ask again and again for 50 MB, of many small pieces and of few large ones."""
    with Wire(broker.address) as wire:
        small = filled(wire, partitions=500, batches=1, size=15_000)
        large = filled(wire, partitions=4, batches=10, size=900_000)
    asked = {small: dict.fromkeys(range(500), 0), large: dict.fromkeys(range(4), 0)}
    with watched(broker), ExitStack() as wires:
        for topic, offsets in asked.items():
            for _ in range(20):
                wire = wires.enter_context(Wire(broker.address, receive_buffer=4096))
                request = fetch_request(topic, offsets, partition_max_bytes=20 * MEGABYTE)
                send_all_that_fits(wire, b"".join(wire.frame(request, 12, number) for number in range(50)))
        # And somebody who does read gets everything.
        with Wire(broker.address) as wire:
            found = wire.fetch(fetch_request(small, asked[small], partition_max_bytes=20 * MEGABYTE))
            assert {number: len(values) for number, values in values_of(found).items()} == dict.fromkeys(
                range(500), 1
            )


def test_clients_that_never_read_large_answers_lose_their_connections(own_broker: BrokerProcess) -> None:
    """Answers that are made in memory: beyond 64 MiB of them the largest backlogs are dropped."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["k" * 1000] * 1000)
    with watched(own_broker), ExitStack() as wires:
        for _ in range(120):
            wire = wires.enter_context(Wire(own_broker.address, receive_buffer=4096))
            wire.sock.settimeout(0.05)
            try:
                for _ in range(8):
                    wire.send(request, 6)
            except (TimeoutError, ConnectionResetError, BrokenPipeError):
                continue  # no longer read from
    assert "does not take its answers" in own_broker.error_log.read_text()


def test_answers_that_wait_behind_a_long_poll_are_bounded(own_broker: BrokerProcess) -> None:
    """A fetch that waits for hours, and behind it as many large answers as are taken."""
    with Wire(own_broker.address) as wire:
        wire.create_topic("wide", partitions=1000)
        wire.create_topic("empty")
    with watched(own_broker), ExitStack() as wires:
        for _ in range(60):
            wire = wires.enter_context(Wire(own_broker.address))
            poll = wire.frame(fetch_request("empty", {0: 0}, max_wait_ms=1 << 30), 12, 1)
            answers = b"".join(
                wire.frame(MetadataRequest(topics=None), 12, 2 + number) for number in range(127)
            )
            send_all_that_fits(wire, poll + answers)
        with Wire(own_broker.address) as wire:
            assert len(wire.metadata("wide").topics[0].partitions) == 1000


# ---- sending slowly


def test_clients_that_send_a_byte_at_a_time(broker: BrokerProcess) -> None:
    """A request is answered however it comes, and those that never finish are no burden."""
    with watched(broker), ExitStack() as wires:
        dripping = [wires.enter_context(Wire(broker.address)) for _ in range(200)]
        frames = [wire.frame(MetadataRequest(topics=[]), 12, 1) for wire in dripping]
        for at in range(len(frames[0])):
            for wire, frame in zip(dripping, frames, strict=True):
                if at < len(frame) - 1 or wire in dripping[:100]:
                    wire.sock.send(frame[at : at + 1])
        for wire in dripping[:100]:
            assert wire.receive()[0] == 1


def test_large_requests_that_stop_in_the_middle_share_a_budget(own_broker: BrokerProcess) -> None:
    """`queued.max.request.bytes`: 150 clients send 4 MB each of 90 MB, and a large request of another passes."""
    with Wire(own_broker.address) as wire:
        wire.create_topic("large", max_message_bytes=str(32 * MEGABYTE))
    begin = struct.pack(">ihhih", 90 * MEGABYTE, 0, 9, 1, -1) + bytes(4 * MEGABYTE)
    with watched(own_broker), ExitStack() as wires:
        for _ in range(150):
            send_all_that_fits(wires.enter_context(Wire(own_broker.address)), begin)
        with Wire(own_broker.address) as wire:
            assert wire.produce("large", batch_of(bytes(900_000))).error_code == 0


# ---- many


def open_many(broker: BrokerProcess, count: int) -> None:
    with watched(broker), ExitStack() as wires:
        for number in range(count):
            wire = wires.enter_context(Wire(broker.address))
            if number % 3 == 1:
                wire.sock.sendall(b"\0\0")
            elif number % 3 == 2:
                wire.sock.sendall(wire.frame(MetadataRequest(topics=[]), 12, 1))
        with Wire(broker.address) as last:
            last.metadata("x")
            assert sockets(broker.pid) >= count


def test_thousands_of_connections(own_broker: BrokerProcess) -> None:
    """Idle, with half a length, or with an answer that is not taken."""
    open_many(own_broker, CONNECTIONS)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_connections(own_broker: BrokerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS_LONG + 100:
        pytest.skip(f"toolchain: a descriptor limit above {CONNECTIONS_LONG}; here it is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        open_many(own_broker, CONNECTIONS_LONG)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_without_descriptors_goes_on_when_there_are_some(own_broker: BrokerProcess) -> None:
    """No log goes offline because clients hold what its files need."""
    with Wire(own_broker.address) as wire:
        wire.create_topic("before", segment_bytes=str(MEGABYTE))
        wire.produce("before", batch_of(b"x"))
        with ExitStack() as wires:
            used = max(map(int, os.listdir(f"/proc/{own_broker.pid}/fd")))
            limits = resource.prlimit(own_broker.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(own_broker.pid, resource.RLIMIT_NOFILE, (used + 4, limits[1]))
            try:
                for _ in range(20):
                    wires.enter_context(Wire(own_broker.address))
                codes = {wire.produce("before", batch_of(bytes(900_000))).error_code for _ in range(6)}
                assert codes <= {0, 56}
            finally:
                resource.prlimit(own_broker.pid, resource.RLIMIT_NOFILE, limits)
        written = wire.produce("before", batch_of(b"again"))
        assert written.error_code == 0
        assert values_of(wire.fetch(fetch_request("before", {0: written.base_offset}))) == {0: [b"again"]}
    assert "offline" not in own_broker.error_log.read_text()


def test_connections_that_come_and_go_leave_nothing(broker: BrokerProcess) -> None:
    """In the middle of a frame, of an answer, of a long poll; politely and not."""
    with Wire(broker.address) as wire:
        topic = filled(wire, partitions=1, batches=8, size=900_000)
    with watched(broker, memory_max_kib=64 * 1024):
        for number in range(1500):
            with Wire(broker.address) as wire:
                if number % 2:
                    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                if number % 3 == 0:
                    request = fetch_request(topic, {0: 0}, partition_max_bytes=20 * MEGABYTE)
                    wire.send(request, 12)
                    wire.sock.recv(1000)
                elif number % 3 == 1:
                    wire.send(fetch_request(topic, {0: 8}, max_wait_ms=1 << 30), 12)
                else:
                    wire.sock.sendall(struct.pack(">i", 50 * MEGABYTE) + bytes(70_000))


# ---- fetches


def test_many_large_fetch_sessions_are_bounded(own_broker: BrokerProcess) -> None:
    """Each of a thousand partitions, most of which are not there; a session is given while there is room."""
    with Wire(own_broker.address) as wire:
        wire.create_topic("some", partitions=10)
        with watched(own_broker):
            granted = 0
            for _ in range(400):
                asked = fetch_request("some", dict.fromkeys(range(1000), 0), session=(0, 0))
                granted += wire.fetch(asked).session_id != 0
    assert 100 < granted <= 200


def _first_answer(broker: BrokerProcess, patient: FetchRequest, wires: ExitStack) -> int:
    """Partitions that somebody beyond the bound is told of: at once, with nothing in them.

    Who is quicker than those that came before is within the bound, and waits with them.
    """
    for _ in range(100):
        last = wires.enter_context(Wire(broker.address))
        last.sock.settimeout(0.5)
        try:
            return sum(len(topic.partitions) for topic in last.fetch(patient).responses)
        except TimeoutError:
            continue
    pytest.fail("a hundred more are let wait")


def test_patient_fetches_of_many_partitions_are_bounded(own_broker: BrokerProcess) -> None:
    """A thousand partitions each, for weeks, over and over; and the next waiting reader still waits and wakes."""
    with Wire(own_broker.address) as wire:
        wire.create_topic("wide", partitions=1000)
    patient = fetch_request("wide", dict.fromkeys(range(1000), 0), max_wait_ms=(1 << 31) - 1)
    with watched(own_broker), ExitStack() as wires:
        for _ in range(10):
            wire = wires.enter_context(Wire(own_broker.address))
            for number in range(20):
                wire.sock.sendall(wire.frame(patient, 12, number))
        assert _first_answer(own_broker, patient, wires) == 1000
        with Wire(own_broker.address) as reader, Wire(own_broker.address) as writer:
            reader.send(fetch_request("wide", {7: 0}, max_wait_ms=30_000), 12)
            writer.produce("wide", batch_of(b"news"), partition=7)
            _, news = reader.receive()
            assert values_of(news) == {7: [b"news"]}  # type: ignore[arg-type]


def test_fetches_of_thousands_of_partitions_over_and_over(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        topic = filled(wire, partitions=1000, batches=1, size=100)
        topics = [
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    FetchRequest.FetchPartition(partition=number % 3000, partition_max_bytes=1000)
                    for number in range(9000)
                ],
            )
        ]
        with watched(broker):
            for _ in range(30):
                response = wire.fetch(
                    FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MEGABYTE, topics=topics)
                )
                assert len(response.responses[0].partitions) == 3000
