"""The columns of a log are what the reader of records makes of it, on sound logs and on damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.arrow.codec import fields, headers, record_spans, table
from flintmq.arrow.codec.decode import COLUMNS, DecodedRecords, ReadCommittedFilter, decode, decode_in_parts
from flintmq.errors import CorruptionError, ErrorCode, RequestError
from flintmq.records.batch import (
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from flintmq.records.checksum import crc32c
from flintmq.records.compression import Codec
from flintmq.records.markers import Marker, marker_batch
from flintmq.records.record import Record, append_record, records_of, with_payload
from flintmq.storage.aborted_transactions import AbortedTransaction
from support.log.committed import without_aborted

UNPACKED_MAX = 1 << 20
MICROSECONDS_MS_MAX = ((1 << 63) - 1) // 1000

DELTA = st.one_of(st.integers(-100, 20_000), st.integers(-(1 << 62), 1 << 62))
# Lengths around which a varint grows by a byte.
CONTENT = st.one_of(
    st.none(),
    st.binary(max_size=3),
    st.sampled_from((0, 7, 63, 64, 8191, 8192)).map(lambda size: b"\x82" * size),
)
HEADERS = st.lists(st.tuples(st.one_of(st.text(max_size=3), st.just("\udcff\udcc3")), CONTENT), max_size=4)
RECORD = st.tuples(st.one_of(st.just(1), st.integers(1, 300)), DELTA, CONTENT, CONTENT, HEADERS)


class Entry(NamedTuple):
    """A batch to be; without a list of records, the marker that ends its producer's transaction."""

    gap: int
    records: list[Any] | None
    lost_at_end: int
    codec: Codec
    base_timestamp: int
    append_time: int | None
    producer: int
    commits: bool


ENTRY = st.builds(
    Entry,
    gap=st.sampled_from((0, 0, 0, 1, 1000)),
    records=st.one_of(st.lists(RECORD, max_size=6), st.none()),
    lost_at_end=st.sampled_from((0, 0, 2)),
    codec=st.sampled_from(Codec),
    base_timestamp=st.sampled_from((1_700_000_000_000, 0, -1, 1 << 61)),
    append_time=st.sampled_from((None, None, -1, 1_800_000_000_000)),
    producer=st.sampled_from((-1, -1, 1, 2)),
    commits=st.booleans(),
)
LOG = st.lists(ENTRY, max_size=7)


class Written(NamedTuple):
    data: bytes
    ends: list[int]
    """Where each batch ends in the data."""
    aborted: list[AbortedTransaction]
    end_offset: int


def write(entries: list[Entry]) -> Written:
    out = bytearray()
    ends: list[int] = []
    aborted: list[AbortedTransaction] = []
    opened: dict[int, int] = {}
    offset = 0
    for entry in entries:
        offset += entry.gap
        if entry.records is None:
            producer = max(entry.producer, 1)
            batch = bytearray(marker_batch(Marker(producer, 0, 0, entry.commits), 1_700_000_000_000))
            batch[:8] = offset.to_bytes(8, "big")
            if (first := opened.pop(producer, None)) is not None and not entry.commits:
                aborted.append(AbortedTransaction(producer, first, offset, offset))
            offset += 1
        else:
            batch = bytearray(_data_batch(entry, offset))
            if entry.producer > 0:
                opened.setdefault(entry.producer, offset)
            offset += sum(record[0] for record in entry.records) + entry.lost_at_end
            offset += not (entry.records or entry.lost_at_end)
        out += batch
        ends.append(len(out))
    return Written(bytes(out), ends, aborted, offset)


def _data_batch(entry: Entry, offset: int) -> bytes:
    assert entry.records is not None
    payload = bytearray()
    delta = -1
    for step, timestamp_delta, key, value, heads in entry.records:
        delta += step
        append_record(payload, delta, timestamp_delta, key, value, heads)
    attributes = LOG_APPEND_TIME if entry.append_time is not None else 0
    attributes |= TRANSACTIONAL if entry.producer > 0 else 0
    header = BatchHeader(
        base_offset=offset,
        length=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=max(delta + entry.lost_at_end, 0),
        base_timestamp=entry.base_timestamp,
        max_timestamp=entry.base_timestamp if entry.append_time is None else entry.append_time,
        producer_id=entry.producer,
        producer_epoch=0,
        base_sequence=-1,
        record_count=len(entry.records),
    )
    return with_payload(header, payload, entry.codec)


