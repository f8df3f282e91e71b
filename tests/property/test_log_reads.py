"""Whatever was written, a read gives a prefix of exactly that, from the right batch, below the right end (F1)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flintmq.records.batch import read_header
from flintmq.storage import reader
from flintmq.storage.segment import segment_index
from flintmq.storage.timestamp_lookup import offset_for_time
from flintmq.storage.visibility import Isolation
from support.log.on_simulated_disk import NOW_MS, Bench
from support.wire.batches import produced

BATCH = st.tuples(st.integers(1, 6), st.integers(0, 300), st.integers(-200, 200))
"""Records, bytes of each, and how far its time is out of order."""


def filled(
    batches: list[tuple[int, int, int]], *, segment_bytes: int, interval: int
) -> tuple[Bench, list[bytes]]:
    bench = Bench(segment_bytes=segment_bytes, index_interval_bytes=interval)
    written = []
    for n, (count, size, shift) in enumerate(batches):
        batch = produced(*[bytes(size)] * count, timestamp=NOW_MS + n * 50 + shift)
        view = memoryview(batch)
        bench.log.append(view, read_header(view), leader_epoch=0, now_ms=NOW_MS)
        written.append(bytes(batch))
    return bench, written


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(BATCH, min_size=1, max_size=25),
    segment_bytes=st.sampled_from((2100, 4000, 1 << 20)),
    interval=st.sampled_from((0, 500, 4096)),
    flushed=st.booleans(),
    restarted=st.booleans(),
    data=st.data(),
)
def test_a_read_is_the_bytes_that_were_written_from_the_batch_that_holds_the_offset(
    batches: list[tuple[int, int, int]],
    segment_bytes: int,
    interval: int,
    flushed: bool,
    restarted: bool,
    data: st.DataObject,
) -> None:
    bench, written = filled(batches, segment_bytes=segment_bytes, interval=interval)
    headers = [read_header(batch) for batch in written]
    ends = [header.last_offset + 1 for header in headers]
    if flushed:
        bench.flush()
    if restarted:
        bench.open(recovery_point=bench.log.recovery_point)
    log = bench.log
    high_watermark = data.draw(st.sampled_from(ends))
    if not restarted:
        log.advance(high_watermark)
    assert log.high_watermark == (ends[-1] if restarted else high_watermark)
    offset = data.draw(st.integers(0, ends[-1]))
    max_bytes = data.draw(st.integers(0, 5000))
    isolation = data.draw(st.sampled_from(Isolation))
    end = log.end_offset if isolation is Isolation.LOG_END else log.high_watermark
    first = next((n for n, header in enumerate(headers) if header.last_offset >= offset), len(headers))
    part = reader.read(log, offset, max_bytes, isolation, at_least_one=True)
    if offset >= end:
        assert part is None
        return
    assert part is not None
    expected = b"".join(batch for batch, batch_end in zip(written, ends, strict=True) if batch_end <= end)
    skipped = sum(len(batch) for batch in written[:first])
    found = part.read()
    assert expected[skipped:].startswith(found)
    segment = log.segments[segment_index(log.segments, offset)]
    rest = segment.size - part.position
    visible = len(expected) - skipped
    assert len(found) == min(rest, visible, max(max_bytes, len(written[first])))


@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(BATCH, min_size=1, max_size=25),
    interval=st.sampled_from((0, 500, 4096)),
    flushed=st.booleans(),
    timestamp=st.integers(-300, 1500),
    data=st.data(),
)
def test_a_lookup_by_time_finds_the_first_record_that_is_not_older(
    batches: list[tuple[int, int, int]], interval: int, flushed: bool, timestamp: int, data: st.DataObject
) -> None:
    bench, written = filled(batches, segment_bytes=2100, interval=interval)
    if flushed:
        bench.flush()
    headers = [read_header(batch) for batch in written]
    start = data.draw(st.integers(0, bench.log.end_offset))
    bench.log.remove_files(bench.log.advance_start(start))
    expected = next(
        (
            max(h.base_offset, start)
            for h in headers
            if h.last_offset >= start and h.max_timestamp >= NOW_MS + timestamp
        ),
        None,
    )
    found = offset_for_time(bench.log, NOW_MS + timestamp)
    assert (found.offset if found else None) == expected
