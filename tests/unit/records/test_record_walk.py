"""The record walk of compaction: columns of a payload, and payloads of some of its records."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.records.record import Header, append_record
from flintmq.records.record import walk as read_records
from flintmq.records.record_walk import RecordColumns, locate, rebuild, varint, walk
from flintmq.records.varint import read_varint

HEADERS: list[Header] = [("name", b"value"), ("", None)]


def payload(*records: tuple[int, int, bytes | None, bytes | None]) -> bytes:
    """Offset delta, timestamp delta, key and value of each."""
    out = bytearray()
    for offset_delta, timestamp_delta, key, value in records:
        append_record(out, offset_delta, timestamp_delta, key, value, HEADERS)
    return bytes(out)


THREE = payload((0, 0, b"a", b"1"), (2, -5, None, None), (7, 1 << 40, b"k" * 200, bytes(20_000)))


def walked(data: bytes, count: int = 3, last: int = 7) -> RecordColumns:
    return walk(data, 0, len(data), count, last)


def test_columns_say_where_each_record_is_and_what_it_is_like() -> None:
    columns = walk(b"xyz" + THREE + b"tail", 3, 3 + len(THREE), 3, 7)
    assert len(columns) == 3
    assert columns.offset_deltas == [0, 2, 7]
    assert columns.timestamp_deltas == [0, -5, 1 << 40]
    assert columns.keys == [b"a", None, b"k" * 200]
    assert columns.tombstones == [1]
    assert columns.starts[0] == 3
    assert columns.starts[-1] == 3 + len(THREE)


def test_columns_that_are_not_wanted_are_not_made() -> None:
    columns = walk(THREE, 0, len(THREE), 3, 7, with_keys=False, with_places=False)
    assert columns.keys == [b"", None, b""]
    assert columns.offset_deltas == [0, 2, 7]
    assert columns.timestamp_deltas == []
    assert columns.starts == [len(THREE)]


def test_records_walked_before_are_found_again_by_their_lengths() -> None:
    located = locate(b"xyz" + THREE + b"tail", 3, 3 + len(THREE), 3)
    columns = walk(b"xyz" + THREE + b"tail", 3, 3 + len(THREE), 3, 7)
    assert (located.starts, located.timestamp_deltas) == (columns.starts, columns.timestamp_deltas)


@pytest.mark.parametrize("size", [0, 1, 5, len(THREE) - 1, len(THREE) + 1])
def test_records_that_are_not_those_walked_before_are_refused(size: int) -> None:
    with pytest.raises(CorruptionError):
        locate((THREE + b"\x00")[:size], 0, size, 3)


def test_kept_records_are_copied_as_they_are() -> None:
    columns = walked(THREE)
    one, two, three = (THREE[columns.starts[n] : columns.starts[n + 1]] for n in range(3))
    assert rebuild(THREE, columns, [0, 1, 2]) == THREE
    assert rebuild(THREE, columns, [0, 2]) == one + three
    assert rebuild(THREE, columns, [1, 2]) == two + three
    assert rebuild(THREE, columns, [1]) == two
    assert rebuild(THREE, columns, []) == b""


def test_kept_records_with_other_times_are_else_the_same() -> None:
    rebuilt = rebuild(THREE, walked(THREE), [0, 2], [-(1 << 62), 3])
    found = list(read_records(rebuilt, 2))
    before = list(read_records(THREE, 3))
    assert [record.timestamp for record in found] == [-(1 << 62), 3]
    for record, original in zip(found, (before[0], before[2]), strict=True):
        assert (record.offset, record.key, record.value, record.headers) == (
            original.offset,
            original.key,
            original.value,
            original.headers,
        )


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 8191, -8192, (1 << 63) - 1, -(1 << 63)])
def test_numbers_of_64_bits_come_back(value: int) -> None:
    encoded = varint(value)
    assert read_varint(encoded, 0, 64) == (value, len(encoded))
    data = payload((0, value, b"a", None))
    assert walked(data, 1, 0).timestamp_deltas == [value]


@pytest.mark.parametrize(
    ("data", "count", "why"),
    [
        (THREE, 2, "bytes follow"),
        (THREE, 4, "cut short"),
        (THREE[:-1], 3, "impossible length"),
        (b"", 1, "cut short"),
        (b"\x01", 1, "impossible length"),
        (payload((0, 0, b"a", b"1"), (0, 0, b"b", b"1")), 2, "out of order"),
        (payload((8, 0, b"a", b"1")), 1, "out of order"),
        (payload((-1, 0, b"a", b"1")), 1, "out of order"),
        (b"\xff\xff\xff\xff\xff\x01", 1, "too long"),
        (b"\x1a\x00" + b"\xff" * 9 + b"\x02" + b"\x00" * 2, 1, "too long"),
        (b"\x0c\x00\x00\x00\x7e\x00\x00", 1, "key that is too long"),
        (b"\x0c\x00\x00\x00\x03\x00\x00", 1, "key of an impossible length"),
        (b"\x0c\x00\x00\x00\x00\x03\x00", 1, "value of an impossible length"),
        (b"\x0c\x00\x00\x00\x00\x02\x00", 1, "does not fill|cut short"),
        (b"\x0c\x00\x00\x00\x00\x00\x02", 1, "number of headers"),
        (b"\x0c\x00\x00\x00\x00\x00\x01", 1, "number of headers"),
        (b"\x10\x00\x00\x00\x00\x00\x02\x01\x01", 1, "header without a key"),
        (b"\x10\x00\x00\x00\x00\x00\x02\x00\x03", 1, "header of an impossible length"),
    ],
)
def test_a_payload_that_is_not_its_records_is_refused(data: bytes, count: int, why: str) -> None:
    with pytest.raises(CorruptionError, match=why):
        walked(data, count)
