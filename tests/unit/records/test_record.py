"""Records of a v2 batch (KIP-98, headers KIP-82): reading, checking, writing, against other clients' code."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Sequence

import pytest
from aiokafka.record import default_records as aiokafka_records
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_records

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import HEADER_SIZE, crc_is_right, read_header
from flintmq.records.compression import Codec, compress
from flintmq.records.record import (
    CheckedRecords,
    NewRecord,
    Record,
    RecordError,
    append_record,
    build_batch,
    check_records,
    payload_of,
    recompress,
    records_of,
    walk,
    with_payload,
)
from flintmq.records.varint import append_varint

MIB = 1 << 20
TIME = 1_700_000_000_000

contents = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), contents), max_size=3)
timestamps = st.integers(-1, 1 << 42)
new_records: st.SearchStrategy[NewRecord] = st.tuples(contents, contents, timestamps, headers)
batches = st.lists(new_records, min_size=1, max_size=12)

SAMPLE: list[NewRecord] = [
    (b"k", b"v", TIME, ()),
    (None, b"only a value", TIME + 5, [("trace", b"\x00\x01"), ("empty", None), ("", b"")]),
    (b"", b"", TIME - 300, ()),
    (b"deleted", None, TIME + 2, ()),
]


def expected(records: Sequence[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers))
        for index, (key, value, timestamp, headers) in enumerate(records)
    ]


def payload(*bodies: bytes) -> bytes:
    """Records from their bodies, each with a length that fits."""
    out = bytearray()
    for body in bodies:
        append_varint(out, len(body))
        out += body
    return bytes(out)


def refusal(data: bytes, count: int) -> RequestError:
    """The one error with which both readers refuse `data`."""
    with pytest.raises(RequestError) as walked:
        list(walk(data, count))
    with pytest.raises(RequestError) as checked:
        check_records(data, count, base_timestamp=0)
    assert str(walked.value) == str(checked.value)
    assert walked.value.code is checked.value.code
    return walked.value


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=40, deadline=None)
@given(records=batches, base_offset=st.integers(0, 1 << 50))
def test_a_batch_gives_back_its_records(codec: Codec, records: list[NewRecord], base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    assert list(records_of(batch, limit=MIB)) == expected(records, base_offset)
    header = read_header(batch)
    assert crc_is_right(memoryview(batch), header.crc)
    assert header.size == len(batch)
    assert header.codec == codec
    assert header.record_count == header.last_offset_delta + 1 == len(records)
    times = [timestamp for _, _, timestamp, _ in records]
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))
    found = check_records(payload_of(batch, limit=MIB), len(records), base_timestamp=header.base_timestamp)
    assert found == CheckedRecords(max(times), times.index(max(times)) if max(times) > -1 else 0)


@settings(max_examples=40, deadline=None)
@given(records=batches)
def test_kafka_python_builds_the_same_bytes(records: list[NewRecord]) -> None:
    builder = kafka_records.DefaultRecordBatchBuilder(2, 0, True, 77, 3, 9, MIB)
    for index, (key, value, timestamp, record_headers) in enumerate(records):
        builder.append(index, timestamp, key, value, list(record_headers))
    ours = build_batch(
        records, producer_id=77, producer_epoch=3, base_sequence=9, is_transactional=True, leader_epoch=-1
    )
    theirs = bytes(builder.build())
    # The leader epoch is outside the CRC and the broker's to set.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_reads_what_we_write_and_we_read_what_it_writes(codec: Codec) -> None:
    batch = kafka_records.DefaultRecordBatch(bytearray(build_batch(SAMPLE, base_offset=100, codec=codec)))
    assert batch.validate_crc()
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in batch
    ] == expected(SAMPLE, 100)
    builder = kafka_records.DefaultRecordBatchBuilder(2, int(codec), False, -1, -1, -1, MIB)
    large: list[NewRecord] = [(b"key", b"value" * 50, TIME + n, [("h", b"x")]) for n in range(200)]
    for index, (key, value, timestamp, record_headers) in enumerate(large):
        builder.append(index, timestamp, key, value, list(record_headers))
    built = bytes(builder.build())
    assert read_header(built).codec == codec
    assert list(records_of(built, limit=MIB)) == expected(large, 0)


@pytest.mark.parametrize("codec", Codec)
def test_aiokafka_reads_what_we_write_and_we_read_what_it_writes(codec: Codec) -> None:
    """F10, in all five codecs."""
    batch = aiokafka_records.DefaultRecordBatch(build_batch(SAMPLE, base_offset=100, codec=codec))
    assert batch.validate_crc()
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in batch
    ] == expected(SAMPLE, 100)
    builder = aiokafka_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=MIB,
    )
    large: list[NewRecord] = [(b"key", b"value" * 50, TIME + n, [("h", b"x")]) for n in range(200)]
    for index, (key, value, timestamp, record_headers) in enumerate(large):
        builder.append(index, timestamp, key, value, list(record_headers))
    built = bytes(builder.build())
    assert read_header(built).codec == codec
    assert list(records_of(built, limit=MIB)) == expected(large, 0)


def test_header_fields_are_what_was_asked_for() -> None:
    batch = build_batch(
        SAMPLE,
        base_offset=7,
        codec=Codec.ZSTD,
        level=19,
        producer_id=1 << 40,
        producer_epoch=5,
        base_sequence=11,
        leader_epoch=3,
        append_time=TIME + 9999,
        is_transactional=True,
        is_control=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch, header.magic) == (7, 3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 5, 11)
    assert header.attributes == 4 | 0x08 | 0x10 | 0x20
    assert header.max_timestamp == TIME + 9999


def test_append_time_stands_for_the_records_own_times() -> None:
    batch = build_batch(SAMPLE, append_time=TIME + 9999)
    assert {record.timestamp for record in records_of(batch, limit=MIB)} == {TIME + 9999}


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


def test_a_batch_emptied_by_compaction_has_no_records_whatever_its_codec() -> None:
    header = read_header(build_batch(SAMPLE, codec=Codec.ZSTD))._replace(record_count=0)
    empty = with_payload(header, b"", Codec.ZSTD)
    assert len(empty) == HEADER_SIZE
    assert read_header(empty).codec == Codec.NONE
    assert read_header(empty).last_offset_delta == 3
    assert list(records_of(empty, limit=MIB)) == []
    marked = bytearray(empty)
    marked[22] |= Codec.ZSTD
    assert list(records_of(marked, limit=MIB)) == []
    assert recompress(marked, Codec.GZIP, limit=MIB) == empty


def test_offsets_with_gaps_are_walked_as_compaction_left_them() -> None:
    out = bytearray()
    append_record(out, 2, 0, b"a", None, ())
    append_record(out, 9, 4, b"b", None, ())
    assert [(record.offset, record.timestamp) for record in walk(out, 2, base_offset=10)] == [
        (12, 0),
        (19, 4),
    ]


@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("source", Codec)
def test_a_rebuilt_batch_differs_only_in_its_compression(source: Codec, target: Codec) -> None:
    """`compression.type` of a topic, where it is not the producer's."""
    batch = build_batch(
        SAMPLE * 50,
        base_offset=40,
        codec=source,
        producer_id=9,
        producer_epoch=1,
        base_sequence=5,
        leader_epoch=2,
        is_transactional=True,
    )
    rebuilt = recompress(memoryview(batch), target, limit=MIB)
    before, after = read_header(batch), read_header(rebuilt)
    assert after.codec == target
    assert crc_is_right(memoryview(rebuilt), after.crc)
    assert after.size == len(rebuilt)
    assert after == before._replace(
        length=after.length, crc=after.crc, attributes=before.attributes & ~7 | target
    )
    assert list(records_of(rebuilt, limit=MIB)) == expected(SAMPLE * 50, 40)


