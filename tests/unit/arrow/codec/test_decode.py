"""Sound batches as columns: types, nulls, times, headers, transactions and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from flintmq.arrow.codec.decode import COLUMNS, ReadCommittedFilter, decode, decode_in_parts, schema_of
from flintmq.records.batch import read_header
from flintmq.records.compression import Codec
from flintmq.records.markers import Marker, marker_batch
from flintmq.records.record import NewRecord, append_record, build_batch, records_of, with_payload

TIME = 1_700_000_000_000
PLACE: dict[str, Any] = {"topic": "orders", "partition": 7}


def batch(*values: bytes | None, at: int = 0, **settings: Any) -> bytes:
    return build_batch([(None, value, TIME, ()) for value in values], base_offset=at, **settings)


def marker(producer: int, *, at: int, commits: bool) -> bytes:
    made = bytearray(marker_batch(Marker(producer, 0, 0, commits), TIME))
    made[:8] = at.to_bytes(8, "big")
    return bytes(made)


def values_of(data: bytes, **settings: Any) -> list[bytes | None]:
    values: list[bytes | None] = decode(data, **PLACE, **settings).batch.column("value").to_pylist()
    return values


def test_columns_have_the_types_of_sparks_kafka_source() -> None:
    schema = schema_of(COLUMNS)
    assert schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    assert decode(b"", **PLACE).batch.schema == schema
    assert decode(batch(b"v"), columns=("value", "offset"), **PLACE).batch.schema.names == ["value", "offset"]


def test_an_unknown_column_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"'valeu'.*key, value, topic"):
        decode(b"", columns=("valeu",), **PLACE)


def test_null_and_empty_are_different() -> None:
    records: list[NewRecord] = [(None, b"", TIME, ()), (b"", None, TIME, ()), (b"k", b"v", TIME, ())]
    rows = decode(build_batch(records, base_offset=5), **PLACE).batch
    assert rows.column("key").to_pylist() == [None, b"", b"k"]
    assert rows.column("value").to_pylist() == [b"", None, b"v"]
    assert rows.column("offset").to_pylist() == [5, 6, 7]
    assert rows.column("topic").to_pylist() == ["orders"] * 3
    assert rows.column("partition").to_pylist() == [7] * 3


def test_the_brokers_time_stands_for_the_records_own() -> None:
    data = batch(b"a", b"b") + batch(b"c", at=2, append_time=TIME + 5)
    rows = decode(data, **PLACE).batch
    assert rows.column("timestampType").to_pylist() == [0, 0, 1]
    times = rows.column("timestamp").cast(pa.int64()).to_pylist()
    assert times == [TIME * 1000, TIME * 1000, (TIME + 5) * 1000]


@pytest.mark.parametrize(
    ("milliseconds", "microseconds"),
    [
        (-1, -1000),
        (0, 0),
        ((1 << 63) - 1, 9_223_372_036_854_775_000),
        (-(1 << 63), -9_223_372_036_854_775_000),
    ],
)
def test_a_time_out_of_reach_is_the_nearest_within(milliseconds: int, microseconds: int) -> None:
    rows = decode(build_batch([(None, b"v", milliseconds, ())]), **PLACE).batch
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [microseconds]


def test_headers_are_lists_and_null_where_there_are_none() -> None:
    records: list[NewRecord] = [
        (None, b"", TIME, [("a", b"1"), ("a", None)]),
        (None, b"", TIME, ()),
        (None, b"", TIME, [("ü", b"")]),
    ]
    rows = decode(build_batch(records), **PLACE).batch
    assert rows.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [{"key": "ü", "value": b""}],
    ]


def test_a_header_key_that_is_not_utf_8_is_replaced() -> None:
    records: list[NewRecord] = [(None, b"", TIME, [("a\udcff", b"1"), ("b", b"2")])]
    (headers,) = decode(build_batch(records), **PLACE).batch.column("headers").to_pylist()
    assert [header["key"] for header in headers] == ["a\ufffd", "b"]


@pytest.mark.parametrize("codec", Codec)
def test_large_records_are_whole(codec: Codec) -> None:
    large = Random(1).randbytes(1 << 20)
    assert values_of(batch(b"a", large, b"b", codec=codec)) == [b"a", large, b"b"]


def test_many_batches_of_all_lengths_are_what_the_reader_of_records_reads() -> None:
    source = Random(2)
    data = bytearray()
    batches: list[bytes] = []
    offset = 0
    for _ in range(120):
        records: list[NewRecord] = [
            (
                source.choice((None, source.randbytes(source.choice((0, 5, 200))))),
                source.randbytes(source.choice((3, 100, 9000))),
                TIME + source.randrange(100_000),
                [("h", source.randbytes(2))] * source.choice((0, 0, 1, 3)),
            )
            for _ in range(source.choice((1, 2, 40)))
        ]
        batches.append(build_batch(records, base_offset=offset, codec=source.choice((Codec.NONE, Codec.LZ4))))
        data += batches[-1]
        offset += len(records)
    rows = decode(bytes(data), **PLACE).batch
    expected = [record for one in batches for record in records_of(one, limit=1 << 20)]
    assert rows.column("key").to_pylist() == [record.key for record in expected]
    assert rows.column("value").to_pylist() == [record.value for record in expected]
    assert rows.column("offset").to_pylist() == [record.offset for record in expected]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == [r.timestamp * 1000 for r in expected]
    assert [len(headers or ()) for headers in rows.column("headers").to_pylist()] == [
        len(record.headers) for record in expected
    ]


def test_a_range_is_cut_out_of_its_batches() -> None:
    data = batch(b"0", b"1", b"2") + batch(b"3", b"4", at=3) + batch(b"9", at=9)
    assert values_of(data, start_offset=1, end_offset=4) == [b"1", b"2", b"3"]
    assert decode(data, start_offset=1, end_offset=4, **PLACE).next_offset == 4
    assert decode(data, **PLACE).next_offset == 10
    assert decode(data, start_offset=20, **PLACE).next_offset == 20


def test_the_end_of_a_range_in_a_gap_is_reached_by_what_follows_it() -> None:
    data = batch(b"0") + batch(b"9", at=9)
    assert decode(data, end_offset=5, **PLACE).next_offset == 5
    assert decode(data[:-1], end_offset=5, **PLACE).next_offset == 1


def test_a_batch_that_compaction_emptied_is_passed() -> None:
    header = read_header(batch(b"a", b"b", at=4, codec=Codec.ZSTD))._replace(record_count=0)
    emptied = with_payload(header, b"", Codec.NONE)
    assert values_of(emptied) == []
    assert decode(emptied, **PLACE).next_offset == 6


def test_records_keep_their_offsets_where_compaction_left_gaps() -> None:
    payload = bytearray()
    for delta in (1, 7, 300):
        append_record(payload, delta, 0, b"k", b"v", ())
    header = read_header(batch(b"a", at=1000))._replace(record_count=3, last_offset_delta=400)
    decoded = decode(with_payload(header, payload, Codec.NONE), **PLACE)
    assert decoded.batch.column("offset").to_pylist() == [1001, 1007, 1300]
    assert decoded.next_offset == 1401


def transactions(committed: Sequence[tuple[int, int]] | None) -> list[bytes | None]:
    """Producer 1 aborts at 3 and commits at 7, producer 2 commits at 5."""
    own: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    data = (
        batch(b"1 aborted", at=0, producer_id=1, **own)
        + batch(b"2 open", at=1, producer_id=2, **own)
        + batch(b"1 idempotent", at=2, producer_id=1, producer_epoch=0, base_sequence=0)
        + marker(1, at=3, commits=False)
        + batch(b"1 committed", at=4, producer_id=1, **own)
        + marker(2, at=5, commits=True)
        + batch(b"nobody's", at=6)
        + marker(1, at=7, commits=True)
    )
    return values_of(data, committed=None if committed is None else ReadCommittedFilter(committed))


def test_an_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    assert transactions([(1, 0)]) == [b"2 open", b"1 idempotent", b"1 committed", b"nobody's"]


def test_who_reads_uncommitted_gets_all_but_markers() -> None:
    everything = [b"1 aborted", b"2 open", b"1 idempotent", b"1 committed", b"nobody's"]
    assert transactions(None) == transactions([]) == everything


def test_columns_outlive_the_buffer_they_were_read_from() -> None:
    data = bytearray(batch(b"first", b"second"))
    rows = decode(memoryview(data), **PLACE).batch
    data[:] = bytes(len(data))
    assert rows.column("value").to_pylist() == [b"first", b"second"]


def test_parts_end_after_the_batch_that_fills_them() -> None:
    data = batch(b"0", b"1") + batch(b"2", at=2) + batch(b"3", at=3) + marker(1, at=4, commits=True)
    parts = list(decode_in_parts(data, part_rows=2, **PLACE))
    assert [part.batch.column("value").to_pylist() for part in parts] == [[b"0", b"1"], [b"2", b"3"]]
    assert [part.next_offset for part in parts] == [2, 5]
