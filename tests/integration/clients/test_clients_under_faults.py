"""Real producers and consumers while things go wrong: nothing is lost, and nothing written twice (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.testing import Broker
from support.clients.kafka_clients import CLIENTS, KafkaClient, Message

TIMESTAMP = 1_700_000_000_000
MESSAGES = [Message(b"%d" % i, b"k", TIMESTAMP + i) for i in range(200)]
IDEMPOTENT = {"enable.idempotence": True}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        started.create_topic("t")
        yield started


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest) -> KafkaClient:
    return CLIENTS[str(request.param)]


def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.records("t")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_connection_loses_and_repeats_nothing(broker: Broker, client: KafkaClient, when: str) -> None:
    fault = broker.faults.close("Produce", when=when)  # type: ignore[arg-type]
    client.produce(broker.bootstrap_servers, "t", MESSAGES, **IDEMPOTENT)
    assert fault.hits == 1
    assert values(broker) == [message.value for message in MESSAGES]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"])
def test_an_error_that_passes_loses_and_repeats_nothing(
    broker: Broker, client: KafkaClient, error: str, when: str
) -> None:
    fault = broker.faults.fail("Produce", error=error, topic="t", when=when)  # type: ignore[arg-type]
    client.produce(broker.bootstrap_servers, "t", MESSAGES, **IDEMPOTENT)
    assert fault.hits == 1
    assert values(broker) == [message.value for message in MESSAGES]


def test_a_leader_that_is_not_known_yet_is_waited_for(broker: Broker, client: KafkaClient) -> None:
    fault = broker.faults.fail("Metadata", error="LEADER_NOT_AVAILABLE", topic="t")
    client.produce(broker.bootstrap_servers, "t", MESSAGES, **IDEMPOTENT)
    assert fault.hits == 1
    assert values(broker) == [message.value for message in MESSAGES]


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_LEADER_EPOCH"])
def test_a_reader_goes_on_after_a_failed_fetch(broker: Broker, client: KafkaClient, error: str) -> None:
    client.produce(broker.bootstrap_servers, "t", MESSAGES)
    fault = broker.faults.fail("Fetch", error=error, topic="t")
    assert client.consume(broker.bootstrap_servers, "t", 0, len(MESSAGES)) == MESSAGES
    assert fault.hits == 1


def test_a_reader_goes_on_after_a_lost_connection(broker: Broker, client: KafkaClient) -> None:
    client.produce(broker.bootstrap_servers, "t", MESSAGES)
    fault = broker.faults.close("Fetch")
    assert client.consume(broker.bootstrap_servers, "t", 0, len(MESSAGES)) == MESSAGES
    assert fault.hits == 1
