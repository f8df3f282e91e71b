"""Compaction of a topic with transactions, while the broker serves it (F6, Z7, KIP-98).

A reader of committed records sees no aborted one before, while or after, and of each key the newest that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from flintmq.effects import read_file
from flintmq.partitions.maintenance.log_cleaner import CompactionResult, LogCleaner
from flintmq.partitions.partition import Partition
from flintmq.records.markers import Marker
from flintmq.records.record import build_batch
from flintmq.storage import reader
from flintmq.storage.aborted_transactions import AbortedTransaction, decode_aborted
from flintmq.storage.segment import TXN_INDEX
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker
from support.log.committed import read_committed, without_aborted
from support.log.on_simulated_disk import contents
from support.wire.batches import split

A, B = 11, 12
PLENTY = 1 << 30


class Bench:
    """Small segments of a compacted topic, and two transactional producers."""

    def __init__(self, broker: SingleBroker, **configs: str) -> None:
        self.broker = broker
        self.loop = broker.loop
        self._next = {A: (0, 0), B: (0, 0)}
        settings: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": "400", **configs}
        broker.create("t", **settings)

    @property
    def partition(self) -> Partition:
        return self.broker.partition("t")

    @property
    def cleaner(self) -> LogCleaner:
        return self.broker.services.maintenance.cleaner

    def send(self, key: bytes, value: bytes, *, producer: int = -1) -> None:
        epoch, sequence = self._next.get(producer, (-1, -1))
        if producer >= 0:
            self._next[producer] = (epoch, sequence + 1)
        now_ms = self.loop.clock.now_ms()
        batch = build_batch(
            [(key, value, now_ms, ())],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=producer >= 0,
        )
        view = memoryview(bytearray(batch))
        self.partition.append(view, self.partition.check(view, now_ms), now_ms)

    def end(self, producer: int, *, commit: bool) -> None:
        epoch = self._next[producer][0] + 1
        self._next[producer] = (epoch, 0)
        marker = Marker(producer, epoch, coordinator_epoch=0, committed=commit)
        self.partition.append_marker(marker, self.loop.clock.now_ms(), bumps_epoch=True)

    def fill(self, rounds: int = 6) -> None:
        """In each round A aborts and B commits, over more than one segment; beside them somebody writes plainly."""
        for number in range(rounds):
            for key in (b"k1", b"k2", b"k3"):
                self.send(key, b"aborted %d" % number, producer=A)
                self.send(key, b"committed %d" % number, producer=B)
            self.send(b"plain", b"plain %d" % number)
            self.end(B, commit=True)
            self.end(A, commit=False)

    def compact(self, *, forced: bool = True) -> CompactionResult:
        return self.loop.run_until_complete(self.cleaner.compact(self.partition, forced=forced))

    def view(self) -> dict[bytes | None, bytes | None]:
        """What somebody who reads all committed records ends up with."""
        records = read_committed(self.partition.log)
        assert not [record.value for record in records if (record.value or b"").startswith(b"aborted")]
        return {record.key: record.value for record in records}

    def aborted_left(self) -> list[bytes | None]:
        """Aborted records that are still in the log, whoever may see them."""
        records, _ = without_aborted(b"".join(contents(self.partition.log)), [])
        return [record.value for record in records if (record.value or b"").startswith(b"aborted")]

    def check_indexes(self) -> list[AbortedTransaction]:
        """What each segment that is not active knows of aborted transactions is what its file says."""
        log, found = self.partition.log, []
        for segment in log.segments[:-1]:
            path = segment.path(TXN_INDEX)
            in_file = decode_aborted(read_file(log.disk, path)) if log.disk.exists(path) else []
            assert segment.aborted == in_file
            found += in_file
        return found


@pytest.fixture
def broker() -> Iterator[SingleBroker]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        started = SingleBroker(loop, {}, SimulatedDisk(seed=SEED, journaling=False))
        yield started
        started.close()


NEWEST = {b"k1": b"committed 5", b"k2": b"committed 5", b"k3": b"committed 5", b"plain": b"plain 5"}


def test_aborted_records_go_and_what_is_known_of_them_is_what_the_files_say(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    assert len(bench.partition.log.segments) > 10
    assert bench.view() == NEWEST
    bench.compact()
    log = bench.partition.log
    assert bench.aborted_left() == []
    assert bench.view() == NEWEST
    assert log.last_stable_offset == log.end_offset
    # Their data was met in this pass, so they are still in the indexes.
    assert [one.producer_id for one in bench.check_indexes()] == [A] * 6


def test_in_the_next_pass_nothing_of_them_is_met_and_they_leave_the_indexes(broker: SingleBroker) -> None:
    bench = Bench(broker, delete_retention_ms="1000")
    bench.fill()
    bench.compact()
    bench.fill(1)
    bench.compact()
    entries = bench.check_indexes()
    assert [one.producer_id for one in entries] == [A]
    assert bench.view() == {key: value.replace(b"5", b"0") for key, value in NEWEST.items()}
    log = bench.partition.log
    markers = sum(header.is_control for batch in contents(log) for header, _ in split(batch))
    assert markers == 14
    # Markers of which nothing is left go when their time has come, but for the last of each producer.
    bench.loop.advance(2)
    bench.compact()
    bench.loop.advance(2)
    bench.compact()
    assert bench.check_indexes() == []
    assert sum(header.is_control for batch in contents(log) for header, _ in split(batch)) < markers
    assert bench.view() == {key: value.replace(b"5", b"0") for key, value in NEWEST.items()}


def test_a_reader_sees_the_same_at_every_turn_of_the_pass(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    task = bench.loop.create_task(bench.cleaner.compact(bench.partition, forced=True))
    layouts = set()
    while not task.done():
        bench.loop.call_soon(bench.loop.stop)
        bench.loop.run_forever()
        assert bench.view() == NEWEST
        layouts.add(tuple(segment.size for segment in bench.partition.log.segments))
    assert len(layouts) > 3, "the segments were not replaced one after another"
    assert bench.aborted_left() == []


def test_a_reader_that_was_given_a_range_filters_it_by_what_it_was_told_with_it(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.fill()
    log = bench.partition.log
    part = reader.read(log, 0, PLENTY, Isolation.READ_COMMITTED, at_least_one=True)
    assert part is not None
    aborted = reader.aborted_transactions(log, part, 0)
    before = without_aborted(part.read(), aborted)
    bench.compact()
    assert without_aborted(part.read(), aborted) == before


def test_a_transaction_that_ends_in_the_active_segment_is_known_to_the_pass(broker: SingleBroker) -> None:
    """Its data lies in segments that are compacted, its entry with a marker in one that is not."""
    bench = Bench(broker)
    for number in range(8):
        bench.send(b"k1", b"aborted %d" % number, producer=A)
    bench.partition.log.roll(bench.loop.clock.now_ms())
    bench.send(b"k1", b"plain")
    bench.end(A, commit=False)
    active = bench.partition.log.active
    assert len(active.aborted) == 1
    bench.compact(forced=False)
    assert bench.partition.log.active is active
    assert bench.aborted_left() == []
    assert len(active.aborted) == 1
    assert bench.view() == {b"k1": b"plain"}


def test_an_aborted_record_replaces_none_of_its_key(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.send(b"k1", b"old and good")
    bench.send(b"k1", b"aborted", producer=A)
    bench.end(A, commit=False)
    bench.compact()
    assert bench.view() == {b"k1": b"old and good"}


def test_what_an_open_transaction_began_waits(broker: SingleBroker) -> None:
    bench = Bench(broker)
    bench.send(b"k1", b"old")
    bench.send(b"k1", b"open", producer=A)
    for number in range(10):
        bench.send(b"k2", b"%d" % number)
    end = bench.partition.log.end_offset
    bench.compact()
    assert len([1 for batch in contents(bench.partition.log) for _ in split(batch)]) == end
    assert bench.view() == {b"k1": b"old"}
    bench.end(A, commit=True)
    bench.compact()
    assert bench.view() == {b"k1": b"open", b"k2": b"9"}


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_all_is_as_the_pass_left_it(broker: SingleBroker, clean: bool) -> None:
    bench = Bench(broker)
    bench.fill()
    bench.compact()
    before = [(segment.base_offset, segment.aborted) for segment in bench.partition.log.segments[:-1]]
    if clean:
        broker.close()
    again = SingleBroker(bench.loop, {}, broker.disk.kill())
    bench.broker = again
    log = bench.partition.log
    assert [(segment.base_offset, segment.aborted) for segment in log.segments[:-1]] == before
    assert log.last_stable_offset == log.end_offset
    assert bench.view() == NEWEST
    again.close()


@pytest.mark.parametrize("turns", range(0, 80, 4))
def test_a_kill_in_the_middle_of_a_pass_shows_no_aborted_record(broker: SingleBroker, turns: int) -> None:
    bench = Bench(broker)
    bench.fill()
    task = bench.loop.create_task(bench.cleaner.compact(bench.partition, forced=True))
    for _ in range(turns):
        bench.loop.call_soon(bench.loop.stop)
        bench.loop.run_forever()
    disk = broker.disk.kill()
    task.cancel()
    bench.loop.run_until_idle()
    again = SingleBroker(bench.loop, {}, disk)
    bench.broker = again
    assert bench.view() == NEWEST
    bench.compact()
    assert bench.view() == NEWEST
    assert bench.aborted_left() == []
    bench.check_indexes()
    again.close()


def test_keys_that_do_not_fit_are_compacted_in_several_passes(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass may end between the data of a transaction and its marker."""
    bench = Bench(broker)
    config = replace(broker.services.configs.broker, log_cleaner_dedupe_buffer_size=140)
    monkeypatch.setattr(bench.cleaner, "_config", lambda: config)
    bench.fill()
    done = bench.compact()
    assert done.passes > 2
    assert bench.view() == NEWEST
    assert bench.aborted_left() == []
    bench.check_indexes()
