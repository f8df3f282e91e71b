"""Produce and Fetch by hand are byte for byte what the generated codec reads and writes, in every version (F2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import ProtocolError
from flintmq.protocol import fetch, produce
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.fetch import FetchedPartition
from flintmq.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from flintmq.protocol.produce import ProducedPartition

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
EXAMPLES = settings(max_examples=40, deadline=None)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(max_size=200)
topic_id = st.binary(min_size=16, max_size=16)
payload = st.binary(max_size=300) | st.sampled_from((b"x" * 126, b"x" * 127, b"x" * 128, b"x" * 20_000))

produce_versions = pytest.mark.parametrize("version", PRODUCE_VERSIONS)
fetch_versions = pytest.mark.parametrize("version", FETCH_VERSIONS)


class Records:
    """Something with a size whose bytes come later, as a range of a file is."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read(self) -> bytes:
        return self.data


def topics(version: int, first_ids: int) -> st.SearchStrategy[str | bytes]:
    return topic_id if version >= first_ids else text


# ---- Produce requests


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


@produce_versions
@EXAMPLES
@given(data=st.data())
def test_a_produce_request_is_read_as_the_generated_codec_reads_it(version: int, data: st.DataObject) -> None:
    encoded = b"head" + encode(data.draw(produce_requests(version)), version)
    expected, _ = decode(ProduceRequest, encoded, version, 4)
    assert produce.decode_request(memoryview(bytearray(encoded)), 4, version) == plain(expected, version)


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
            found = produce.decode_request(memoryview(damaged), 0, version)
        except ProtocolError:
            found = None
        assert found == expected


def refusal(decode_request: Callable[[memoryview, int, int], object], junk: bytes, version: int) -> str:
    """Why it was refused, or nothing. Any other exception ends the test."""
    try:
        decode_request(memoryview(junk), 0, version)
    except ProtocolError as error:
        return str(error)
    return ""


@produce_versions
@given(junk=st.binary(max_size=200))
@EXAMPLES
def test_junk_for_produce_is_never_more_than_a_protocol_error(version: int, junk: bytes) -> None:
    reason = refusal(produce.decode_request, junk, version)
    assert not reason or f"ProduceRequest version {version}" in reason


@fetch_versions
@given(junk=st.binary(max_size=200))
@EXAMPLES
def test_junk_for_fetch_is_never_more_than_a_protocol_error(version: int, junk: bytes) -> None:
    reason = refusal(fetch.decode_request, junk, version)
    assert not reason or f"FetchRequest v{version}" in reason


# ---- Produce responses


@st.composite
def produced(draw: st.DrawFn, version: int) -> ProducedPartition:
    return ProducedPartition(
        draw(int32),
        draw(int16),
        draw(int64),
        draw(int64),
        draw(int64) if version >= 5 else -1,
        draw(st.none() | text) if version >= 8 else None,
        draw(st.lists(st.tuples(int32, text), max_size=3)) if version >= 8 else (),
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
    expected = ProduceResponse(throttle_time_ms=throttle_ms)
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
        if isinstance(topic, bytes):
            one.topic_id = topic
        else:
            one.name = topic
        expected.responses.append(one)
    out = bytearray(b"head")
    produce.encode_response(out, version, answers, throttle_ms)
    assert out == b"head" + encode(expected, version)


# ---- Fetch


@st.composite
def fetched(draw: st.DrawFn, version: int) -> FetchedPartition:
    return FetchedPartition(
        draw(int32),
        draw(int16),
        draw(int64),
        draw(int64),
        draw(int64) if version >= 5 else -1,
        draw(st.none() | payload.map(Records)),
        draw(st.none() | st.lists(st.tuples(int64, int64), max_size=3)),
        draw(st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)))
        if version >= fetch.FIRST_FLEXIBLE
        else None,
    )


def generated_partition(one: FetchedPartition) -> FetchResponse.PartitionData:
    partition = FetchResponse.PartitionData(
        partition_index=one.partition,
        error_code=one.error_code,
        high_watermark=one.high_watermark,
        last_stable_offset=one.last_stable_offset,
        log_start_offset=one.start_offset,
        records=b"" if one.records is None else one.records.read(),
        aborted_transactions=None,
    )
    if one.aborted is not None:
        partition.aborted_transactions = [
            FetchResponse.AbortedTransaction(producer_id=producer, first_offset=offset)
            for producer, offset in one.aborted
        ]
    if one.diverging is not None:
        partition.diverging_epoch = FetchResponse.EpochEndOffset(
            epoch=one.diverging[0], end_offset=one.diverging[1]
        )
    return partition


@fetch_versions
@EXAMPLES
@given(data=st.data())
def test_a_fetch_response_is_written_as_the_generated_codec_writes_it(
    version: int, data: st.DataObject
) -> None:
    answers = data.draw(
        st.lists(
            st.tuples(topics(version, fetch.FIRST_TOPIC_IDS), st.lists(fetched(version), max_size=3)),
            max_size=3,
        )
    )
    throttle_ms, error_code, session_id = data.draw(int32), data.draw(int16), data.draw(int32)
    expected = FetchResponse(throttle_time_ms=throttle_ms)
    if version >= fetch.FIRST_SESSIONS:
        expected.error_code, expected.session_id = error_code, session_id
    for topic, partitions in answers:
        one = FetchResponse.FetchableTopicResponse(partitions=[generated_partition(p) for p in partitions])
        if isinstance(topic, bytes):
            one.topic_id = topic
        else:
            one.topic = topic
        expected.responses.append(one)
    pieces = fetch.encode_response(
        bytearray(b"head"),
        version,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        topics=answers,
    )
    joined = b"".join(bytes(piece) if isinstance(piece, bytearray) else piece.read() for piece in pieces)
    assert joined == b"head" + encode(expected, version)
    assert fetch.size_of(pieces) == len(joined)


@fetch_versions
def test_large_records_are_not_copied_and_small_ones_are(version: int) -> None:
    small, large = Records(b"s" * fetch.INLINE_BYTES_MAX), Records(b"l" * (fetch.INLINE_BYTES_MAX + 1))
    topic: str | bytes = b"i" * 16 if version >= fetch.FIRST_TOPIC_IDS else "t"
    pieces = fetch.encode_response(
        bytearray(),
        version,
        throttle_ms=0,
        error_code=0,
        session_id=0,
        topics=[(topic, [FetchedPartition(0, records=small), FetchedPartition(1, records=large)])],
    )
    assert [piece for piece in pieces if not isinstance(piece, bytearray)] == [large]
    assert all(len(piece) for piece in pieces if isinstance(piece, bytearray))


def test_a_file_that_gives_less_than_it_promised_is_no_answer() -> None:
    short = Records(b"abc")
    short.size = 5
    with pytest.raises(OSError, match="3 of 5"):
        fetch.encode_response(
            bytearray(),
            12,
            throttle_ms=0,
            error_code=0,
            session_id=0,
            topics=[("t", [FetchedPartition(0, records=short)])],
        )


@fetch_versions
def test_a_fetch_request_is_read_where_its_body_begins(version: int) -> None:
    request = FetchRequest(max_wait_ms=5, min_bytes=6)
    frame = b"header" + encode(request, version)
    assert fetch.decode_request(memoryview(frame), 6, version) == request
