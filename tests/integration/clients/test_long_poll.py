"""A fetch that waits is woken by what it waits for, never by polling (B5, KIP-227)."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DeleteTopicsRequest, FetchRequest, FetchResponse
from flintmq.testing import Broker
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, values_of

FOREVER_MS = 600_000
"""Longer than the test may run: who answers earlier was woken."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def topic(broker: Broker, writer: Wire) -> str:
    name = f"t-{uuid4()}"
    writer.create_topic(name, partitions=3)
    return name


@pytest.fixture
def writer(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


@pytest.fixture
def reader(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def has_answer(wire: Wire) -> bool:
    return bool(select.select([wire.sock], [], [], 0)[0])


def is_parked(reader: Wire, writer: Wire) -> bool:
    """The broker has had time to look at the reader's request, and has not answered it.

    It reads what has arrived before it answers what arrives later, at the latest in its next turn.
    """
    for _ in range(3):
        writer.metadata("no-such-topic")
    return not has_answer(reader)


def received(reader: Wire) -> FetchResponse:
    response = reader.receive()[1]
    assert isinstance(response, FetchResponse)
    return response


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12])
def test_a_waiting_fetch_is_answered_by_the_append(
    topic: str, writer: Wire, reader: Wire, version: int
) -> None:
    reader.send(fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=FOREVER_MS), version)
    assert is_parked(reader, writer)
    writer.produce(topic, batch_of(b"x"), partition=1)
    assert values_of(received(reader))[1] == [b"x"]


def test_an_append_elsewhere_wakes_nobody(topic: str, writer: Wire, reader: Wire) -> None:
    reader.send(fetch_request(topic, {0: 0}, max_wait_ms=FOREVER_MS), 12)
    writer.produce(topic, batch_of(b"other"), partition=2)
    assert is_parked(reader, writer)
    writer.produce(topic, batch_of(b"mine"), partition=0)
    assert values_of(received(reader)) == {0: [b"mine"]}


def test_min_bytes_waits_for_enough(topic: str, writer: Wire, reader: Wire) -> None:
    batch = batch_of(b"x" * 100)
    reader.send(fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=FOREVER_MS, min_bytes=3 * len(batch)), 12)
    writer.produce(topic, batch, partition=0)
    assert is_parked(reader, writer)
    writer.produce(topic, batch, partition=1)
    assert is_parked(reader, writer)
    writer.produce(topic, batch, partition=0)
    assert values_of(received(reader)) == {0: [b"x" * 100] * 2, 1: [b"x" * 100]}


def test_what_there_is_comes_when_the_time_is_over(topic: str, writer: Wire, reader: Wire) -> None:
    writer.produce(topic, batch_of(b"early"))
    found = reader.fetch(fetch_request(topic, {0: 0}, max_wait_ms=50, min_bytes=1_000_000))
    assert values_of(found) == {0: [b"early"]}
    assert values_of(reader.fetch(fetch_request(topic, {0: 1}, max_wait_ms=50))) == {0: []}
    assert values_of(reader.fetch(fetch_request(topic, {0: 1}, max_wait_ms=0))) == {0: []}


def test_many_readers_are_all_woken_by_one_append(broker: Broker, topic: str, writer: Wire) -> None:
    readers = [Wire(broker.bootstrap_servers) for _ in range(100)]
    try:
        for reader in readers:
            reader.send(fetch_request(topic, {0: 0}, max_wait_ms=FOREVER_MS), 12)
        assert is_parked(readers[-1], writer)
        writer.produce(topic, batch_of(b"x"))
        for reader in readers:
            assert values_of(received(reader)) == {0: [b"x"]}
    finally:
        for reader in readers:
            reader.sock.close()


def test_readers_that_went_away_are_forgotten(broker: Broker, topic: str, writer: Wire) -> None:
    for _ in range(50):
        with Wire(broker.bootstrap_servers) as gone:
            gone.send(fetch_request(topic, {0: 0}, max_wait_ms=FOREVER_MS), 12)
    with Wire(broker.bootstrap_servers) as reader:
        reader.send(fetch_request(topic, {0: 0}, max_wait_ms=FOREVER_MS), 12)
        assert is_parked(reader, writer)
        writer.produce(topic, batch_of(b"x"))
        assert values_of(received(reader)) == {0: [b"x"]}