def test_rebuilding_honours_level_and_limit() -> None:
    batch = build_batch([(None, str(n * n).encode(), TIME, ()) for n in range(4000)])
    assert len(recompress(batch, Codec.ZSTD, 19, limit=MIB)) < len(
        recompress(batch, Codec.ZSTD, 1, limit=MIB)
    )
    packed = recompress(batch, Codec.ZSTD, limit=MIB)
    with pytest.raises(RequestError) as caught:
        recompress(packed, Codec.GZIP, limit=1000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    batch = bytearray(build_batch(SAMPLE))
    batch[22] |= codec
    with pytest.raises(RequestError) as caught:
        records_of(batch, limit=MIB)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Codec)
def test_truncation_at_every_byte_is_refused(codec: Codec) -> None:
    batch = build_batch(SAMPLE, codec=codec)
    for size in range(len(batch)):
        for cut in (batch[:size], batch[:8] + (size - 12).to_bytes(4, "big", signed=True) + batch[12:size]):
            with pytest.raises(RequestError) as caught:
                list(records_of(cut, limit=MIB))
            assert caught.value.code is ErrorCode.INVALID_RECORD, size


def test_anything_behind_the_batch_is_refused() -> None:
    with pytest.raises(RequestError, match="exactly one"):
        records_of(build_batch(SAMPLE) + b"\x00", limit=MIB)


