"""Kafka's own cleaner leaves the same, whatever is written, pass after pass (Z7, KIP-58, KIP-98, KIP-534).

One log is written batch by batch by both, with segments that end at the same places, and cleaned by both at the same
moments. Everything that a reader or a replica can see must agree; only the base timestamp of a batch that lost its
first record may differ, since Kafka moves it to the next record's and we leave it where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from flintmq.effects import read_file
from flintmq.records.batch import DELETE_HORIZON, BatchHeader
from flintmq.records.compression import Codec
from flintmq.records.markers import Marker
from flintmq.records.record import Record, build_batch, records_of
from flintmq.storage.aborted_transactions import decode_aborted
from flintmq.storage.compaction.job import CompactionSummary
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.segment import LOG, TXN_INDEX
from support.log.kafka_cleaner import KafkaCleaner
from support.log.on_real_disk import NOW_MS, PLENTY, LogOnDisk
from support.wire.batches import split

SEEDS = 25
SEEDS_LONG = 2000
CHAPTERS = 5
STEPS = 30
RETENTION_MS = 1000
LOAD_FACTOR = 0.9
ONE_EACH = 1
"""As the size of a segment: none is joined with another."""
IDEMPOTENT, TRANSACTIONAL = (7, 8), (1, 2, 3)


class SeenBatch(NamedTuple):
    """What of a batch must agree."""

    header: BatchHeader
    records: list[Record]


class SeenSegment(NamedTuple):
    base_offset: int
    batches: list[SeenBatch]
    aborted: set[tuple[int, int, int]]


def seen(base_offset: int, data: bytes, aborted: bytes) -> SeenSegment:
    batches = []
    for header, batch in split(data):
        # The length and the CRC follow from the rest, and from who compressed it.
        plain = header._replace(length=0, crc=0)
        if not header.attributes & DELETE_HORIZON:
            plain = plain._replace(base_timestamp=0)
        batches.append(SeenBatch(plain, list(records_of(batch, limit=PLENTY))))
    return SeenSegment(base_offset, batches, {entry[:3] for entry in decode_aborted(aborted)})


class Writer:
    """One producer: an idempotent one, or a transactional one that is fenced now and then."""

    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.began: int | None = None

    def fence(self) -> None:
        self.epoch += 1
        self.sequence = 0


class Both:
    """The same log twice, ours and Kafka's."""

    def __init__(self, random: Random, kafka: KafkaCleaner, folder: Path) -> None:
        self.random = random
        self.kafka = kafka
        self.ours = LogOnDisk()
        self.producers = ProducerState()
        self.writers = {producer_id: Writer(producer_id) for producer_id in (*IDEMPOTENT, *TRANSACTIONAL)}
        self.silent: set[int] = set()
        """Producers that write nothing any more, and of which a marker may be the last that is known."""
        self.keys = random.choice((3, 8, 40))
        self.dedupe_bytes = random.choice((5 * 24, 1 << 10, 1 << 16))
        self.segment_bytes = random.choice((ONE_EACH, PLENTY))
        self.dirty = 0
        kafka.new_log(str(folder / "orders-0"))

    # ---- what is written

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.72:
            self.write_data()
        elif chance < 0.88:
            self.end_transaction(self.writers[self.random.choice(TRANSACTIONAL)])
        else:
            self.roll()

    def write_data(self) -> None:
        random = self.random
        writer = self.writers.get(random.choice((-1, *(id for id in self.writers if id not in self.silent))))
        if writer is not None and writer.began is None and random.random() < 0.1:
            writer.fence()
        is_transactional = writer is not None and writer.id in TRANSACTIONAL
        start_ms = NOW_MS + self.ours.end_offset * 10
        records = [self.record(start_ms) for _ in range(random.randint(1, 6))]
        if is_transactional and writer is not None and writer.began is None:
            writer.began = self.ours.end_offset
        header = self.append(
            build_batch(
                records,
                codec=random.choice(list(Codec)),
                append_time=start_ms + 70 if random.random() < 0.2 else None,
                producer_id=writer.id if writer else -1,
                producer_epoch=writer.epoch if writer else -1,
                base_sequence=writer.sequence if writer else -1,
                is_transactional=is_transactional,
            )
        )
        if writer is not None:
            writer.sequence += len(records)
            self.producers.record(header, header.base_offset)

    def record(self, start_ms: int) -> tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]:
        random = self.random
        key = None if random.random() < 0.05 else b"k%d" % random.randrange(self.keys)
        value = None if random.random() < 0.25 else random.randbytes(random.choice((0, 1, 70)))
        headers: list[tuple[str, bytes | None]] = [
            (name, random.choice((None, b"", b"x"))) for name in ("a", "ü")[: random.randrange(3)]
        ]
        return key, value, start_ms + random.randint(-50, 50), headers

    def end_transaction(self, writer: Writer) -> None:
        """With a marker, which may raise the epoch (KIP-890), and which may come without a transaction."""
        if writer.began is None and (writer.id in self.silent or self.random.random() < 0.7):
            return
        if self.random.random() < 0.5:
            writer.fence()
        abort = self.random.random() < 0.5
        if writer.began is None:
            # Nothing was written, so there is nothing to be indexed either.
            kind = b"\x00\x00\x00\x00" if abort else b"\x00\x00\x00\x01"
            header = self.ours.append_batch(
                build_batch(
                    [(kind, bytes(6), NOW_MS, ())],
                    producer_id=writer.id,
                    producer_epoch=writer.epoch,
                    is_transactional=True,
                    is_control=True,
                )
            )
        else:
            header = self.ours.append_marker(writer.id, writer.began, abort=abort, epoch=writer.epoch)
        self.kafka.append(self.last_batch(header))
        self.producers.end_transaction(Marker(writer.id, writer.epoch, 0, committed=False), NOW_MS)
        writer.began = None
        if self.random.random() < 0.3:
            self.silent.add(writer.id)

    def append(self, batch: bytes) -> BatchHeader:
        header = self.ours.append_batch(batch)
        self.kafka.append(self.last_batch(header))
        return header

    def last_batch(self, header: BatchHeader) -> bytes:
        return read_file(self.ours.disk, self.ours.path(self.ours.bases[-1], LOG))[-header.size :]

    def roll(self) -> None:
        if self.ours.bases[-1] != self.ours.end_offset:
            self.ours.roll()
            self.kafka.roll()

    # ---- what is cleaned

    def clean(self, now_ms: int) -> None:
        """As often as the memory for keys makes necessary; what both leave is compared after each pass."""
        stable = min([self.ours.bases[-1], *(w.began for w in self.writers.values() if w.began is not None)])
        known = {
            producer.producer_id: (
                producer.epoch,
                producer.batches[-1].last_offset if producer.batches else -1,
            )
            for producer in self.producers
        }
        end = max(base for base in self.ours.bases if base <= stable)
        if end <= self.dirty:
            return
        settings: dict[str, Any] = {
            "now_ms": now_ms,
            "delete_retention_ms": RETENTION_MS,
            "segment_bytes": self.segment_bytes,
            "dedupe_bytes": self.dedupe_bytes,
            "load_factor": LOAD_FACTOR,
        }
        while self.dirty < end:
            theirs = self.kafka.clean(self.dirty, stable, **settings)
            assert theirs.end_offset == end
            summary = self.ours.clean(self.dirty, end, producers=known, **settings)[-1]
            assert isinstance(summary, CompactionSummary)
            assert self.seen() == [seen(*segment) for segment in theirs.segments]
            assert summary.next_dirty_offset == theirs.next_dirty_offset
            self.dirty = summary.next_dirty_offset

    def seen(self) -> list[SeenSegment]:
        return [seen(base, self.file(base, LOG), self.file(base, TXN_INDEX)) for base in self.ours.bases]

    def file(self, base: int, suffix: str) -> bytes:
        path = self.ours.path(base, suffix)
        return read_file(self.ours.disk, path) if self.ours.disk.exists(path) else b""


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCleaner]:
    with KafkaCleaner() as cleaner:
        yield cleaner


def tell(seed: int, kafka: KafkaCleaner, folder: Path) -> Both:
    random = Random(seed)
    both = Both(random, kafka, folder)
    now_ms = NOW_MS
    for _ in range(CHAPTERS):
        for _ in range(random.randint(1, STEPS)):
            both.step()
        if random.random() < 0.8:
            both.roll()
        if random.random() < 0.1:
            both.dirty = (
                0  # as without a checkpoint: what was cleaned before, with holes in it, is dirty again
            )
        now_ms += random.choice((0, 500, RETENTION_MS, 2500))
        both.clean(now_ms)
    return both


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_leave_the_same(seed: int, kafka: KafkaCleaner, tmp_path: Path) -> None:
    tell(seed, kafka, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_both_leave_the_same_for_many_seeds(kafka: KafkaCleaner, tmp_path: Path) -> None:
    for seed in range(SEEDS, SEEDS_LONG):
        folder = tmp_path / str(seed)
        try:
            tell(seed, kafka, folder)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        # The one before: Kafka still has this one's files open.
        shutil.rmtree(tmp_path / str(seed - 1), ignore_errors=True)
