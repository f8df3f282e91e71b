"""Topics come and go while they are used: deleted, recreated under the same name, by the thousand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from support.broker.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import CLIENTS, Message
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, values_of

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("topics") / "data") as started:
        yield started


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.address) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


def delete(wire: Wire, *names: str) -> list[int]:
    response = wire.ask(DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000), 5)
    assert isinstance(response, DeleteTopicsResponse)
    return [one.error_code for one in response.responses]


def test_a_deleted_topic_is_gone_for_everybody(wire: Wire, topic: str) -> None:
    topic_id = wire.create_topic(topic)
    wire.produce(topic, batch_of(b"x"))
    assert delete(wire, topic) == [0]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, batch_of(b"x")).error_code == unknown
    assert wire.fetch(fetch_request(topic, {0: 0})).responses[0].partitions[0].error_code == unknown
    by_id = wire.fetch(fetch_request(topic_id, {0: 0}), 13).responses[0].partitions[0]
    assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert wire.metadata(topic).topics[0].error_code == unknown
    assert delete(wire, topic) == [unknown]


def test_who_asks_for_a_topic_that_was_deleted_learns_that_before_it_is_made_again(
    wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    assert delete(wire, topic) == [0]
    answers = [wire.metadata(topic, create=True).topics[0].error_code for _ in range(2)]
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_topic_made_again_under_the_same_name_is_another_topic(wire: Wire, topic: str) -> None:
    """KIP-516: ids tell them apart, whatever their name."""
    old = wire.create_topic(topic, partitions=3)
    for partition in range(3):
        wire.produce(topic, batch_of(b"old", b"old", b"old"), partition=partition)
    delete(wire, topic)
    new = wire.create_topic(topic)
    assert new != old
    assert values_of(wire.fetch(fetch_request(topic, {0: 0}))) == {0: []}
    assert wire.produce(topic, batch_of(b"new")).base_offset == 0
    assert values_of(wire.fetch(fetch_request(topic, {0: 0}))) == {0: [b"new"]}
    assert values_of(wire.fetch(fetch_request(new, {0: 0}), 13)) == {0: [b"new"]}
    stale = wire.fetch(fetch_request(old, {0: 0}), 13).responses[0].partitions[0]
    assert stale.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    beyond = wire.fetch(fetch_request(topic, {0: 2})).responses[0].partitions[0]
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_old_data_never_comes_back(start_broker: StartBroker, how: str) -> None:
    broker = start_broker()
    with Wire(broker.address) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(*[b"old"] * 10))
        delete(wire, "t")
        wire.create_topic("t")
        wire.produce("t", batch_of(b"new"))
    getattr(broker, how)()
    broker.start()
    with Wire(broker.address) as wire:
        assert values_of(wire.fetch(fetch_request("t", {0: 0}))) == {0: [b"new"]}
        assert len(wire.metadata("t").topics[0].partitions) == 1


def test_a_reader_in_the_middle_finishes_its_answer_while_the_topic_is_deleted_and_made_again(
    broker: BrokerProcess, wire: Wire, topic: str
) -> None:
    old_id = wire.create_topic(topic, file_delete_delay_ms="0")
    values = [bytes((letter,)) * (MEGABYTE // 2) for letter in b"abcdefghijklmnop"]
    for value in values:
        assert wire.produce(topic, batch_of(value)).error_code == 0
    with Wire(broker.address, receive_buffer=16 * 1024) as reader:
        reader.send(fetch_request(topic, {0: 0}, partition_max_bytes=50 * MEGABYTE), 12)
        # It has begun: the rest is still to be sent, from files that are about to go.
        head = reader.read(1000)
        delete(wire, topic)
        wire.create_topic(topic)
        wire.produce(topic, batch_of(b"new"))
        size = int.from_bytes(head[:4], "big")
        frame = head[4:] + reader.read(size - 996)
        assert all(value in frame for value in (values[0], values[7], values[15]))
        # What it asks next is answered from the new one, and the old one is unknown.
        assert values_of(reader.fetch(fetch_request(topic, {0: 0}))) == {0: [b"new"]}
        stale = reader.fetch(fetch_request(old_id, {0: 5}), 13).responses[0].partitions[0]
        assert stale.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_real_clients_use_a_topic_that_was_made_again(
    broker: BrokerProcess, wire: Wire, topic: str, name: str
) -> None:
    client = CLIENTS[name]
    for generation in range(3):
        messages = [Message(b"%d-%d" % (generation, i), None, 1_700_000_000_000) for i in range(20)]
        wire.create_topic(topic)
        client.produce(broker.address, topic, messages)
        assert client.consume(broker.address, topic, 0, 20) == messages
        delete(wire, topic)


def test_files_of_a_deleted_topic_are_removed(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "log.segment.delete.delay.ms=0")
    with Wire(broker.address) as wire:
        wire.create_topic("doomed", partitions=3)
        wire.produce("doomed", batch_of(b"x"))
        delete(wire, "doomed")
        wait_until(lambda: not list(broker.data_dir.glob("doomed-*")), lambda: wire.metadata())


def wait_until(holds: Callable[[], bool], meanwhile: Callable[[], object]) -> None:
    """For what the broker does by itself and tells nobody; the test's time limit is the limit."""
    while not holds():
        meanwhile()


