"""What the codec promises beyond a round trip: which values and bytes it refuses, and how it says so."""

from __future__ import annotations

import pytest

from flintmq.errors import ProtocolError, UnsupportedVersion
from flintmq.protocol.codec import decode, decoder, encode, encode_into, encoder
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetFetchRequest,
    ProduceRequest,
)

NO_TAGS = b"\x00"
RECORDS = b"a batch of records"


def metadata_request(tags: bytes) -> bytes:
    """A MetadataRequest v12 for all topics, with these tagged fields at its end."""
    return b"\x00" + b"\x01\x00" + tags


def produce_request(records: bytes | None) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


def test_a_flexible_request_has_compact_lengths_and_tags() -> None:
    request = ApiVersionsRequest(client_software_name="lib", client_software_version="1.0")
    assert encode(request, 3) == b"\x04lib\x041.0\x00"
    assert encode(ApiVersionsRequest(), 0) == b""


def test_an_old_request_has_fixed_lengths() -> None:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="ab")])
    assert encode(request, 1) == b"\x00\x00\x00\x01\x00\x02ab"
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"


def test_a_nullable_struct_has_a_presence_byte() -> None:
    without = encode(ConsumerGroupHeartbeatResponse(), 0)
    assignment = ConsumerGroupHeartbeatResponse.Assignment()
    present = encode(ConsumerGroupHeartbeatResponse(assignment=assignment), 0)
    assert without.endswith(b"\xff" + NO_TAGS)
    assert present.endswith(b"\x01" + b"\x01" + NO_TAGS + NO_TAGS)


def test_default_tagged_fields_are_omitted_and_others_go_in_order_of_tag() -> None:
    feature = ApiVersionsResponse.FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)
    assert encode(ApiVersionsResponse(), 3).endswith(NO_TAGS)
    data = encode(ApiVersionsResponse(finalized_features=[feature], finalized_features_epoch=7), 3)
    epoch = b"\x01\x08" + (7).to_bytes(8, "big")
    features = b"\x02\x08" + b"\x02" + b"\x02f\x00\x02\x00\x01\x00"
    assert data.endswith(b"\x02" + epoch + features)


def test_a_value_that_the_version_has_no_field_for_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match=r"OffsetFetchRequest v6, require_stable"):
        encode(OffsetFetchRequest(require_stable=True), 6)
    with pytest.raises(UnsupportedVersion, match=r"FetchRequest v11, replica_state"):
        encode(FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=2)), 11)


def test_a_value_that_may_be_ignored_is_dropped() -> None:
    bare, full = JoinGroupRequest(), JoinGroupRequest(rebalance_timeout_ms=5, reason="because")
    assert encode(full, 0) == encode(bare, 0)


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(ValueError, match=r"MetadataRequest v0, topics"):
        encode(MetadataRequest(topics=None), 0)
    unnamed = MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=None)])
    with pytest.raises(ValueError, match=r"MetadataResponse v11, topics\.name"):
        encode(unnamed, 11)
    with pytest.raises(ProtocolError, match=r"MetadataRequest v0, topics"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (MetadataResponse(throttle_time_ms=2**31), 12, "throttle_time_ms"),
        (MetadataResponse(cluster_id="x" * 32768), 12, "cluster_id"),
        (MetadataResponse(cluster_id="x" * 32768), 7, "cluster_id"),
        (
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=b"short")]),
            12,
            "topics.topic_id",
        ),
        (
            FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic_id=b"")]),
            13,
            "responses.topic_id",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_and_named(
    message: MetadataRequest | MetadataResponse | FetchResponse, version: int, field: str
) -> None:
    out = bytearray(b"before")
    with pytest.raises(ValueError, match=rf"{type(message).__name__} v{version}, {field}: "):
        encode_into(message, version, out)
    assert out == b"before"


def test_the_longest_string_passes() -> None:
    message = MetadataResponse(cluster_id="x" * 32767)
    for version in (7, 12):
        data = encode(message, version)
        assert decode(MetadataResponse, data, version) == (message, len(data))


