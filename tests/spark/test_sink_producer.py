"""Batches that are written while requests fail: each once, and those of a partition in their order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.client.addresses import parse_addresses
from flintmq.client.batch_producer import IN_FLIGHT_MAX, BatchProducer, UncompressedBatch
from flintmq.client.cluster import ClusterClient
from flintmq.client.transaction import begin, describe, end, longest_timeout_ms
from flintmq.errors import ErrorCode, RequestError
from flintmq.records.compression import Codec
from flintmq.records.record import append_record
from flintmq.testing import Broker

PARTITIONS = 3
ROUNDS = 4 * IN_FLIGHT_MAX


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.max.timeout.ms": "700000"}) as started:
        yield started


@pytest.fixture
def client(broker: Broker) -> Iterator[ClusterClient]:
    with ClusterClient(parse_addresses(broker.bootstrap_servers), sleep=lambda _: None) as made:
        yield made
    broker.faults.clear()


@pytest.fixture
def topic(broker: Broker, client: ClusterClient, request: pytest.FixtureRequest) -> str:
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)
    broker.create_topic(name, PARTITIONS)
    client.topic(name)
    return name


def records(*values: bytes) -> UncompressedBatch:
    payload = bytearray()
    for delta, value in enumerate(values):
        append_record(payload, delta, 0, None, value, ())
    return UncompressedBatch(bytes(payload), len(values), 1_700_000_000_000)


def send_all(producer: BatchProducer, topic: str) -> None:
    for number in range(ROUNDS):
        values = b"%da" % number, b"%db" % number
        producer.send({(topic, partition): records(*values) for partition in range(PARTITIONS)})
    producer.flush()


ALL = [b"%d%c" % (number, letter) for number in range(ROUNDS) for letter in b"ab"]


def written(broker: Broker, topic: str, *, read_committed: bool = False) -> list[list[bytes | None]]:
    return [
        [record.value for record in broker.records(topic, partition, read_committed=read_committed)]
        for partition in range(PARTITIONS)
    ]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.label)
def test_batches_arrive_in_their_order(
    broker: Broker, client: ClusterClient, topic: str, codec: Codec
) -> None:
    send_all(BatchProducer(client, codec=codec), topic)
    assert written(broker, topic) == [ALL] * PARTITIONS


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("hits", [1, 2, 7])
def test_a_lost_connection_neither_loses_nor_repeats_anything(
    broker: Broker, client: ClusterClient, topic: str, when: str, hits: int
) -> None:
    producer = BatchProducer(client)
    fault = broker.faults.close("Produce", when="before" if when == "before" else "after", times=hits)
    send_all(producer, topic)
    assert fault.hits == hits
    assert written(broker, topic) == [ALL] * PARTITIONS


@pytest.mark.parametrize(
    ("error", "when"), [("NOT_ENOUGH_REPLICAS", "before"), ("REQUEST_TIMED_OUT", "after")]
)
def test_an_error_that_passes_neither_loses_nor_repeats_anything(
    broker: Broker, client: ClusterClient, topic: str, error: str, when: str
) -> None:
    producer = BatchProducer(client)
    broker.faults.fail("Produce", error=error, when="before" if when == "before" else "after", times=3)
    send_all(producer, topic)
    assert written(broker, topic) == [ALL] * PARTITIONS


def test_a_broker_that_restarts_is_waited_for(broker: Broker, client: ClusterClient, topic: str) -> None:
    producer = BatchProducer(client, attempts=1000)
    producer.send({(topic, partition): records(b"first") for partition in range(PARTITIONS)})
    broker.restart()
    send_all(producer, topic)
    assert written(broker, topic) == [[b"first", *ALL]] * PARTITIONS


def test_an_error_that_stays_is_told_after_so_many_attempts(
    broker: Broker, client: ClusterClient, topic: str
) -> None:
    producer = BatchProducer(client, attempts=3)
    fault = broker.faults.fail("Produce", error="NOT_ENOUGH_REPLICAS", times=None)
    producer.send({(topic, 0): records(b"v")})
    with pytest.raises(RequestError) as refused:
        producer.flush()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert fault.hits == 3


def test_a_batch_that_is_too_large_is_told_at_once(broker: Broker, client: ClusterClient, topic: str) -> None:
    producer = BatchProducer(client)
    producer.send({(topic, 0): records(bytes(2_000_000))})
    with pytest.raises(RequestError, match=r"max\.message\.bytes") as refused:
        producer.flush()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


# ---- in transactions


def test_a_transaction_is_ended_by_whoever_knows_it(
    broker: Broker, client: ClusterClient, topic: str
) -> None:
    timeout_ms = longest_timeout_ms(client)
    assert timeout_ms == 700_000
    kept, dropped = (begin(client, name, timeout_ms=timeout_ms) for name in ("kept", "dropped"))
    for transaction in (kept, dropped):
        producer = BatchProducer(client, transaction=transaction)
        producer.send({(topic, 0): records(transaction.id.encode())})
        producer.flush()
    assert {one.state for one in describe(client, ["kept", "dropped", "nobody"]).values()} == {"Ongoing"}
    with ClusterClient(parse_addresses(broker.bootstrap_servers)) as other:
        for _ in range(2):
            assert end(other, [kept], committed=True) == {}
            assert end(other, [dropped], committed=False) == {}
        (refusal,) = end(other, [dropped], committed=True).values()
    assert refusal.code is ErrorCode.INVALID_TXN_STATE
    assert written(broker, topic, read_committed=True)[0] == [b"kept"]


def test_who_takes_the_id_fences_and_aborts_who_had_it(
    broker: Broker, client: ClusterClient, topic: str
) -> None:
    old = begin(client, "id", timeout_ms=60_000)
    producer = BatchProducer(client, transaction=old)
    producer.send({(topic, 0): records(b"old")})
    producer.flush()
    begin(client, "id", timeout_ms=60_000)
    producer.send({(topic, 0): records(b"late")})
    with pytest.raises(RequestError) as refused:
        producer.flush()
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    (refusal,) = end(client, [old], committed=True).values()
    assert refusal.code is ErrorCode.PRODUCER_FENCED
    assert written(broker, topic, read_committed=True) == [[]] * PARTITIONS


def test_many_are_ended_at_once_and_again_where_the_connection_broke(
    broker: Broker, client: ClusterClient, topic: str
) -> None:
    opened = [begin(client, f"many-{number}", timeout_ms=60_000) for number in range(150)]
    for transaction in opened:
        producer = BatchProducer(client, transaction=transaction)
        producer.send({(topic, 0): records(transaction.id.encode())})
        producer.flush()
    fault = broker.faults.close("EndTxn", when="after", times=3)
    assert end(client, opened, committed=True) == {}
    assert fault.hits == 3
    assert sorted(written(broker, topic, read_committed=True)[0], key=str) == sorted(
        (one.id.encode() for one in opened), key=str
    )