def test_names_that_collide_are_refused_even_side_by_side(broker: BrokerProcess, wire: Wire) -> None:
    stem = f"c{uuid4().hex}"
    with Wire(broker.address) as other:
        for one, name in ((wire, f"{stem}.x"), (other, f"{stem}_x")):
            one.send(
                CreateTopicsRequest(
                    timeout_ms=1000,
                    topics=[
                        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    ],
                ),
                7,
            )
        codes = []
        for one in (wire, other):
            response = one.receive()[1]
            assert isinstance(response, CreateTopicsResponse)
            codes.append(response.topics[0].error_code)
    assert sorted(codes) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_creation_is_finished_even_if_its_client_goes(
    broker: BrokerProcess, wire: Wire, topic: str
) -> None:
    with Wire(broker.address) as leaving:
        leaving.send(
            CreateTopicsRequest(
                timeout_ms=1000,
                topics=[
                    CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=500, replication_factor=1)
                ],
            ),
            7,
        )
    wait_until(lambda: wire.metadata(topic).topics[0].error_code == 0, lambda: None)
    assert len(wire.metadata(topic).topics[0].partitions) == 500


# ---- many


def many_topics_work(broker: BrokerProcess, count: int) -> None:
    names = [f"many-{i}" for i in range(count)]
    with Wire(broker.address) as wire:
        for at in range(0, count, 500):
            request = CreateTopicsRequest(
                timeout_ms=60_000,
                topics=[
                    CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in names[at : at + 500]
                ],
            )
            response = wire.ask(request, 7)
            assert isinstance(response, CreateTopicsResponse)
            assert {one.error_code for one in response.topics} == {0}
        assert {one.name for one in wire.metadata().topics} == set(names)
        used = names[:: max(1, count // 200)]
        write(wire, used, b"first")
    assert broker.stop(timeout_s=120) == 0
    broker.start(timeout_s=120)
    with Wire(broker.address) as wire:
        assert {one.name for one in wire.metadata().topics} == set(names)
        write(wire, used, b"second")
        for name in used:
            assert values_of(wire.fetch(fetch_request(name, {0: 0}))) == {0: [b"first", b"second"]}
        assert open_files(broker) < 4096 + 256


def write(wire: Wire, names: list[str], value: bytes) -> None:
    """One record to each, pipelined."""
    for at in range(0, len(names), 100):
        some = names[at : at + 100]
        for name in some:
            wire.send(produce_request(name, batch_of(value)), 9)
        for _ in some:
            wire.receive()


def open_files(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd")) if Path("/proc").exists() else 0


def test_a_thousand_topics_start_and_work(start_broker: StartBroker) -> None:
    many_topics_work(start_broker(), 1000)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_topics_start_and_work(start_broker: StartBroker) -> None:
    many_topics_work(start_broker(), 10_000)


def test_more_segments_than_descriptors_are_read_and_written(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "flint.segment.descriptors=16")
    with Wire(broker.address) as wire:
        wire.create_topic("t", partitions=100)
        for value in (b"first", b"second"):
            for partition in range(100):
                wire.produce("t", batch_of(value), partition=partition)
        found = wire.fetch(fetch_request("t", dict.fromkeys(range(100), 0)))
        assert values_of(found) == {index: [b"first", b"second"] for index in range(100)}
        assert open_files(broker) < 60