def test_a_truncated_payload_is_refused_at_every_byte() -> None:
    data = bytes(payload_of(build_batch(SAMPLE), limit=MIB))
    for size in range(len(data)):
        assert refusal(data[:size], len(SAMPLE)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [-1, 0, 3, 5, 1 << 30])
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int) -> None:
    data = bytes(payload_of(build_batch(SAMPLE), limit=MIB))
    assert refusal(data, count).code is ErrorCode.INVALID_RECORD


@settings(max_examples=300, deadline=None)
@given(junk=st.binary(max_size=120), count=st.integers(0, 12))
def test_junk_is_refused_with_one_error_only(junk: bytes, count: int) -> None:
    try:
        walked = len(list(walk(junk, count)))
    except RequestError as error:
        walked = -1
        code = error.code
    assert walked == count or (walked == -1 and code is ErrorCode.INVALID_RECORD)


def test_a_flipped_bit_anywhere_in_the_records_raises_nothing_else() -> None:
    data = bytes(payload_of(build_batch(SAMPLE), limit=MIB))
    refused = 0
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            assert len(list(walk(damaged, len(SAMPLE)))) == len(SAMPLE)
        except RequestError:
            refused += 1
    assert 0 < refused < len(data) * 8


# A sound body: attributes, timestamp delta 0, offset delta 0, no key, no value, no headers.
SOUND = bytes.fromhex("00 00 00 01 01 00")

BROKEN = {
    "a negative length": (b"\x01" + SOUND, "a length of -1"),
    "a length beyond the payload": (b"\x10" + SOUND, "a length of 8"),
    "a length that ends too early": (b"\x0a" + SOUND, "fill its length"),
    "a length of more than five bytes": (b"\xff" * 5 + b"\x01" + SOUND, "too long"),
    "no body": (payload(b"") + bytes(6), "a field with a length of 0"),
    "a body cut in a number": (payload(b"\x00\xff\xff\xff\xff\xff\xff"), "cut short"),
    "a key length of -2": (payload(bytes.fromhex("00 00 00 03 01 00")), "a field with a length of -2"),
    "a value length of -2": (payload(bytes.fromhex("00 00 00 01 03 00")), "a field with a length of -2"),
    "a key beyond its record": (
        payload(bytes.fromhex("00 00 00 20 01 00"), SOUND * 4),
        "a field with a length of 16",
    ),
    "a value beyond its record": (
        payload(bytes.fromhex("00 00 00 01 20 00"), SOUND * 4),
        "a field with a length of 16",
    ),
    "a negative header count": (payload(bytes.fromhex("00 00 00 01 01 01")), "claims -1 headers"),
    "more headers than bytes": (
        payload(bytes.fromhex("00 00 00 01 01 feffffff0f")),
        "claims 2147483647 headers",
    ),
    "a null header key": (payload(bytes.fromhex("00 00 00 01 01 02 01 01")), "header without a key"),
    "a header value beyond its record": (
        payload(bytes.fromhex("00 00 00 01 01 02 00 08 00")),
        "a field with a length of 4",
    ),
    "bytes behind the headers": (payload(SOUND + b"\x00"), "fill its length"),
    "a negative offset delta": (payload(bytes.fromhex("00 00 01 01 01 00")), "impossible offset"),
    "an offset delta of more than 32 bits": (
        payload(bytes.fromhex("00 00 ffffffffff01 01 01 00")),
        "too long",
    ),
    "a timestamp delta of more than 64 bits": (
        payload(b"\x00" + b"\xff" * 10 + b"\x01" + SOUND[2:]),
        "too long",
    ),
}


