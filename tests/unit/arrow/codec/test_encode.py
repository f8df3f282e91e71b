"""Records written for whole columns at once are those that are written one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from flintmq.arrow.codec.encode import RECORD_OVERHEAD, EncodedPayload, Rows, encode
from flintmq.records.record import Record, append_record, walk

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]


def rows_of(rows: Sequence[Row]) -> Rows:
    lists = [None if row[2] is None else [{"key": k, "value": v} for k, v in row[2]] for row in rows]
    return Rows(
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array([row[0] for row in rows], pa.binary()),
        pa.array(lists, HEADERS),
    )


def written_one_by_one(rows: Sequence[Row]) -> bytes:
    out = bytearray()
    for delta, (key, value, headers) in enumerate(rows):
        append_record(out, delta, 0, key, value, headers or ())
    return bytes(out)


def records_in(payload: EncodedPayload) -> list[Record]:
    return list(walk(payload.records, payload.record_count))


def random_row(rng: random.Random) -> Row:
    sizes = (0, 1, 63, 64, 127, 128, 8191, 8192, 20_000)
    key = None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes))
    value = None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes))
    headers: list[tuple[str, bytes | None]] | None = None
    if rng.random() < 0.7:
        headers = [
            ("ключ" * rng.randrange(20), None if rng.random() < 0.3 else rng.randbytes(rng.randrange(200)))
            for _ in range(rng.choice((0, 1, 2, 70)))
        ]
    return key, value, headers


@pytest.mark.parametrize("seed", range(8))
def test_one_batch_is_byte_for_byte_what_the_plain_writer_writes(seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng) for _ in range(rng.choice((1, 2, 64, 65, 300)))]
    [payload] = encode(rows_of(rows), np.zeros(len(rows), np.int64), batch_bytes=1 << 30)
    assert payload.record_count == len(rows)
    assert bytes(payload.records) == written_one_by_one(rows)


def test_rows_may_have_times_of_their_own() -> None:
    rng = random.Random(11)
    rows = [random_row(rng) for _ in range(200)]
    steps = (0, 1, -1, 63, 64, -65, 1000, 100_000, -100_000, 2**31 - 1, 2**31, -(2**31), 2**45)
    times = np.cumsum([rng.choice(steps) if at % 3 else 0 for at in range(200)])
    columns = rows_of(rows)
    timed = Rows(columns.values, columns.keys, columns.headers, times)
    destinations = np.array([rng.randrange(2) for _ in rows], np.int64)
    for destination in (0, 1):
        expected = [at for at in range(200) if destinations[at] == destination]
        payloads = [
            one for one in encode(timed, destinations, batch_bytes=100_000) if one.destination == destination
        ]
        found = []
        for payload in payloads:
            assert payload.first_timestamp_ms is not None
            assert payload.record_count == 1 or len(payload.records) <= 100_000
            records = records_in(payload)
            # Read as if the batch's own time were 0.
            moments = [payload.first_timestamp_ms + one.timestamp for one in records]
            assert records[0].timestamp == 0
            assert max(moments) == payload.max_timestamp_ms
            found += [(one.key, one.value, moment) for one, moment in zip(records, moments, strict=True)]
        assert found == [(rows[at][0], rows[at][1], times[at]) for at in expected]


def test_columns_that_are_slices_of_larger_ones_give_only_their_own_rows() -> None:
    rng = random.Random(5)
    rows = [random_row(rng) for _ in range(100)]
    whole = rows_of(rows)
    assert whole.keys is not None
    assert whole.headers is not None
    part = Rows(whole.values.slice(30, 40), whole.keys.slice(30, 40), whole.headers.slice(30, 40))
    [payload] = encode(part, np.zeros(40, np.int64), batch_bytes=1 << 30)
    assert bytes(payload.records) == written_one_by_one(rows[30:70])


def test_values_alone_have_null_keys_and_no_headers() -> None:
    [payload] = encode(Rows(pa.array([b"a", None, b""])), np.zeros(3, np.int64), batch_bytes=1 << 20)
    assert bytes(payload.records) == written_one_by_one([(None, value, None) for value in (b"a", None, b"")])


def test_a_row_without_headers_among_none_that_have_any() -> None:
    rows: list[Row] = [(b"k", b"v", None), (b"k", b"v", [])]
    [payload] = encode(rows_of(rows), np.zeros(2, np.int64), batch_bytes=1 << 20)
    assert bytes(payload.records) == written_one_by_one(rows)


@pytest.mark.parametrize("seed", range(4))
def test_every_destination_gets_its_rows_in_their_order(seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng) for _ in range(500)]
    destinations = np.array([rng.randrange(7) for _ in rows], np.int64)
    got: dict[int, list[Record]] = {}
    for payload in encode(rows_of(rows), destinations, batch_bytes=50_000):
        records = records_in(payload)
        assert [record.offset for record in records] == list(range(len(records)))
        got.setdefault(payload.destination, []).extend(records)
    for destination in range(7):
        expected = [row for row, to in zip(rows, destinations, strict=True) if to == destination]
        assert [(r.key, r.value, list(r.headers)) for r in got[destination]] == [
            (key, value, headers or []) for key, value, headers in expected
        ]


def test_batches_stay_within_their_size_unless_one_record_is_larger() -> None:
    values = [bytes(size) for size in (400, 400, 400, 5000, 10, 10, 1000 - RECORD_OVERHEAD)]
    payloads = list(encode(Rows(pa.array(values)), np.zeros(7, np.int64), batch_bytes=1000))
    assert [payload.record_count for payload in payloads] == [2, 1, 1, 2, 1]
    assert all(len(payload.records) <= 1000 for payload in payloads if payload.record_count > 1)


def test_runs_of_one_destination_each_are_not_moved() -> None:
    values = pa.array([b"a", b"b", b"c", b"d"])
    payloads = list(encode(Rows(values), np.array([9, 9, 3, 3]), batch_bytes=1000))
    assert [(payload.destination, payload.record_count) for payload in payloads] == [(9, 2), (3, 2)]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [([[None]], "null"), ([[{"key": None, "value": b"v"}]], "no key")],
)
def test_a_header_that_cannot_be_is_refused(headers: list[object], reason: str) -> None:
    rows = Rows(pa.array([b"v"]), None, pa.array(headers, HEADERS))
    with pytest.raises(ValueError, match=reason):
        list(encode(rows, np.zeros(1, np.int64), batch_bytes=1000))


def test_no_rows_give_no_batches() -> None:
    assert list(encode(Rows(pa.array([], pa.binary())), np.zeros(0, np.int64), batch_bytes=1000)) == []
