"""Quotas from the frame to the response, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol import messages as m
from flintmq.protocol.codegen.structures import Message
from flintmq.security.principal import Principal
from support.broker.single_broker import SingleBroker
from support.wire.wire import batch_of, fetch_request, produce_request

M = TypeVar("M", bound=Message)

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
TOPIC = "t"
VALUE = bytes(10_000)
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def set_quotas(broker: SingleBroker, quotas: Mapping[str, float | None], user: str | None = "alice") -> None:
    request = m.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type="user", entity_name=user)],
        ops=[
            request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
        ],
    )
    response = broker.ask(request(entries=[entry]), m.AlterClientQuotasResponse, 1)
    assert [one.error_code for one in response.entries] == [0]


def ask(
    broker: SingleBroker, message: Message, answer: type[M], version: int, principal: Principal = ALICE
) -> M:
    return broker.ask(message, answer, version, principal=principal)


def produce(broker: SingleBroker, principal: Principal = ALICE, acks: int = -1) -> int:
    """Write ten kilobytes; return the throttle time in milliseconds."""
    request = produce_request(TOPIC, batch_of(VALUE), acks=acks)
    response = ask(broker, request, m.ProduceResponse, 9, principal)
    assert response.responses[0].partition_responses[0].error_code == 0
    return response.throttle_time_ms


def fetch(broker: SingleBroker, offset: int = 0, session: tuple[int, int] = (0, -1)) -> m.FetchResponse:
    request = fetch_request(TOPIC, {0: offset}, session=session, max_bytes=10_000)
    return ask(broker, request, m.FetchResponse, 12)


def wait(broker: SingleBroker, seconds: float) -> None:
    broker.loop.run_until_complete(asyncio.sleep(seconds))


@pytest.fixture(autouse=True)
def topic(broker: SingleBroker) -> None:
    broker.create(TOPIC)


# ---- bytes


def test_a_producer_beyond_its_rate_has_to_wait(broker: SingleBroker) -> None:
    set_quotas(broker, {"producer_byte_rate": 10_000.0})
    times = [produce(broker) for _ in range(12)]
    assert times[:9] == [0] * 9
    assert times[-1] > 1000
    assert broker.throttled_s == times[-1] / 1000
    assert produce(broker, BOB) == 0
    assert broker.throttled_s == 0
    wait(broker, 11.1)
    assert produce(broker) == 0


def test_all_connections_of_a_user_share_its_rate(broker: SingleBroker) -> None:
    """Each request here comes by a connection of its own."""
    set_quotas(broker, {"producer_byte_rate": 10_000.0}, user=None)
    assert any(produce(broker) for _ in range(12))
    assert produce(broker, BOB) == 0


def test_a_deleted_quota_throttles_nobody_any_more(broker: SingleBroker) -> None:
    set_quotas(broker, {"producer_byte_rate": 1.0})
    assert produce(broker) > 0
    set_quotas(broker, {"producer_byte_rate": None})
    assert produce(broker) == 0
    assert not broker.limited_clients.is_active


def test_a_throttle_time_fits_into_the_response(broker: SingleBroker) -> None:
    set_quotas(broker, {"producer_byte_rate": 1.0})
    for _ in range(300):
        throttle_ms = produce(broker)
    assert throttle_ms == (1 << 31) - 1


def test_a_consumer_beyond_its_rate_gets_nothing_and_has_to_wait(broker: SingleBroker) -> None:
    """KIP-219: and what it did not get is not counted."""
    for _ in range(3):
        produce(broker, BOB)
    set_quotas(broker, {"consumer_byte_rate": 2000.0})
    first = fetch(broker)
    assert first.throttle_time_ms == 0
    assert first.responses[0].partitions[0].records
    second = fetch(broker, 1)
    assert 0 < second.throttle_time_ms < 1000
    assert second.responses == []
    assert second.error_code == 0
    assert broker.throttled_s == second.throttle_time_ms / 1000
    wait(broker, 11.1)
    assert fetch(broker, 1).responses


def test_a_batch_larger_than_all_windows_can_be_read(broker: SingleBroker) -> None:
    produce(broker, BOB)
    set_quotas(broker, {"consumer_byte_rate": 100.0})
    assert fetch(broker).responses[0].partitions[0].records
    throttled = fetch(broker)
    assert throttled.responses == []
    wait(broker, throttled.throttle_time_ms / 1000)
    assert fetch(broker).responses[0].partitions[0].records


def test_a_throttled_fetch_begins_no_session(broker: SingleBroker) -> None:
    produce(broker, BOB)
    set_quotas(broker, {"consumer_byte_rate": 2000.0})
    fetch(broker)
    throttled = fetch(broker, session=(0, 0))
    assert throttled.throttle_time_ms
    assert throttled.session_id == 0
    assert len(broker.services.sessions) == 0


def test_a_session_goes_on_after_a_throttled_fetch(broker: SingleBroker) -> None:
    produce(broker, BOB)
    begun = fetch(broker, session=(0, 0))
    set_quotas(broker, {"consumer_byte_rate": 2000.0})
    read = fetch(broker, session=(begun.session_id, 1))
    assert read.responses
    throttled = fetch(broker, session=(begun.session_id, 2))
    assert (throttled.session_id, throttled.responses) == (begun.session_id, [])
    assert throttled.throttle_time_ms
    wait(broker, 11.1)
    again = fetch(broker, session=(begun.session_id, 3))
    assert again.error_code == 0
    assert again.responses[0].partitions[0].records


# ---- time on the loop


def test_every_response_has_the_throttle_time_of_the_request_quota(broker: SingleBroker) -> None:
    """In virtual time a request takes none: it is put on the client's account by hand."""
    set_quotas(broker, {"request_percentage": 1.0, "producer_byte_rate": 10_000_000.0})
    limits = broker.limited_clients.find("alice", "")
    assert limits is not None
    assert limits.request is not None
    assert ask(broker, m.MetadataRequest(), m.MetadataResponse, 12).throttle_time_ms == 0
    limits.request.record(100.0, broker.services.clock.monotonic())
    response = ask(broker, m.MetadataRequest(), m.MetadataResponse, 12)
    # Bounded by one window, as in Kafka.
    assert response.throttle_time_ms == 1000
    assert broker.throttled_s == 1
    assert produce(broker) == 1000
    assert fetch(broker).throttle_time_ms == 1000
    groups = ask(broker, m.ListGroupsRequest(), m.ListGroupsResponse, 4)
    assert groups.throttle_time_ms == 1000
    # A version without the field: the connection is throttled all the same.
    ask(broker, m.MetadataRequest(), m.MetadataResponse, 0)
    assert broker.throttled_s == 1