@pytest.mark.parametrize(("data", "why"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_record_is_refused_and_named(data: bytes, why: str) -> None:
    sound = payload(SOUND)
    assert list(walk(sound, 1)) == [Record(0, 0, None, None)]
    error = refusal(data, 1)
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, RecordError)
    assert error.index == 0
    assert re.search(why, error.message)
    second = refusal(sound + data, 2)
    assert isinstance(second, RecordError)
    assert second.index == 1


def test_countless_headers_are_checked_without_being_kept() -> None:
    out = bytearray()
    append_record(out, 0, 0, None, None, [("", b"")] * 50_000)
    data = bytes(out)
    tracemalloc.start()
    try:
        check_records(data, 1, base_timestamp=0)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()
    (record,) = walk(data, 1)
    assert len(record.headers) == 50_000


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    out = bytearray()
    append_record(out, 0, (1 << 63) - 1, None, None, ())
    assert [record.timestamp for record in walk(out, 1)] == [(1 << 63) - 1]
    with pytest.raises(RecordError):
        list(walk(out, 1, base_timestamp=1))


def test_header_keys_that_are_not_utf_8_survive() -> None:
    body = bytes.fromhex("00 00 00 01 01 02 04 fffe 01")
    (record,) = walk(payload(body), 1)
    out = bytearray()
    append_record(out, 0, 0, None, None, record.headers)
    assert bytes(out) == payload(body)


def test_a_producers_offset_deltas_count_up_from_zero() -> None:
    for deltas in ([1], [0, 2], [0, 1, 1]):
        out = bytearray()
        for delta in deltas:
            append_record(out, delta, 0, b"k", b"v", ())
        with pytest.raises(RecordError, match="offset delta") as caught:
            check_records(out, len(deltas), base_timestamp=TIME)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert caught.value.index == len(deltas) - 1


def test_a_compacted_topic_needs_keys() -> None:
    data = payload_of(build_batch(SAMPLE), limit=MIB)
    check_records(data, 4, base_timestamp=TIME)
    with pytest.raises(RecordError, match="key") as caught:
        check_records(data, 4, base_timestamp=TIME, require_keys=True)
    assert (caught.value.code, caught.value.index) == (ErrorCode.INVALID_RECORD, 1)
    assert caught.value.faults == [(1, "has no key, which a compacted topic needs")]
    empty_key = payload_of(build_batch([(b"", b"v", TIME, ())]), limit=MIB)
    check_records(empty_key, 1, base_timestamp=TIME, require_keys=True)


def test_every_record_to_blame_is_named() -> None:
    """KIP-467: a producer drops those and sends the rest again."""
    records = [(None if at % 3 == 0 else b"k", b"v", TIME + at, ()) for at in range(9)]
    data = payload_of(build_batch(records), limit=MIB)
    with pytest.raises(RecordError) as caught:
        check_records(data, 9, base_timestamp=TIME, require_keys=True, latest_ms=TIME + 7)
    assert [index for index, _ in caught.value.faults] == [0, 3, 6, 8]
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("earliest", "latest", "index"),
    [(TIME - 299, None, 2), (None, TIME + 4, 1), (TIME, TIME, 1), (TIME + 1, None, 0)],
)
def test_a_timestamp_out_of_range_is_refused(earliest: int | None, latest: int | None, index: int) -> None:
    data = payload_of(build_batch(SAMPLE), limit=MIB)
    with pytest.raises(RecordError, match="timestamp") as caught:
        check_records(data, 4, base_timestamp=TIME, earliest_ms=earliest, latest_ms=latest)
    assert (caught.value.code, caught.value.index) == (ErrorCode.INVALID_TIMESTAMP, index)


def test_timestamps_at_the_edge_and_records_without_one_are_in_range() -> None:
    data = payload_of(build_batch(SAMPLE), limit=MIB)
    found = check_records(data, 4, base_timestamp=TIME, earliest_ms=TIME - 300, latest_ms=TIME + 5)
    assert found == CheckedRecords(max_timestamp=TIME + 5, offset_delta=1)
    timeless = payload_of(build_batch([(b"k", b"v", -1, ())]), limit=MIB)
    assert check_records(timeless, 1, base_timestamp=-1, earliest_ms=TIME) == CheckedRecords(-1, 0)


def test_a_compressed_bomb_of_records_is_refused_by_the_limit() -> None:
    header = read_header(build_batch(SAMPLE))._replace(record_count=1 << 20, last_offset_delta=(1 << 20) - 1)
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY):
        bomb = with_payload(header, payload(SOUND) * (1 << 20), codec)
        with pytest.raises(RequestError) as caught:
            records_of(bomb, limit=MIB)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_crc_covers_everything_behind_it() -> None:
    batch = build_batch(SAMPLE, codec=Codec.LZ4)
    assert int.from_bytes(batch[17:21], "big") == crc32c(batch[21:])
    assert payload_of(batch, limit=MIB) == payload_of(build_batch(SAMPLE), limit=MIB)
    assert batch[HEADER_SIZE:] == compress(Codec.LZ4, payload_of(batch, limit=MIB))


def test_records_are_values() -> None:
    one = Record(1, TIME, b"k", b"v", (("h", None),))
    assert one == Record(1, TIME, b"k", b"v", (("h", None),), 0)
    assert len({one, Record(1, TIME, b"k", b"v", (("h", None),))}) == 1
    assert one != Record(1, TIME, b"k", b"v")
    assert one != (1, TIME, b"k", b"v")
    assert "offset=1" in repr(one)
