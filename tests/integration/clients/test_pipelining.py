"""Many requests on one connection, answered in order (F2, S10)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import uuid4

import pytest

from flintmq.broker.apis import ADVERTISED
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from support.broker.broker_process import BrokerProcess
from support.wire.wire import Wire, batch_of, fetch_request, produce_request, values_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("pipelining") / "data") as started:
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


def latest(topic: str) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)],
            )
        ],
    )


def test_requests_of_all_kinds_are_answered_in_their_order(wire: Wire, topic: str) -> None:
    sent: list[int] = []
    for i in range(20):
        sent.append(wire.send(produce_request(topic, batch_of(b"%d" % i)), 9))
        sent.append(wire.send(latest(topic), 7))
        sent.append(wire.send(fetch_request(topic, {0: i}), 12))
        sent.append(wire.send(MetadataRequest(topics=None), 12))
        sent.append(wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4))
        sent.append(wire.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3))
    answers = [wire.receive() for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    for i in range(20):
        produced, offsets, fetched = (answers[6 * i + at][1] for at in range(3))
        assert isinstance(produced, ProduceResponse)
        assert produced.responses[0].partition_responses[0].base_offset == i
        # What was sent before is done before: each sees what the one before it did.
        assert isinstance(offsets, ListOffsetsResponse)
        assert offsets.topics[0].partitions[0].offset == i + 1
        assert isinstance(fetched, FetchResponse)
        assert values_of(fetched) == {0: [b"%d" % i]}


def test_a_request_behind_a_long_poll_is_done_and_answered_behind_it(wire: Wire, topic: str) -> None:
    poll = wire.send(fetch_request(topic, {0: 0}, max_wait_ms=600_000), 12)
    # The poll waits for what is sent behind it on the same connection.
    produce = wire.send(produce_request(topic, batch_of(b"woken")), 9)
    first, second = wire.receive(), wire.receive()
    assert (first[0], second[0]) == (poll, produce)
    assert isinstance(first[1], FetchResponse)
    assert values_of(first[1]) == {0: [b"woken"]}


def test_more_requests_than_may_be_in_flight_are_all_answered(wire: Wire, topic: str) -> None:
    polls = [wire.send(fetch_request(topic, {0: 0}, max_wait_ms=100), 12) for _ in range(300)]
    assert [wire.receive()[0] for _ in polls] == polls


def test_a_frame_in_many_pieces_is_one_request(wire: Wire, topic: str) -> None:
    frame = wire.frame(produce_request(topic, batch_of(b"x" * 1000)), 9, 77)
    for at in range(0, len(frame), 7):
        wire.sock.sendall(frame[at : at + 7])
    correlation_id, response = wire.receive()
    assert correlation_id == 77
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_requests_that_need_a_thread_keep_their_place(broker: BrokerProcess) -> None:
    """Batches that the topic wants opened are handled by a task, behind a barrier."""
    with Wire(broker.address) as wire:
        slow, fast = f"t-{uuid4()}", f"t-{uuid4()}"
        wire.create_topic(slow, compression_type="zstd")
        wire.create_topic(fast)
        sent = []
        for i in range(30):
            sent.append(wire.send(produce_request(slow, batch_of(b"%d" % i * 1000)), 9))
            sent.append(wire.send(produce_request(fast, batch_of(b"%d" % i)), 9))
            sent.append(wire.send(latest(slow), 7))
        answers = [wire.receive() for _ in sent]
        assert [correlation_id for correlation_id, _ in answers] == sent
        for i in range(30):
            offsets = answers[3 * i + 2][1]
            assert isinstance(offsets, ListOffsetsResponse)
            assert offsets.topics[0].partitions[0].offset == i + 1


# ---- acks=0


def test_without_acknowledgement_there_is_no_answer(wire: Wire, topic: str) -> None:
    for i in range(10):
        wire.send(produce_request(topic, batch_of(b"%d" % i), acks=0), 9)
    fetch = wire.send(fetch_request(topic, {0: 0}), 12)
    correlation_id, response = wire.receive()
    assert correlation_id == fetch
    assert isinstance(response, FetchResponse)
    assert values_of(response) == {0: [b"%d" % i for i in range(10)]}


def test_without_acknowledgement_an_error_closes_the_connection(wire: Wire) -> None:
    wire.send(produce_request("no-such-topic", batch_of(b"x"), acks=0), 9)
    assert wire.is_closed_by_the_broker()


def test_records_sent_before_the_client_left_are_written(broker: BrokerProcess, wire: Wire) -> None:
    """Also those that a thread had to open first."""
    topic = f"t-{uuid4()}"
    wire.create_topic(topic, compression_type="gzip")
    with Wire(broker.address) as leaving:
        for i in range(20):
            leaving.send(produce_request(topic, batch_of(b"%d" % i), acks=0), 9)
    found: list[bytes | None] = []
    while len(found) < 20:
        found += values_of(wire.fetch(fetch_request(topic, {0: len(found)}, max_wait_ms=600_000)))[0]
    assert found == [b"%d" % i for i in range(20)]


# ---- versions


def test_every_version_of_api_versions_lists_what_is_served(broker: BrokerProcess) -> None:
    for version in range(5):
        with Wire(broker.address) as wire:
            response = wire.ask(
                ApiVersionsRequest(client_software_name="test", client_software_version="1"), version
            )
            assert isinstance(response, ApiVersionsResponse)
            assert response.error_code == 0
            assert {(k.api_key, k.min_version, k.max_version) for k in response.api_keys} == {
                (api.key, *api.advertised) for api in ADVERTISED
            }


def test_a_too_new_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    """KIP-511."""
    body = struct.pack(">hhih", 18, 99, 5, -1) + b"\0junk of a later version"
    wire.sock.sendall(struct.pack(">i", len(body)) + body)
    frame = wire.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, count) == (5, ErrorCode.UNSUPPORTED_VERSION, len(ADVERTISED))
    assert len(frame) == 10 + 6 * count
    # The connection goes on.
    assert wire.metadata().error_code == 0


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (3, 99), (4, 0), (999, 0)])
def test_a_version_or_api_that_is_not_served_closes_the_connection(
    wire: Wire, key: int, version: int
) -> None:
    body = struct.pack(">hhih", key, version, 1, -1) + bytes(50)
    wire.sock.sendall(struct.pack(">i", len(body)) + body)
    assert wire.is_closed_by_the_broker()


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(wire: Wire, topic: str, version: int) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    response = wire.ask(request, version)
    assert isinstance(response, MetadataResponse)
    assert [(one.name, one.error_code, len(one.partitions)) for one in response.topics] == [(topic, 0, 1)]
    assert len(response.brokers) == 1
    everything = wire.ask(MetadataRequest(topics=[] if version == 0 else None), version)
    assert isinstance(everything, MetadataResponse)
    assert topic in [one.name for one in everything.topics]


@pytest.mark.parametrize("version", range(3, 13))
def test_produce_in_every_version_by_name(wire: Wire, topic: str, version: int) -> None:
    assert wire.produce(topic, batch_of(b"x"), version=version).error_code == 0
    unknown = wire.produce(topic, batch_of(b"x"), partition=7, version=version)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_produce_and_fetch_by_topic_id(wire: Wire) -> None:
    """KIP-516."""
    topic_id = wire.create_topic(f"t-{uuid4()}")
    request = produce_request("", batch_of(b"x"))
    request.topic_data[0].name, request.topic_data[0].topic_id = "", topic_id
    response = wire.ask(request, 13)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert values_of(wire.fetch(fetch_request(topic_id, {0: 0}), 17)) == {0: [b"x"]}
    request.topic_data[0].topic_id = b"\x07" * 16
    response = wire.ask(request, 13)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    missing = wire.fetch(fetch_request(b"\x07" * 16, {0: 0}), 17)
    assert missing.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
