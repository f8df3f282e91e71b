"""The high watermark and the last stable offset: who sees what (F1, F6, S5, KIP-98)."""

from __future__ import annotations

import pytest

from flintmq.records.batch import read_header
from flintmq.records.markers import Marker
from flintmq.storage import reader
from flintmq.storage.log import Log
from flintmq.storage.visibility import Isolation
from support.log.on_simulated_disk import PLENTY, Bench, contents
from support.log.transactional_log import TransactionalBench
from support.wire.batches import append, produced

A, B = 11, 12
SEGMENT = 1 << 20
SEEN, COMMITTED, END = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED, Isolation.LOG_END


@pytest.fixture
def bench() -> TransactionalBench:
    return TransactionalBench(segment_bytes=SEGMENT)


def read(log: Log, offset: int, max_bytes: int = PLENTY, *, isolation: Isolation = SEEN) -> bytes | None:
    part = reader.read(log, offset, max_bytes, isolation, at_least_one=True)
    return part.read() if part is not None else None


def unseen(log: Log, batch: bytearray) -> None:
    """Append without raising the high watermark."""
    view = memoryview(batch)
    log.append(view, read_header(view), leader_epoch=0, now_ms=0)


# -- the three ends


def test_nothing_above_the_high_watermark_is_seen_but_by_replicas() -> None:
    bench = Bench(segment_bytes=600)
    log = bench.log
    batches = [produced(b"%03d" % n + bytes(100)) for n in range(20)]
    for batch in batches:
        unseen(log, batch)
    assert (log.high_watermark, log.last_stable_offset, log.end_offset) == (0, 0, 20)
    assert read(log, 0) is None
    assert contents(log, END) == [bytes(batch) for batch in batches]
    for high_watermark in range(1, 21):
        assert log.advance(high_watermark)
        assert log.high_watermark == high_watermark
        assert contents(log, SEEN) == [bytes(batch) for batch in batches[:high_watermark]]
        assert read(log, high_watermark) is None
    assert not log.advance(20)


def test_an_advance_to_the_middle_of_a_batch_stops_before_it() -> None:
    bench = Bench()
    for _ in range(3):
        unseen(bench.log, produced(b"1", b"2", b"3"))
    bench.log.advance(5)
    assert bench.log.high_watermark == 3
    assert len(contents(bench.log, SEEN)) == 1


def test_a_reader_of_committed_records_stops_at_the_first_open_transaction() -> None:
    bench = Bench()
    log = bench.log
    plain = [produced(b"plain")]
    append(log, plain[0])
    append(log, produced(b"open", producer_id=5, epoch=0, sequence=0, is_transactional=True))
    append(log, produced(b"after"))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert contents(log, COMMITTED) == [bytes(plain[0])]
    assert len(contents(log, SEEN)) == 3
    log.producers.end_transaction(Marker(5, 0, 0, committed=True), 0)
    assert log.last_stable_offset == 3


# -- the last stable offset


def test_it_stays_where_the_earliest_open_transaction_began(bench: TransactionalBench) -> None:
    log = bench.log
    bench.send(b"plain")
    bench.send(b"a1", b"a2", producer=A)
    bench.send(b"b", producer=B)
    bench.send(b"plain")
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    bench.commit(A)
    assert log.last_stable_offset == 3
    bench.abort(B)
    assert log.last_stable_offset == log.high_watermark == log.end_offset == 7


def test_readers_of_committed_records_get_nothing_from_it_on(bench: TransactionalBench) -> None:
    bench.send(b"before")
    bench.send(b"a", producer=A)
    bench.send(b"after")
    assert bench.committed() == [b"before"]
    assert reader.read(bench.log, 1, PLENTY, Isolation.READ_COMMITTED, at_least_one=True) is None
    assert reader.read(bench.log, 2, PLENTY, Isolation.READ_COMMITTED, at_least_one=True) is None
    assert len(contents(bench.log, Isolation.READ_UNCOMMITTED)) == 3
    bench.commit(A)
    assert bench.committed() == [b"before", b"a", b"after"]


def test_with_an_open_transaction_in_an_older_segment_the_younger_are_not_read(
    bench: TransactionalBench,
) -> None:
    bench.send(b"before")
    bench.send(b"a", producer=A)
    bench.roll()
    bench.send(b"after")
    bench.flush()
    assert bench.committed() == [b"before"]
    assert bench.committed(2) == []


def test_a_marker_counts_only_when_it_is_visible_itself() -> None:
    """`flush.messages=1`: what was decided could still be lost, and be decided otherwise."""
    bench = TransactionalBench(visible=False, segment_bytes=SEGMENT, flush_messages=1)
    log = bench.log
    bench.send(b"a", producer=A)
    bench.send(b"b", producer=B)
    log.advance(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    bench.abort(A)
    bench.commit(B)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    assert bench.committed() == []
    log.advance(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    assert bench.committed() == []
    log.advance(4)
    assert log.last_stable_offset == 4
    assert bench.committed() == [b"b"]


def test_a_marker_that_waits_does_not_hold_back_what_lies_before_its_transaction() -> None:
    bench = TransactionalBench(visible=False, segment_bytes=SEGMENT)
    bench.send(b"plain")
    bench.send(b"a", producer=A)
    bench.log.advance(2)
    bench.commit(A)
    assert bench.log.last_stable_offset == 1
    bench.visible = True
    bench.send(b"plain")
    assert bench.log.last_stable_offset == bench.log.end_offset == 4


def test_the_next_transaction_of_a_producer_counts_while_the_marker_of_the_last_one_waits() -> None:
    bench = TransactionalBench(visible=False, segment_bytes=SEGMENT)
    log = bench.log
    bench.send(b"a", producer=A)
    bench.commit(A)
    bench.send(b"next", producer=A)
    log.advance(1)
    assert log.last_stable_offset == 0
    log.advance(2)
    assert log.last_stable_offset == 2
    log.advance(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 2)


def test_it_is_never_below_the_start_of_the_log(bench: TransactionalBench) -> None:
    """A client that is told where to begin must find something there (KIP-107)."""
    bench.send(b"a", producer=A)
    bench.send(b"plain")
    bench.log.advance_start(2)
    assert bench.log.last_stable_offset == 2
    bench.send(b"plain")
    assert (bench.log.last_stable_offset, bench.log.high_watermark) == (2, 3)
    bench.commit(A)
    assert bench.log.last_stable_offset == 4
