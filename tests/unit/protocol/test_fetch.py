"""Fetch by hand is byte for byte what the generated codec reads and writes, in every version (F2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.protocol import fetch
from flintmq.protocol.codec import encode
from flintmq.protocol.fetch import FetchedPartition
from flintmq.protocol.messages import FetchRequest, FetchResponse
from support.wire.values import (
    EXAMPLES,
    endpoints,
    int16,
    int32,
    int64,
    leaders,
    payload,
    refusal,
    topics,
)

fetch_versions = pytest.mark.parametrize("version", range(4, 19))


class Records:
    """Something with a size whose bytes come later, as a range of a file is."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read(self) -> bytes:
        return self.data


@fetch_versions
@given(junk=st.binary(max_size=200))
@EXAMPLES
def test_junk_for_fetch_is_never_more_than_a_protocol_error(version: int, junk: bytes) -> None:
    reason = refusal(fetch.decode_request, junk, version)
    assert not reason or f"FetchRequest v{version}" in reason


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
        draw(st.none() | leaders) if version >= fetch.FIRST_FLEXIBLE else None,
        draw(st.integers(-1, 9)) if version >= 11 else -1,
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
    partition.preferred_read_replica = one.preferred_replica
    if one.current_leader is not None:
        partition.current_leader = FetchResponse.LeaderIdAndEpoch(
            leader_id=one.current_leader[0], leader_epoch=one.current_leader[1]
        )
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
    nodes = data.draw(endpoints)
    expected = FetchResponse(throttle_time_ms=throttle_ms)
    if version >= fetch.FIRST_ENDPOINTS:
        expected.node_endpoints = [
            FetchResponse.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in nodes
        ]
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
        endpoints=nodes,
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
