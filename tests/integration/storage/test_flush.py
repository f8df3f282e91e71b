"""When an acknowledgement means that the records are on stable storage (R4)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from flintmq.protocol.messages import (
    FetchResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ProduceRequest,
    ProduceResponse,
)
from support.broker.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import CLIENTS, Message
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, values_of

TOPIC_RESOURCE = 2


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("flush") / "data") as started:
        yield started


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.address) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4()}"


@pytest.mark.parametrize("acks", [1, -1])
def test_with_flush_messages_1_records_are_acknowledged_and_visible(
    wire: Wire, topic: str, acks: int
) -> None:
    wire.create_topic(topic, flush_messages="1")
    for i in range(20):
        assert wire.produce(topic, batch_of(b"%d" % i), acks=acks).base_offset == i
        assert values_of(wire.fetch(fetch_request(topic, {0: i}))) == {0: [b"%d" % i]}


def test_acknowledgements_of_many_partitions_come_together(wire: Wire, topic: str) -> None:
    """One request, several logs with their own fsyncs: answered once, and complete."""
    wire.create_topic(topic, partitions=5, flush_messages="1")
    request = produce_request(topic, b"")
    request.topic_data[0].partition_data = [
        ProduceRequest.PartitionProduceData(index=index, records=batch_of(b"%d" % index))
        for index in range(5)
    ]
    response = wire.ask(request, 9)
    assert isinstance(response, ProduceResponse)
    assert [(p.index, p.error_code, p.base_offset) for p in response.responses[0].partition_responses] == [
        (index, 0, 0) for index in range(5)
    ]


def test_an_answer_is_complete_even_if_a_part_is_durable_long_before_the_rest(wire: Wire) -> None:
    """The first topic flushes while the second still has its batch opened in a thread."""
    quick, slow = f"t-{uuid4()}", f"t-{uuid4()}"
    wire.create_topic(quick, flush_messages="1")
    wire.create_topic(slow, flush_messages="1", compression_type="gzip", max_message_bytes="40000000")
    request = produce_request(quick, batch_of(b"quick"))
    request.topic_data += produce_request(slow, batch_of(bytes(20_000_000))).topic_data
    for expected in range(3):
        response = wire.ask(request, 9)
        assert isinstance(response, ProduceResponse)
        assert [
            (one.name, [(p.error_code, p.base_offset) for p in one.partition_responses])
            for one in response.responses
        ] == [(quick, [(0, expected)]), (slow, [(0, expected)])]


def test_pipelined_writes_share_fsyncs_and_keep_their_order(wire: Wire, topic: str) -> None:
    wire.create_topic(topic, flush_messages="1")
    sent = [wire.send(produce_request(topic, batch_of(b"%d" % i)), 9) for i in range(200)]
    answers = [wire.receive() for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    offsets = [
        response.responses[0].partition_responses[0].base_offset
        for _, response in answers
        if isinstance(response, ProduceResponse)
    ]
    assert offsets == list(range(200))


def test_acknowledged_records_were_synced_before_the_answer(start_broker: StartBroker) -> None:
    """Seen from outside, by the system calls."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("toolchain: strace is not installed")
    broker = start_broker()
    with Wire(broker.address) as wire:
        wire.create_topic("durable", flush_messages="1")
        wire.produce("durable", batch_of(b"first"))
        trace = broker.data_dir.with_name("trace")
        tracer = subprocess.Popen(
            [strace, "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,pwrite64", "-p", str(broker.pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            if "attached" not in line:
                pytest.skip(f"toolchain: strace may not attach here: {line.strip()}")
            for i in range(10):
                wire.produce("durable", batch_of(b"%d" % i))
        finally:
            tracer.terminate()
            tracer.wait()
        calls = [line for line in trace.read_text().splitlines() if "pwrite64" in line or "sync(" in line]
        assert sum("pwrite64" in line for line in calls) >= 10
        assert sum("sync(" in line for line in calls) >= 10


def test_flush_messages_may_be_changed_while_the_topic_is_used(wire: Wire, topic: str) -> None:
    wire.create_topic(topic)
    assert wire.produce(topic, batch_of(b"0")).base_offset == 0
    for expected, value in enumerate(("1", "9223372036854775807", "1"), 1):
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name="flush.messages", config_operation=0, value=value
        )
        response = wire.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsRequest.AlterConfigsResource(
                        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
                    )
                ]
            ),
            1,
        )
        assert isinstance(response, IncrementalAlterConfigsResponse)
        assert response.responses[0].error_code == 0
        assert wire.produce(topic, batch_of(b"%d" % expected)).base_offset == expected
    assert values_of(wire.fetch(fetch_request(topic, {0: 0}))) == {0: [b"0", b"1", b"2", b"3"]}


def test_records_are_not_visible_before_they_are_durable(wire: Wire, topic: str) -> None:
    """A fetch in front of the acknowledgement on the same connection sees at most what is acknowledged."""
    wire.create_topic(topic, flush_messages="1")
    for i in range(50):
        produce = wire.send(produce_request(topic, batch_of(b"%d" % i)), 9)
        fetch = wire.send(fetch_request(topic, {0: i}), 12)
        answered = [wire.receive() for _ in range(2)]
        assert [correlation_id for correlation_id, _ in answered] == [produce, fetch]
        response = answered[1][1]
        assert isinstance(response, FetchResponse)
        (partition,) = response.responses[0].partitions
        assert partition.high_watermark in (i, i + 1)
        assert len(values_of(response)[0]) == partition.high_watermark - i


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_real_producers_wait_for_the_fsync(broker: BrokerProcess, wire: Wire, topic: str, name: str) -> None:
    wire.create_topic(topic, flush_messages="1")
    messages = [Message(b"%d" % i, None, 1_700_000_000_000) for i in range(100)]
    client = CLIENTS[name]
    assert client.produce(broker.address, topic, messages) == list(range(100))
    assert client.consume(broker.address, topic, 0, 100) == messages
