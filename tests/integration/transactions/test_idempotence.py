"""Idempotent producers: a batch sent twice is written once, whatever happens in between (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, ProduceResponse
from support.broker.broker_process import BrokerProcess
from support.clients.kafka_clients import CLIENTS, Message
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, values_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("idempotence") / "data") as started:
        yield started


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.address) as connected:
        yield connected


@pytest.fixture
def topic(wire: Wire) -> str:
    name = f"t-{uuid4()}"
    wire.create_topic(name)
    return name


def new_producer(wire: Wire, version: int = 4) -> int:
    response = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    assert isinstance(response, InitProducerIdResponse)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    return response.producer_id


def batch(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    return batch_of(
        *(values or (b"%d" % sequence,)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_given_once(wire: Wire, version: int) -> None:
    ids = [new_producer(wire, version) for _ in range(5)]
    assert len(set(ids)) == 5


def test_producer_ids_are_not_given_again_after_a_crash(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        before = [new_producer(wire) for _ in range(3)]
    broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        assert new_producer(wire) not in before


def test_a_retry_gets_its_original_offset(wire: Wire, topic: str) -> None:
    producer = new_producer(wire)
    for sequence in range(5):
        assert wire.produce(topic, batch(producer, sequence)).base_offset == sequence
    for sequence in range(5):
        again = wire.produce(topic, batch(producer, sequence))
        assert (again.error_code, again.base_offset) == (0, sequence)
    assert wire.produce(topic, batch(producer, 5)).base_offset == 5
    assert values_of(wire.fetch(fetch_request(topic, {0: 0}))) == {0: [b"%d" % i for i in range(6)]}


def test_gaps_and_batches_forgotten_are_out_of_order(wire: Wire, topic: str) -> None:
    producer = new_producer(wire)
    for sequence in range(7):
        wire.produce(topic, batch(producer, sequence))
    for sequence in (0, 1, 8, 100):
        answer = wire.produce(topic, batch(producer, sequence))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce(topic, batch(producer, 7)).base_offset == 7


def test_pipelined_batches_behind_a_gap_all_fail(wire: Wire, topic: str) -> None:
    producer = new_producer(wire)
    for sequence in (0, 2, 3, 1, 2):
        wire.send(produce_request(topic, batch(producer, sequence)), 9)
    codes = []
    for _ in range(5):
        response = wire.receive()[1]
        assert isinstance(response, ProduceResponse)
        codes.append(response.responses[0].partition_responses[0].error_code)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert codes == [0, out_of_order, out_of_order, 0, 0]


def test_an_old_epoch_is_fenced_and_a_new_one_starts_at_0(wire: Wire, topic: str) -> None:
    producer = new_producer(wire)
    wire.produce(topic, batch(producer, 0, epoch=1))
    assert wire.produce(topic, batch(producer, 1, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (
        wire.produce(topic, batch(producer, 1, epoch=2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert wire.produce(topic, batch(producer, 0, epoch=2)).error_code == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_retry_after_a_restart_is_recognised(broker: BrokerProcess, how: str) -> None:
    topic = f"t-{uuid4()}"
    with Wire(broker.address) as wire:
        wire.create_topic(topic)
        producer = new_producer(wire)
        for sequence in range(3):
            wire.produce(topic, batch(producer, sequence))
    if how == "stop":
        assert broker.stop() == 0
    else:
        broker.kill()
    broker.start()
    with Wire(broker.address) as wire:
        again = wire.produce(topic, batch(producer, 2))
        assert (again.error_code, again.base_offset) == (0, 2)
        assert wire.produce(topic, batch(producer, 3)).base_offset == 3
        assert len(values_of(wire.fetch(fetch_request(topic, {0: 0})))[0]) == 4


def test_a_retry_of_a_batch_that_was_recompressed_is_recognised(wire: Wire) -> None:
    topic = f"t-{uuid4()}"
    wire.create_topic(topic, compression_type="zstd")
    producer = new_producer(wire)
    for _ in range(2):
        answer = wire.produce(topic, batch(producer, 0, b"x" * 100, b"y"))
        assert (answer.error_code, answer.base_offset) == (0, 0)
    assert wire.produce(topic, batch(producer, 2)).base_offset == 2


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_real_producers_carry_on_over_a_crash(broker: BrokerProcess, name: str) -> None:
    client, topic = CLIENTS[name], f"t-{uuid4()}"
    before = [Message(b"before-%d" % i, None, 1_700_000_000_000) for i in range(50)]
    after = [Message(b"after-%d" % i, None, 1_700_000_000_000) for i in range(50)]
    client.produce(broker.address, topic, before, **{"enable.idempotence": True})
    broker.kill()
    broker.start()
    client.produce(broker.address, topic, after, **{"enable.idempotence": True})
    assert client.consume(broker.address, topic, 0, 100) == before + after