def test_a_deleted_topic_ends_the_wait(topic: str, writer: Wire, reader: Wire) -> None:
    reader.send(fetch_request(topic, {0: 0}, max_wait_ms=FOREVER_MS), 12)
    assert is_parked(reader, writer)
    writer.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    (partition,) = received(reader).responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_become_visible_to_a_waiting_reader_with_every_fsync(writer: Wire, reader: Wire) -> None:
    """R4: with flush.messages=1 an append is not visible by itself, and none is forgotten."""
    topic = f"t-{uuid4()}"
    writer.create_topic(topic, flush_messages="1")
    count = 200
    stop = threading.Event()

    def write() -> None:
        # Pipelined, so that appends happen while a flush runs.
        for i in range(count):
            writer.send(produce_request(topic, batch_of(b"%d" % i)), 9)
        for _ in range(count):
            writer.receive()
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    found: list[bytes | None] = []
    while len(found) < count:
        response = reader.fetch(fetch_request(topic, {0: len(found)}, max_wait_ms=FOREVER_MS))
        found += values_of(response)[0]
    thread.join()
    assert stop.is_set()
    assert found == [b"%d" % i for i in range(count)]


# ---- sessions


def in_session(
    reader: Wire, topic: str | bytes, offsets: dict[int, int], session: tuple[int, int], version: int
) -> FetchResponse:
    return reader.fetch(fetch_request(topic, offsets, session=session), version)


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_tells_only_what_changed(writer: Wire, reader: Wire, version: int) -> None:
    name = f"t-{uuid4()}"
    topic_id = writer.create_topic(name, partitions=3)
    topic: str | bytes = topic_id if version >= 13 else name
    first = in_session(reader, topic, {0: 0, 1: 0, 2: 0}, (0, 0), version)
    assert first.session_id != 0
    assert len(first.responses[0].partitions) == 3
    quiet = in_session(reader, topic, {}, (first.session_id, 1), version)
    assert quiet.responses == []
    writer.produce(name, batch_of(b"news"), partition=1)
    news = in_session(reader, topic, {}, (first.session_id, 2), version)
    assert values_of(news) == {1: [b"news"]}
    moved = in_session(reader, topic, {1: 1}, (first.session_id, 3), version)
    assert moved.responses == []


def test_a_waiting_fetch_of_a_session_is_woken_too(topic: str, writer: Wire, reader: Wire) -> None:
    session_id = in_session(reader, topic, {0: 0, 1: 0, 2: 0}, (0, 0), 12).session_id
    reader.send(fetch_request(topic, {}, max_wait_ms=FOREVER_MS, session=(session_id, 1)), 12)
    assert is_parked(reader, writer)
    writer.produce(topic, batch_of(b"x"), partition=2)
    assert values_of(received(reader)) == {2: [b"x"]}


def test_wrong_sessions_are_refused(topic: str, reader: Wire) -> None:
    unknown = in_session(reader, topic, {}, (12345, 1), 12)
    assert (unknown.error_code, unknown.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    session_id = in_session(reader, topic, {0: 0}, (0, 0), 12).session_id
    wrong = in_session(reader, topic, {}, (session_id, 7), 12)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_forgotten_partitions_are_not_told_of(topic: str, writer: Wire, reader: Wire) -> None:
    session_id = in_session(reader, topic, {0: 0, 1: 0}, (0, 0), 12).session_id
    request = fetch_request(topic, {}, session=(session_id, 1))
    request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic=topic, partitions=[0])]
    reader.fetch(request)
    writer.produce(topic, batch_of(b"0"), partition=0)
    writer.produce(topic, batch_of(b"1"), partition=1)
    assert values_of(in_session(reader, topic, {}, (session_id, 2), 12)) == {1: [b"1"]}


# ---- sizes


def test_a_first_batch_larger_than_asked_for_comes_whole(topic: str, writer: Wire, reader: Wire) -> None:
    """KIP-74."""
    writer.produce(topic, batch_of(b"x" * 50_000))
    found = reader.fetch(fetch_request(topic, {0: 0, 1: 0}, max_bytes=100, partition_max_bytes=100))
    assert values_of(found) == {0: [b"x" * 50_000], 1: []}


def test_large_fetches_come_whole_and_in_order(topic: str, writer: Wire, reader: Wire) -> None:
    values = [b"%d" % i * 100_000 for i in range(10)]
    for partition in range(3):
        for value in values:
            writer.produce(topic, batch_of(value), partition=partition)
    found = reader.fetch(fetch_request(topic, {0: 0, 1: 0, 2: 5}, partition_max_bytes=10 << 20))
    assert values_of(found) == {0: values, 1: values, 2: values[5:]}


def test_the_sum_of_all_partitions_is_bounded(topic: str, writer: Wire, reader: Wire) -> None:
    for partition in range(3):
        for _ in range(5):
            writer.produce(topic, batch_of(b"x" * 10_000), partition=partition)
    found = reader.fetch(fetch_request(topic, {0: 0, 1: 0, 2: 0}, max_bytes=65_000))
    counts = {partition: len(values) for partition, values in values_of(found).items()}
    assert counts == {0: 5, 1: 1, 2: 0}