def batches_of(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The whole batches; RequestError where there is none, as the reader of one would say."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if header.magic != 2 or header.size < HEADER_SIZE:
            raise RequestError(ErrorCode.INVALID_RECORD, "not a batch")
        if position + header.size > len(data):
            return
        if header.record_count < 0:
            raise RequestError(ErrorCode.INVALID_RECORD, "an impossible batch")
        yield header, data[position : position + header.size]
        position += header.size


def row_of(record: Record, timestamp_type: int) -> dict[str, Any]:
    time = min(max(record.timestamp, -MICROSECONDS_MS_MAX), MICROSECONDS_MS_MAX) * 1000
    heads = [
        {"key": key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for key, value in record.headers
    ]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "tópic",
        "partition": 3,
        "offset": record.offset,
        "timestamp": time,
        "timestampType": timestamp_type,
        "headers": heads or None,
    }


def expected_rows(data: bytes, aborted: list[AbortedTransaction] | None) -> list[dict[str, Any]]:
    """What the reader of records gives; RequestError where it gives nothing."""
    visible = None if aborted is None else {r.offset for r in without_aborted(data, aborted)[0]}
    return [
        row_of(record, int(bool(header.attributes & LOG_APPEND_TIME)))
        for header, batch in batches_of(data)
        if not header.is_control
        for record in records_of(batch, limit=UNPACKED_MAX)
        if visible is None or record.offset in visible
    ]


def rows_of(decoded: DecodedRecords) -> list[dict[str, Any]]:
    batch = decoded.batch
    batch.validate(full=True)
    # Not every time of the log is one that Python has.
    columns = {name: batch.column(name) for name in batch.schema.names}
    if "timestamp" in columns:
        columns["timestamp"] = columns["timestamp"].cast("int64")
    lists = {name: column.to_pylist() for name, column in columns.items()}
    return [{name: values[row] for name, values in lists.items()} for row in range(batch.num_rows)]


def rows_or_refusal(data: bytearray, *, check_crc: bool = True) -> list[dict[str, Any]] | str:
    try:
        return rows_of(decode(data, check_crc=check_crc, **PLACE))
    except CorruptionError as error:
        return str(error)


@contextmanager
def steps_of(lanes: int) -> Iterator[None]:
    """Few batches are walked as if they were many, and few rows at a time; with no lanes, all are read at once."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(table, "_READS_AT_ONCE", not lanes))
        stack.enter_context(patch.object(record_spans, "_LANES_MIN", max(1, lanes)))
        stack.enter_context(patch.object(headers, "_LANES_MIN", max(1, lanes)))
        stack.enter_context(patch.object(fields, "_STEP_ROWS", max(1, 2 * lanes)))
        yield


PLACE: dict[str, Any] = {"topic": "tópic", "partition": 3}
LANES = st.sampled_from((0, 1, 2, 40))


@settings(max_examples=120, deadline=None)
@given(log=LOG, lanes=LANES, data=st.data())
def test_columns_hold_the_records_of_the_range(log: list[Entry], lanes: int, data: st.DataObject) -> None:
    written = write(log)
    start = data.draw(st.integers(0, written.end_offset + 1), "start")
    end = data.draw(st.one_of(st.none(), st.integers(start, written.end_offset + 1)), "end")
    cut = data.draw(st.integers(0, len(written.data)), "cut")
    columns = data.draw(st.lists(st.sampled_from(COLUMNS), unique=True), "columns")
    whole = written.data[:cut]
    with steps_of(lanes):
        decoded = decode(memoryview(whole), start_offset=start, end_offset=end, columns=columns, **PLACE)
        empty_or_all = decode(whole, start_offset=start, end_offset=end, **PLACE)
    wanted = [
        row
        for row in expected_rows(whole, None)
        if row["offset"] >= start and (end is None or row["offset"] < end)
    ]
    assert rows_of(empty_or_all) == wanted
    assert decoded.batch.num_columns == len(columns)
    if columns:
        assert rows_of(decoded) == [{name: row[name] for name in columns} for row in wanted]
    headers_there = [header for header, _ in batches_of(whole)]
    behind = max([start, *(header.last_offset + 1 for header in headers_there)])
    if end is not None and any(header.last_offset >= end for header in headers_there):
        behind = end
    assert decoded.next_offset == empty_or_all.next_offset == behind


@settings(max_examples=120, deadline=None)
@given(log=LOG, lanes=LANES, data=st.data())
def test_aborted_transactions_are_left_out_chunk_by_chunk(
    log: list[Entry], lanes: int, data: st.DataObject
) -> None:
    written = write(log)
    cuts = data.draw(st.sets(st.sampled_from([0, *written.ends])), "chunks")
    committed = ReadCommittedFilter((one.producer_id, one.first_offset) for one in written.aborted)
    rows: list[dict[str, Any]] = []
    with steps_of(lanes):
        for begin, end in pairwise(sorted({0, *cuts, len(written.data)})):
            rows += rows_of(decode(written.data[begin:end], committed=committed, **PLACE))
    assert rows == expected_rows(written.data, written.aborted)


@settings(max_examples=60, deadline=None)
@given(log=LOG, part_bytes=st.integers(1, 20_000), part_rows=st.integers(1, 20))
def test_parts_are_the_whole_and_each_ends_where_the_next_begins(
    log: list[Entry], part_bytes: int, part_rows: int
) -> None:
    written = write(log)
    whole = decode(written.data, **PLACE)
    parts = list(decode_in_parts(written.data, part_bytes=part_bytes, part_rows=part_rows, **PLACE))
    assert [row for part in parts for row in rows_of(part)] == rows_of(whole)
    assert parts[-1].next_offset == whole.next_offset
    before = 0
    for part in parts:
        assert all(before <= row["offset"] < part.next_offset for row in rows_of(part))
        before = part.next_offset


@settings(max_examples=300, deadline=None)
@given(log=LOG.filter(bool), lanes=LANES, data=st.data())
def test_damage_is_refused_or_reads_as_the_reader_reads_it(
    log: list[Entry], lanes: int, data: st.DataObject
) -> None:
    written = write([entry._replace(append_time=None) for entry in log])
    damaged = bytearray(written.data)
    for _ in range(data.draw(st.integers(1, 3), "how many")):
        place = data.draw(st.integers(0, len(damaged) - 1), "place")
        damaged[place] = data.draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF)), "byte")
    mends = data.draw(st.booleans(), "CRC made right")
    if mends:
        _mend(damaged)
    expected: list[dict[str, Any]] | None
    try:
        expected = expected_rows(bytes(damaged), None)
    except RequestError:
        expected = None
    with steps_of(lanes):
        found = rows_or_refusal(damaged, check_crc=mends)
    if isinstance(found, list):
        assert found == expected
    else:
        # Batches out of order are refused on top of what the reader refuses.
        assert expected is None or not _in_order(bytes(damaged))
        assert "tópic-3" in found


@settings(max_examples=80, deadline=None)
@given(log=LOG.filter(bool), data=st.data())
def test_a_damaged_byte_under_the_crc_is_never_rows(log: list[Entry], data: st.DataObject) -> None:
    written = write(log)
    damaged = bytearray(written.data)
    begin, end = data.draw(st.sampled_from(list(pairwise([0, *written.ends]))))
    place = data.draw(st.integers(begin + CRC_POSITION, end - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    assert "CRC" in rows_or_refusal(damaged)


def _mend(data: bytearray) -> None:
    """Give every batch that looks whole the CRC of what is there."""
    position = 0
    with suppress(RequestError):
        for header, batch in batches_of(bytes(data)):
            crc = crc32c(batch[CRC_START:])
            data[position + CRC_POSITION : position + CRC_START] = crc.to_bytes(4, "big")
            position += header.size


def _in_order(data: bytes) -> bool:
    expected = 0
    with suppress(RequestError):
        for header, _ in batches_of(data):
            if not expected <= header.base_offset < 1 << 62 or header.last_offset_delta < 0:
                return False
            expected = header.last_offset + 1
    return True