@pytest.mark.parametrize("container", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize("version", [3, 12])
def test_records_are_a_view_of_the_buffer_received(container: type[bytes], version: int) -> None:
    buffer = container(encode(produce_request(RECORDS), version))
    message, end = decode(ProduceRequest, buffer, version)
    records = message.topic_data[0].partition_data[0].records
    assert end == len(buffer)
    assert isinstance(records, memoryview)
    assert records == RECORDS
    assert encode(message, version) == bytes(buffer)


def test_records_change_with_the_buffer_because_they_are_not_copied() -> None:
    buffer = bytearray(encode(produce_request(RECORDS), 12))
    message, _ = decode(ProduceRequest, buffer, 12)
    records = message.topic_data[0].partition_data[0].records
    buffer[buffer.index(RECORDS)] = ord("A")
    assert records is not None
    assert bytes(records) == b"A" + RECORDS[1:]


def test_null_records_are_none() -> None:
    message, _ = decode(ProduceRequest, encode(produce_request(None), 3), 3)
    assert message.topic_data[0].partition_data[0].records is None


def test_unknown_tags_are_skipped() -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\xac\x02\x00"
    data = metadata_request(tags)
    message, end = decode(MetadataRequest, data, 12)
    assert end == len(data)
    assert message == MetadataRequest(topics=None)


def test_an_unknown_tag_among_known_ones_is_skipped() -> None:
    data = encode(ApiVersionsResponse(finalized_features_epoch=7), 3)
    epoch = b"\x01\x08" + (7).to_bytes(8, "big")
    assert data.endswith(b"\x01" + epoch)
    longer = data[: -len(epoch) - 1] + b"\x02" + epoch + b"\x63\x02??"
    assert decode(ApiVersionsResponse, longer, 3) == (
        ApiVersionsResponse(finalized_features_epoch=7),
        len(longer),
    )


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\x02\x05\x00\x05\x00", id="the same tag twice"),
        pytest.param(b"\x02\x05\x00\x04\x00", id="descending tags"),
        pytest.param(b"\x01\x05\x04abc", id="a size past the end"),
        pytest.param(
            b"\xe9\x07" + b"".join(bytes((128 | i & 127, i >> 7, 0)) for i in range(1001)), id="1001 tags"
        ),
        pytest.param(b"\xff\xff\xff\xff\x0f", id="a count of 2^32-1"),
        pytest.param(b"\x80\x80\x80\x80\x80\x00", id="a varint of six bytes"),
        pytest.param(b"\xff\xff\xff\xff\x7f", id="a varint of 35 bits"),
    ],
)
def test_nonsense_in_tags_is_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError, match="MetadataRequest v12"):
        decode(MetadataRequest, metadata_request(tags), 12)


def test_a_thousand_unknown_tags_pass() -> None:
    tags = b"\xe8\x07" + b"".join(bytes((128 | i & 127, i >> 7, 0)) for i in range(1000))
    assert decode(MetadataRequest, metadata_request(tags), 12)[0].topics is None


@pytest.mark.parametrize("size", [b"\x07", b"\x09"])
def test_a_known_tag_whose_size_is_not_its_value_s_is_refused(size: bytes) -> None:
    data = encode(ApiVersionsResponse(finalized_features_epoch=7), 3)
    wrong = data.replace(b"\x01\x01\x08", b"\x01\x01" + size) + b"\x00"
    assert wrong[:-1] != data
    with pytest.raises(ProtocolError, match="finalized_features_epoch"):
        decode(ApiVersionsResponse, wrong, 3)


@pytest.mark.parametrize(
    ("data", "version"),
    [
        pytest.param(b"\xff\xff\xff\xfe", 1, id="array of -2"),
        pytest.param(b"\x00\x00\x00\x01\xff\xfe", 1, id="string of -2"),
        pytest.param(b"\x7f\xff\xff\xff", 1, id="array of 2^31-1"),
        pytest.param(b"\xff\xff\xff\xff\x07", 12, id="compact array of 2^31-2"),
        pytest.param(b"\x00\x00\x00\x01\x00\x02\xc3\x28", 1, id="not UTF-8"),
        pytest.param(b"\x02" + bytes(16) + b"\x81\x80\x02" + b"x" * 32768, 12, id="string of 32768"),
    ],
)
def test_nonsense_lengths_are_refused_with_the_field_named(data: bytes, version: int) -> None:
    with pytest.raises(ProtocolError, match=rf"MetadataRequest v{version}, topics"):
        decode(MetadataRequest, data, version)


def test_fields_read_together_are_named_together() -> None:
    with pytest.raises(
        ProtocolError, match="InitProducerIdResponse v1, throttle_time_ms to producer_epoch: "
    ):
        decode(InitProducerIdResponse, bytes(15), 1)


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match="MetadataRequest has versions 0 to 13"):
        decode(MetadataRequest, b"", version)
    with pytest.raises(UnsupportedVersion, match="MetadataRequest has versions 0 to 13"):
        encode(MetadataRequest(), version)


def test_a_version_that_kafka_calls_unstable_is_not_offered() -> None:
    assert InitProducerIdRequest.versions == (0, 5)


def test_the_compiled_function_is_kept() -> None:
    assert encoder(MetadataRequest, 9) is encoder(MetadataRequest, 9)
    assert decoder(MetadataRequest, 9) is decoder(MetadataRequest, 9)
    assert decoder(MetadataRequest, 9) is not decoder(MetadataRequest, 8)
