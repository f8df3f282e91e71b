"""A log to be compacted, written batch by batch on a disk, and the broker's part of a pass: the swap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flintmq.effects import Disk, read_file, write_plainly
from flintmq.records.batch import BatchHeader, assign_offsets
from flintmq.records.record import Record, build_batch, records_of
from flintmq.storage.aborted_transactions import AbortedTransaction, encode_aborted
from flintmq.storage.compaction.cleaner import clean
from flintmq.storage.compaction.job import CompactionJob, Event, GroupResult, SegmentInput
from flintmq.storage.compaction.swap import CLEANED
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name
from flintmq.testing.simulation import SimulatedDisk
from support.wire.batches import split

DIRECTORY = "data/orders-0"
NOW_MS = 1_700_000_000_000
LEADER_EPOCH = 3
PLENTY = 1 << 30

Pair = tuple[bytes | None, bytes | None]


@dataclass
class LogOnDisk:
    disk: Disk = field(default_factory=lambda: SimulatedDisk(1))
    directory: str = DIRECTORY
    end_offset: int = 0
    bases: list[int] = field(default_factory=lambda: [0])
    """The last one is active."""
    aborted: dict[int, list[AbortedTransaction]] = field(default_factory=dict)
    """By the base of the segment that holds the marker."""

    def __post_init__(self) -> None:
        self.disk.makedirs(self.directory)

    def append(
        self, pairs: Sequence[Pair], *, timestamps: Sequence[int] | None = None, **options: Any
    ) -> BatchHeader:
        """One batch of keys and values."""
        times = timestamps or [NOW_MS + number for number in range(len(pairs))]
        records = [
            (key, value, time, [("origin", b"test")]) for (key, value), time in zip(pairs, times, strict=True)
        ]
        return self.append_batch(build_batch(records, **options))

    def append_marker(
        self, producer_id: int, first_offset: int, *, abort: bool, epoch: int = 0
    ) -> BatchHeader:
        """The end of a transaction that began at `first_offset`."""
        key = b"\x00\x00" + (b"\x00\x00" if abort else b"\x00\x01")
        header = self.append_batch(
            build_batch(
                [(key, b"\x00\x00\x00\x00\x00\x00", NOW_MS, ())],
                producer_id=producer_id,
                producer_epoch=epoch,
                is_transactional=True,
                is_control=True,
            )
        )
        if abort:
            entry = AbortedTransaction(producer_id, first_offset, header.base_offset, header.base_offset + 1)
            entries = self.aborted.setdefault(self.bases[-1], [])
            entries.append(entry)
            write_plainly(self.disk, self.path(self.bases[-1], TXN_INDEX), encode_aborted(entries))
        return header

    def append_batch(self, batch: bytes) -> BatchHeader:
        placed = bytearray(batch)
        assign_offsets(memoryview(placed), self.end_offset, LEADER_EPOCH)
        file = self.disk.open(self.path(self.bases[-1], LOG), create=True)
        file.pwrite(placed, file.size())
        file.close()
        ((header, _),) = split(bytes(placed))
        self.end_offset = header.last_offset + 1
        return header

    def roll(self) -> None:
        """The active segment is sealed, if there is anything in it."""
        if self.bases[-1] != self.end_offset:
            self.bases.append(self.end_offset)

    def job(
        self, first_dirty_offset: int = 0, end_offset: int | None = None, **changes: Any
    ) -> CompactionJob:
        end = self.bases[-1] if end_offset is None else end_offset
        bases = [base for base in self.bases[:-1] if base < end]
        job = CompactionJob(
            directory=self.directory,
            segments=tuple(SegmentInput(base, self.disk.size(self.path(base, LOG))) for base in bases),
            first_dirty_offset=first_dirty_offset,
            end_offset=end,
            now_ms=NOW_MS,
            delete_retention_ms=1000,
            segment_bytes=PLENTY,
            segment_index_bytes=PLENTY,
            index_interval_bytes=0,
            dedupe_bytes=1 << 20,
            aborted=tuple(
                entry for base in self.bases if base not in bases for entry in self.aborted.get(base, ())
            ),
        )
        return replace(job, **changes)

    def clean(self, *args: Any, **changes: Any) -> list[Event]:
        """One pass, with every cleaned segment swapped in before the next is made."""
        return self.run(self.job(*args, **changes))

    def run(self, job: CompactionJob) -> list[Event]:
        events: list[Event] = []
        for event in clean(self.disk, job):
            events.append(event)
            if isinstance(event, GroupResult):
                self.swap(event)
        return events

    def swap(self, result: GroupResult) -> None:
        for base in result.bases:
            for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                if self.disk.exists(self.path(base, suffix)):
                    self.disk.remove(self.path(base, suffix))
        base = result.bases[0]
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            if self.disk.exists(self.path(base, suffix) + CLEANED):
                self.disk.rename(self.path(base, suffix) + CLEANED, self.path(base, suffix))
        self.bases = [base for base in self.bases if base not in result.bases[1:]]

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        found = []
        for base in self.bases:
            if self.disk.exists(self.path(base, LOG)):
                found += split(read_file(self.disk, self.path(base, LOG)))
        return found

    def records(self) -> list[Record]:
        """Of data, not of markers."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in records_of(batch, limit=PLENTY)
        ]

    def pairs(self) -> list[Pair]:
        return [(record.key, record.value) for record in self.records()]

    def path(self, base: int, suffix: str) -> str:
        return f"{self.directory}/{file_name(base, suffix)}"
