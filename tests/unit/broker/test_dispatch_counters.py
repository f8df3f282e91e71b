"""What is counted of requests: once each, errors once for each code, wherever in the answer they stand (F12, R5)."""

from __future__ import annotations

import struct

import pytest

from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.responses import error_codes_in
from flintmq.errors import ErrorCode
from flintmq.metrics import ApiCounters
from flintmq.protocol.codec import encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdResponse,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from support.broker.single_broker import FakeConnection, Refused, SingleBroker
from support.wire.wire import batch_of, produce_request


def counted(broker: SingleBroker, api: str) -> ApiCounters:
    return broker.services.counters.apis[api]


def produce(broker: SingleBroker, message: ProduceRequest, version: int = 9) -> None:
    """Dispatched from a buffer that can be written to, as a connection's can."""
    frame = bytearray(struct.pack(">hhih", 0, version, 1, -1) + b"\0" + encode(message, 9))

    async def dispatch() -> None:
        connection = FakeConnection()
        request = Dispatcher(broker.services).dispatch(connection, memoryview(frame))
        if request is None or request.response is None:
            await connection.answer

    broker.loop.run_until_complete(dispatch())


def partition_error(code: ErrorCode) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    return ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=code)


@pytest.mark.parametrize(
    ("response", "codes"),
    [
        (InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST), [42]),
        (InitProducerIdResponse(), []),
        (
            ListOffsetsResponse(
                topics=[
                    ListOffsetsResponse.ListOffsetsTopicResponse(
                        partitions=[
                            partition_error(ErrorCode.NONE),
                            partition_error(ErrorCode.CORRUPT_MESSAGE),
                        ]
                    ),
                    ListOffsetsResponse.ListOffsetsTopicResponse(
                        partitions=[partition_error(ErrorCode.UNKNOWN_SERVER_ERROR)]
                    ),
                ]
            ),
            [2, -1],
        ),
        (
            MetadataResponse(
                topics=[
                    MetadataResponse.MetadataResponseTopic(
                        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION,
                        partitions=[MetadataResponse.MetadataResponsePartition(error_code=ErrorCode(5))],
                    )
                ]
            ),
            [17, 5],
        ),
    ],
)
def test_error_codes_are_found_wherever_they_stand(response: Message, codes: list[int]) -> None:
    assert list(error_codes_in(response)) == codes


def test_requests_bytes_and_errors_are_counted_by_api(broker: SingleBroker) -> None:
    names = ["nowhere-1", "nowhere-2"]
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    broker.ask(request, MetadataResponse, 12)
    broker.ask(request, MetadataResponse, 12)
    metadata = counted(broker, "Metadata")
    assert metadata.requests == 2
    assert metadata.bytes_in > 2 * len("nowhere-1nowhere-2")
    assert dict(metadata.errors) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2}, "once for each request"


def test_produce_and_fetch_count_the_errors_of_their_partitions(broker: SingleBroker) -> None:
    broker.create("there")
    for topic in ("there", "nowhere"):
        produce(broker, produce_request(topic, batch_of(b"x")))
    assert counted(broker, "Produce").requests == 2
    assert dict(counted(broker, "Produce").errors) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1}
    wrong = FetchRequest.FetchPartition(partition=0, fetch_offset=99, partition_max_bytes=100)
    fetch = FetchRequest(
        session_epoch=-1, topics=[FetchRequest.FetchTopic(topic="there", partitions=[wrong])]
    )
    broker.ask(fetch, FetchResponse, 12)
    broker.ask(FetchRequest(session_id=5, session_epoch=5), FetchResponse, 12)
    assert dict(counted(broker, "Fetch").errors) == {
        ErrorCode.OFFSET_OUT_OF_RANGE: 1,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND: 1,
    }


def test_a_duplicate_and_a_gap_of_an_idempotent_producer_are_counted(broker: SingleBroker) -> None:
    """KIP-98."""
    broker.create("t")

    def send(sequence: int) -> None:
        batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)
        produce(broker, produce_request("t", batch))

    for sequence in (0, 1, 1, 5):
        send(sequence)
    assert broker.services.partitions.log_dir.counters.duplicates == 1
    assert dict(counted(broker, "Produce").errors) == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: 1}


def test_a_flush_is_timed(broker: SingleBroker) -> None:
    broker.create("t", flush_messages="1")
    produce(broker, produce_request("t", batch_of(b"x")))
    logs = broker.services.partitions.log_dir.counters
    assert (sum(logs.buckets), logs.flush_failures) == (1, 0)


def test_a_version_that_is_not_served_is_counted_as_an_error(broker: SingleBroker) -> None:
    with pytest.raises(Refused):
        produce(broker, ProduceRequest(), version=2)
    assert dict(counted(broker, "Produce").errors) == {ErrorCode.UNSUPPORTED_VERSION: 1}


def test_the_errors_of_a_handler_that_answers_later_are_counted(broker: SingleBroker) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="not/valid", num_partitions=1, replication_factor=1)
    broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), CreateTopicsResponse, 7)
    assert dict(counted(broker, "CreateTopics").errors) == {ErrorCode.INVALID_TOPIC_EXCEPTION: 1}