# ---- mutations of topics


def create(broker: SingleBroker, name: str, partitions: int, version: int) -> tuple[int, int]:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    response = ask(broker, m.CreateTopicsRequest(topics=[topic]), m.CreateTopicsResponse, version)
    return response.topics[0].error_code, response.throttle_time_ms


def delete(broker: SingleBroker, name: str, version: int) -> tuple[int, int]:
    request = m.DeleteTopicsRequest(topic_names=[name])
    if version >= 6:
        request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name)])
    response = ask(broker, request, m.DeleteTopicsResponse, version)
    return response.responses[0].error_code, response.throttle_time_ms


def add(broker: SingleBroker, count: int, version: int) -> tuple[int, int]:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=count, assignments=None)
    response = ask(broker, m.CreatePartitionsRequest(topics=[topic]), m.CreatePartitionsResponse, version)
    return response.results[0].error_code, response.throttle_time_ms


def test_mutations_beyond_the_quota_are_rejected(broker: SingleBroker) -> None:
    """KIP-599: 1 a second is 11 at once; a request that begins within the quota is carried out as a whole."""
    set_quotas(broker, {"controller_mutation_rate": 1.0})
    assert create(broker, "a", 10, 7) == (0, 0)
    assert create(broker, "b", 5, 7) == (0, 0)
    assert create(broker, "c", 1, 7) == (EXCEEDED, 4000)
    assert broker.throttled_s == 4
    assert add(broker, 2, 3) == (EXCEEDED, 4000)
    assert delete(broker, "a", 6) == (EXCEEDED, 4000)
    assert {"a", "b"} <= set(broker.services.metadata.image.topics)
    assert "c" not in broker.services.metadata.image.topics
    wait(broker, 4.0)
    assert delete(broker, "b", 6) == (0, 0)
    assert delete(broker, "a", 6) == (EXCEEDED, 5000)


def test_older_versions_are_carried_out_and_have_to_wait(broker: SingleBroker) -> None:
    set_quotas(broker, {"controller_mutation_rate": 1.0})
    assert create(broker, "a", 10, 5) == (0, 0)
    assert create(broker, "b", 5, 5) == (0, 4000)
    assert broker.throttled_s == 4
    assert add(broker, 3, 2) == (0, 6000)
    assert delete(broker, "b", 4) == (0, 11000)


def test_topics_of_one_request_are_rejected_from_the_quota_on(broker: SingleBroker) -> None:
    set_quotas(broker, {"controller_mutation_rate": 1.0})
    request = m.CreateTopicsRequest
    topics = [
        request.CreatableTopic(name=f"n{at}", num_partitions=6, replication_factor=1) for at in range(4)
    ]
    response = ask(broker, request(topics=topics), m.CreateTopicsResponse, 7)
    assert [one.error_code for one in response.topics] == [0, 0, EXCEEDED, EXCEEDED]
    assert response.throttle_time_ms == 1000


def test_what_is_refused_for_another_reason_takes_nothing_of_the_quota(broker: SingleBroker) -> None:
    set_quotas(broker, {"controller_mutation_rate": 1.0})
    for _ in range(20):
        assert create(broker, TOPIC, 10, 7)[0] == ErrorCode.TOPIC_ALREADY_EXISTS
        assert add(broker, 1, 3)[0] == ErrorCode.INVALID_PARTITIONS
        assert delete(broker, "unknown", 6)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(broker, "a", 11, 7) == (0, 0)


def test_topics_that_metadata_requests_create_count_too(broker: SingleBroker) -> None:
    set_quotas(broker, {"controller_mutation_rate": 1.0})
    wanted = [m.MetadataRequest.MetadataRequestTopic(name=f"made-{at}") for at in range(12)]
    request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    assert ask(broker, request, m.MetadataResponse, 12).throttle_time_ms == 1000
    assert create(broker, "a", 1, 7)[0] == EXCEEDED
