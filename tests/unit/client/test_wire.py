from __future__ import annotations

import struct

import pytest

from flintmq.client.api_versions import ServedVersions, decode_api_versions, next_attempt
from flintmq.client.wire import Allocate, ClientProtocol
from flintmq.errors import ErrorCode, ProtocolError, UnsupportedVersion
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.header import parse_request_header, response_header
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)


def answer(correlation_id: int, cluster_id: str, *, version: int = 12) -> bytes:
    body = response_header(correlation_id, version >= 9) + encode(
        MetadataResponse(cluster_id=cluster_id), version
    )
    return struct.pack(">i", len(body)) + body


def arrive(wire: ClientProtocol, data: bytes) -> None:
    while data:
        room = wire.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        wire.received(count)
        data = data[count:]


def test_a_request_is_a_frame_with_its_header_in_the_form_of_its_version() -> None:
    wire = ClientProtocol("me")
    for version in (1, 12):
        frame = wire.request(MetadataRequest(topics=None), version)
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        key, read_version, correlation_id, client_id, body = parse_request_header(frame, 4, len(frame))
        assert (key, read_version, client_id) == (MetadataRequest.api_key, version, "me")
        assert decode(MetadataRequest, frame, version, body) == (MetadataRequest(topics=None), len(frame))
        assert correlation_id == (0 if version == 1 else 1)


def test_answers_come_in_order_however_the_bytes_are_cut() -> None:
    wire = ClientProtocol("me")
    wire.request(MetadataRequest(), 12)
    wire.request(MetadataRequest(), 1)
    for byte in answer(0, "first") + answer(1, "ignored", version=1):
        assert wire.in_flight > 0
        arrive(wire, bytes([byte]))
        if wire.in_flight == 2 and (first := wire.next_response()) is not None:
            assert isinstance(first, MetadataResponse)
            assert first.cluster_id == "first"
    assert isinstance(wire.next_response(), MetadataResponse)
    assert wire.in_flight == 0
    assert wire.next_response() is None


def dirty(size: int) -> memoryview:
    """A buffer that was used before."""
    return memoryview(bytearray(b"\xff" * size))


@pytest.mark.parametrize("allocate", [bytearray, dirty])
def test_a_large_answer_keeps_its_bytes_when_others_follow(allocate: Allocate) -> None:
    wire = ClientProtocol("me", allocate)
    sizes = (10, 64 * 1024, 300_000, 5_000_000, 10)
    for _ in sizes:
        wire.request(FetchRequest(), 12)
    answers = []
    for at, size in enumerate(sizes):
        partition = FetchResponse.PartitionData(partition_index=at, records=bytes([at]) * size)
        response = FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])]
        )
        body = response_header(at, True) + encode(response, 12)
        arrive(wire, struct.pack(">i", len(body)) + body)
        while (message := wire.next_response()) is not None:
            answers.append(message)
    found = [message.responses[0].partitions[0] for message in answers if isinstance(message, FetchResponse)]
    assert [bytes(one.records or b"") for one in found] == [
        bytes([at]) * size for at, size in enumerate(sizes)
    ]


def test_a_length_that_is_only_claimed_takes_little_memory() -> None:
    wire = ClientProtocol("me")
    wire.request(MetadataRequest(), 12)
    arrive(wire, struct.pack(">i", 500_000_000) + bytes(100_000))
    assert wire.next_response() is None
    assert len(wire.room()) < 9_000_000


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (answer(7, "x"), "7 came where 0"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak Kafka"),
        (struct.pack(">i", -1), "does not speak Kafka"),
        (struct.pack(">ii", 4, 0), "header"),
    ],
)
def test_bytes_that_make_no_sense_end_the_conversation(data: bytes, words: str) -> None:
    wire = ClientProtocol("me")
    wire.request(MetadataRequest(), 12)
    arrive(wire, data)
    with pytest.raises(ProtocolError, match=words):
        wire.next_response()


def test_an_answer_to_nothing_is_refused_and_a_request_without_answer_awaits_none() -> None:
    wire = ClientProtocol("me")
    wire.request(ProduceRequest(acks=0), 9, expects_response=False)
    assert wire.in_flight == 0
    arrive(wire, answer(0, "x"))
    with pytest.raises(ProtocolError, match="nobody asked"):
        wire.next_response()


def test_the_highest_common_version_is_chosen() -> None:
    served = ServedVersions({FetchRequest.api_key: (4, 11), MetadataRequest.api_key: (0, 99), 0: (0, 2)})
    assert served.choose(FetchRequest) == 11
    assert served.choose(FetchRequest, highest=7) == 7
    assert served.choose(MetadataRequest) == MetadataRequest.versions[1]
    with pytest.raises(UnsupportedVersion, match="Produce in versions 0 to 2"):
        served.choose(ProduceRequest)
    with pytest.raises(UnsupportedVersion, match="does not know DescribeCluster"):
        served.choose(DescribeClusterRequest)


def test_an_answer_of_version_0_to_a_newer_question_is_understood() -> None:
    """KIP-511."""
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)],
    )
    read = decode_api_versions(encode(refusal, 0), 4, 0)
    assert read.api_keys == refusal.api_keys
    assert next_attempt(read, tried=4) == 2
    assert next_attempt(ApiVersionsResponse(), tried=4) is None


def test_a_broker_that_refuses_without_a_list_is_asked_in_version_0_and_no_further() -> None:
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert next_attempt(refusal, tried=ApiVersionsRequest.versions[1]) == 0
    with pytest.raises(UnsupportedVersion):
        next_attempt(refusal, tried=0)
