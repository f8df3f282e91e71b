"""Produce by hand is byte for byte what the generated codec reads and writes, in every version (F2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.errors import ProtocolError
from flintmq.protocol import produce
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.messages import ProduceRequest, ProduceResponse
from flintmq.protocol.produce import ProducedPartition
from support.wire.values import (
    EXAMPLES,
    endpoints,
    int16,
    int32,
    int64,
    leaders,
    payload,
    refusal,
    text,
    topic_id,
    topics,
)

produce_versions = pytest.mark.parametrize("version", range(3, 14))


@st.composite
def produce_requests(draw: st.DrawFn, version: int) -> ProduceRequest:
    made = ProduceRequest(transactional_id=draw(st.none() | text), acks=draw(int16), timeout_ms=draw(int32))
    for _ in range(draw(st.integers(0, 3))):
        topic = ProduceRequest.TopicProduceData()
        if version >= produce.FIRST_TOPIC_IDS:
            topic.topic_id = draw(topic_id)
        else:
            topic.name = draw(text)
        topic.partition_data = [
            ProduceRequest.PartitionProduceData(index=draw(int32), records=draw(st.none() | payload))
            for _ in range(draw(st.integers(0, 3)))
        ]
        made.topic_data.append(topic)
    return made


def plain(request: ProduceRequest, version: int) -> tuple[Any, ...]:
    """What the generated codec read, in the form of the one by hand."""
    return (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (
                topic.topic_id if version >= produce.FIRST_TOPIC_IDS else topic.name,
                [(one.index, one.records) for one in topic.partition_data],
            )
            for topic in request.topic_data
        ],
    )


def fields(request: produce.ProduceRequest) -> tuple[Any, ...]:
    return request.transactional_id, request.acks, request.timeout_ms, request.topics


@produce_versions
@EXAMPLES
@given(data=st.data())
def test_a_produce_request_is_read_as_the_generated_codec_reads_it(version: int, data: st.DataObject) -> None:
    encoded = b"head" + encode(data.draw(produce_requests(version)), version)
    expected, _ = decode(ProduceRequest, encoded, version, 4)
    found = produce.decode_request(memoryview(bytearray(encoded)), 4, version)
    assert fields(found) == plain(expected, version)


@produce_versions
def test_records_are_views_of_the_frame_and_writable(version: int) -> None:
    made = ProduceRequest(acks=1, timeout_ms=1)
    topic = ProduceRequest.TopicProduceData(
        partition_data=[ProduceRequest.PartitionProduceData(index=7, records=b"records")]
    )
    if version >= produce.FIRST_TOPIC_IDS:
        topic.topic_id = b"i" * 16
    else:
        topic.name = "t"
    made.topic_data.append(topic)
    frame = bytearray(encode(made, version))
    records = produce.decode_request(memoryview(frame), 0, version).topics[0][1][0][1]
    assert records is not None
    records[0:7] = b"changed"
    assert b"changed" in frame


@produce_versions
@EXAMPLES
@given(data=st.data())
def test_damaged_produce_requests_are_refused_as_the_generated_codec_refuses_them(
    version: int, data: st.DataObject
) -> None:
    encoded = bytearray(encode(data.draw(produce_requests(version)), version))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    for damaged in (encoded, cut):
        expected: tuple[Any, ...] | None
        try:
            expected = plain(decode(ProduceRequest, damaged, version)[0], version)
        except ProtocolError:
            expected = None
        found: tuple[Any, ...] | None
        try:
            found = fields(produce.decode_request(memoryview(damaged), 0, version))
        except ProtocolError:
            found = None
        assert found == expected


@produce_versions
@given(junk=st.binary(max_size=200))
@EXAMPLES
def test_junk_for_produce_is_never_more_than_a_protocol_error(version: int, junk: bytes) -> None:
    reason = refusal(produce.decode_request, junk, version)
    assert not reason or f"ProduceRequest version {version}" in reason


@st.composite
def produced(draw: st.DrawFn, version: int) -> ProducedPartition:
    error_code = draw(int16)
    # Only an error has reasons, and a leader that is elsewhere.
    has_reasons = error_code != 0 and version >= 8
    return ProducedPartition(
        draw(int32),
        error_code,
        draw(int64),
        draw(int64),
        draw(int64) if version >= 5 else -1,
        draw(st.none() | text) if has_reasons else None,
        draw(st.lists(st.tuples(int32, text), max_size=3)) if has_reasons else (),
        draw(st.none() | leaders) if has_reasons and version >= produce.FIRST_LEADERS else None,
    )


@produce_versions
@EXAMPLES
@given(data=st.data())
def test_a_produce_response_is_written_as_the_generated_codec_writes_it(
    version: int, data: st.DataObject
) -> None:
    answers = data.draw(
        st.lists(
            st.tuples(topics(version, produce.FIRST_TOPIC_IDS), st.lists(produced(version), max_size=3)),
            max_size=3,
        )
    )
    throttle_ms = data.draw(int32)
    nodes = data.draw(endpoints)
    expected = ProduceResponse(throttle_time_ms=throttle_ms)
    if version >= produce.FIRST_LEADERS:
        expected.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in nodes
        ]
    for topic, partitions in answers:
        one = ProduceResponse.TopicProduceResponse(
            partition_responses=[
                ProduceResponse.PartitionProduceResponse(
                    index=p.partition,
                    error_code=p.error_code,
                    base_offset=p.base_offset,
                    log_append_time_ms=p.append_time_ms,
                    log_start_offset=p.start_offset,
                    error_message=p.error_message,
                    record_errors=[
                        ProduceResponse.BatchIndexAndErrorMessage(
                            batch_index=at, batch_index_error_message=why
                        )
                        for at, why in p.record_errors
                    ],
                )
                for p in partitions
            ]
        )
        for p, made in zip(partitions, one.partition_responses, strict=True):
            if p.current_leader is not None:
                made.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=p.current_leader[0], leader_epoch=p.current_leader[1]
                )
        if isinstance(topic, bytes):
            one.topic_id = topic
        else:
            one.name = topic
        expected.responses.append(one)
    out = bytearray(b"head")
    produce.encode_response(out, version, answers, throttle_ms, nodes)
    assert out == b"head" + encode(expected, version)
