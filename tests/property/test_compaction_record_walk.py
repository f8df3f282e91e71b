"""The record walk of compaction agrees with the reader of records, on sound payloads and on damaged ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.errors import CorruptionError, RequestError
from flintmq.records.record import append_record
from flintmq.records.record import walk as read_records
from flintmq.records.record_walk import locate, rebuild, walk

INT64 = st.integers(-(1 << 62), 1 << 62)
SHORT = st.one_of(st.none(), st.binary(max_size=140))
RECORDS = st.lists(
    st.tuples(
        st.integers(1, 300), INT64, SHORT, SHORT, st.lists(st.tuples(st.text(max_size=3), SHORT), max_size=2)
    ),
    max_size=8,
)


def payload(records: list[tuple]) -> tuple[bytes, int]:  # type: ignore[type-arg]
    out = bytearray()
    delta = -1
    for step, timestamp_delta, key, value, headers in records:
        delta += step
        append_record(out, delta, timestamp_delta, key, value, headers)
    return bytes(out), delta


@settings(max_examples=200, deadline=None)
@given(records=RECORDS, data=st.data())
def test_a_rebuilt_payload_holds_exactly_the_kept_records(records: list[tuple], data: st.DataObject) -> None:  # type: ignore[type-arg]
    written, last = payload(records)
    columns = walk(written, 0, len(written), len(records), last)
    located = locate(written, 0, len(written), len(records))
    assert (located.starts, located.timestamp_deltas) == (columns.starts, columns.timestamp_deltas)
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(records))))) if records else [])
    times = data.draw(st.one_of(st.none(), st.lists(INT64, min_size=len(kept), max_size=len(kept))))
    before = list(read_records(written, len(records)))
    after = list(read_records(rebuild(written, columns, kept, times), len(kept)))
    assert [(r.offset, r.key, r.value, r.headers) for r in after] == [
        (before[n].offset, before[n].key, before[n].value, before[n].headers) for n in kept
    ]
    assert [r.timestamp for r in after] == (
        times if times is not None else [before[n].timestamp for n in kept]
    )


@settings(max_examples=400, deadline=None)
@given(records=RECORDS, data=st.data())
def test_a_damaged_payload_is_read_as_the_reader_reads_it_or_refused(
    records: list[tuple],  # type: ignore[type-arg]
    data: st.DataObject,
) -> None:
    written, _ = payload(records)
    damaged = bytearray(written)
    for _ in range(data.draw(st.integers(0, 2))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[len(damaged) - data.draw(st.sampled_from((0, 0, 1))) :]
    broken = bytes(damaged)
    try:
        columns = walk(broken, 0, len(broken), len(records), (1 << 31) - 1)
    except CorruptionError:
        return
    try:
        found = list(read_records(broken, len(records)))
    except RequestError:
        # The reader also refuses times beyond 64 bits and headers that are not text.
        return
    assert columns.keys == [record.key for record in found]
    assert columns.tombstones == [number for number, record in enumerate(found) if record.value is None]
    assert columns.offset_deltas == [record.offset for record in found]
    assert columns.timestamp_deltas == [record.timestamp for record in found]
