"""The life of a log with transactions in it, against a plain model (F6, Z7, R1–R3, KIP-98, KIP-890).

Transactional producers work beside plain ones while all that `test_log_life` knows happens to the log. Whoever reads
committed records gets those of the model, from any offset and in pieces of any size; what must hold besides is in
`support.log.checks`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flintmq.errors import CorruptionError
from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from flintmq.storage import reader
from flintmq.storage.compaction.transactions import CleanedTransactions
from flintmq.storage.log import Log
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.recovery.log_loader import LogLoader
from flintmq.storage.segment import SNAPSHOT, file_name
from flintmq.storage.visibility import Isolation
from support.log.committed import fetch
from support.log.life import LogLife
from support.log.machine import TransactionalLogMachine, explore
from support.log.on_simulated_disk import contents
from support.log.transactional_log import TransactionalBench
from support.wire.batches import split


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every crash is logged, and there are thousands."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(300)
def test_a_log_with_transactions_holds_what_it_should_whatever_happens_to_it() -> None:
    explore(TransactionalLogMachine, 90, steps=40)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(4))
def test_the_same_over_many_more_lives(block: int) -> None:
    explore(TransactionalLogMachine, 1500, steps=60, is_random=True)


# -- what it found once, in few steps


def _life_with_a_transaction_over_two_segments(seed: int) -> LogLife:
    """It is open when the first segment ends, which is flushed, and is aborted in the next."""
    config = TopicConfig(cleanup_policy=("compact", "delete"), segment_bytes=400, delete_retention_ms=0)
    life = LogLife(config, seed=seed)
    life.append([(b"k", bytes(40))], producer_id=3, age_ms=0, codec=Codec.NONE)
    life.roll()
    life.wait(0)
    life.end_transaction(3, commit=False, bumps_epoch=True)
    life.append([(b"k", b"")], producer_id=1, age_ms=0, codec=Codec.NONE)
    life.roll()
    life.append([(b"k", b"")], producer_id=1, age_ms=0, codec=Codec.NONE)
    return life


def test_a_transaction_that_ended_among_deleted_records_is_not_open_again() -> None:
    """An older snapshot has it as open, if the one after it is lost."""
    life = _life_with_a_transaction_over_two_segments(seed=0)
    life.delete_records(0.75, wait=True)
    life.disk.remove(f"{life.log.directory}/{file_name(life.log.active.base_offset, SNAPSHOT)}")
    life.crash(power=False)
    assert life.log.start_offset < life.log.last_stable_offset == life.log.high_watermark
    life.end()


@pytest.mark.parametrize("seed", range(40))
def test_a_transaction_whose_marker_was_compacted_away_is_not_open_again(seed: int) -> None:
    life = _life_with_a_transaction_over_two_segments(seed)
    for _ in range(3):
        life.compact(forced=True, wait=True)
        life.wait(5)
    assert all(offset not in life.read_all() for offset in (0, 1))
    life.crash(power=True)
    assert life.log.last_stable_offset == life.log.high_watermark
    life.end()


# -- every fetch for itself

PRODUCERS = (1, 2, 3)
SENT = st.tuples(st.just("send"), st.sampled_from((-1, *PRODUCERS)), st.integers(1, 3))
ENDED = st.tuples(st.sampled_from(("commit", "abort")), st.sampled_from(PRODUCERS), st.booleans())
ROLLED = st.tuples(st.just("roll"), st.just(0), st.just(0))


@settings(max_examples=150, deadline=None)
@example([("send", -1, 1), ("send", -1, 3), ("send", 1, 2), ("abort", 1, False)], 0, "in memory")
@given(
    steps=st.lists(st.one_of(SENT, SENT, ENDED, ROLLED), min_size=1, max_size=30),
    interval=st.sampled_from((0, 300, 4096)),
    state=st.sampled_from(("in memory", "flushed", "stopped", "killed")),
)
def test_every_fetch_gives_what_is_committed_of_its_range_and_no_more(
    steps: list[tuple[str, int, int]], interval: int, state: str
) -> None:
    bench = TransactionalBench(segment_bytes=1 << 20, index_interval_bytes=interval)
    open_ones: dict[int, list[int]] = {}
    aborted: set[int] = set()
    for step, producer, number in steps:
        match step:
            case "send":
                appended = bench.send(*[b"x"] * number, producer=producer, size=60)
                if producer >= 0:
                    offsets = range(appended.base_offset, appended.last_offset + 1)
                    open_ones.setdefault(producer, []).extend(offsets)
            case "roll" if bench.log.active.size:
                bench.roll()
            case "commit" | "abort":
                bench.end(producer, commit=step == "commit", bumps_epoch=bool(number))
                ended = open_ones.pop(producer, [])
                aborted.update(ended if step == "abort" else [])
    if state == "flushed":
        bench.flush()
    elif state == "stopped":
        bench.close()
        bench.open(clean=True, recovery_point=bench.log.end_offset)
    elif state == "killed":
        bench.open()
    log = bench.log
    stable = min((offsets[0] for offsets in open_ones.values()), default=log.end_offset)
    assert log.last_stable_offset == stable
    headers = [header for batch in contents(log) for header, _ in split(batch)]
    data = {
        offset
        for header in headers
        if not header.is_control
        for offset in range(header.base_offset, header.last_offset + 1)
    }
    for offset in range(log.end_offset):
        for max_bytes in (1, 400, 1 << 30):
            fetched = fetch(log, offset, max_bytes)
            if offset >= stable:
                assert fetched is None
                continue
            assert fetched is not None
            expected = sorted(at for at in data - aborted if offset <= at < fetched.end)
            assert [record.offset for record in fetched.records] == expected, (offset, max_bytes)
            assert fetched.end <= stable
            # What it is told of is about its range, but for what the index does not tell apart: a batch that was cut
            # off, and the one behind it, whose entry has its last offset.
            if interval == 0:
                beyond = [one.base_offset for one in headers if one.base_offset >= fetched.end]
                bound = beyond[1] if len(beyond) > 1 else log.end_offset
                assert all(one.first_offset <= bound for one in fetched.aborted)
            assert all(one.last_offset >= offset for one in fetched.aborted)


# -- the test can fail: what it says of code that is wrong


def _markers_count_before_they_are_safe(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Log) -> int:
        unstable = self.producers.first_unstable_offset
        stable = self.high_watermark if unstable is None else min(unstable, self.high_watermark)
        return max(stable, self.start_offset)

    patch.setattr(Log, "last_stable_offset", property(hasty))


def _readers_see_open_transactions(patch: pytest.MonkeyPatch) -> None:
    bound = reader._bound

    def careless(log: Log, isolation: Isolation) -> int:
        committed_only = isolation is Isolation.READ_COMMITTED
        return bound(log, Isolation.READ_UNCOMMITTED if committed_only else isolation)

    patch.setattr(reader, "_bound", careless)


def _aborted_transactions_are_not_found_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogLoader, "_note_scanned", lambda self, segment, found: None)


def _snapshots_forget_open_transactions(patch: pytest.MonkeyPatch) -> None:
    decode = ProducerState.decode

    def forgetful(data: bytes, *, producers_max: int) -> ProducerState:
        producers = decode(data, producers_max=producers_max)
        producers._open.clear()
        return producers

    patch.setattr(ProducerState, "decode", forgetful)


def _compaction_takes_aborted_records_for_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CleanedTransactions, "_begin", lambda self, offset: None)


@pytest.mark.plain
@pytest.mark.parametrize(
    "spoil",
    [
        _markers_count_before_they_are_safe,
        _readers_see_open_transactions,
        _aborted_transactions_are_not_found_again,
        _snapshots_forget_open_transactions,
        _compaction_takes_aborted_records_for_others,
    ],
    ids=lambda spoil: spoil.__name__.strip("_"),
)
def test_wrong_code_is_found_out(spoil: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch)
        with pytest.raises((AssertionError, CorruptionError)):
            explore(TransactionalLogMachine, 400, steps=50, shrink=False)
