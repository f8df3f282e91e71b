"""The files of the local metadata store: torn, damaged, missing, or of a later format (R4, R5)."""

from __future__ import annotations

import logging

import pytest

from flintmq.errors import CorruptionError, FlintError, StorageError
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.store import Put, RevisionCompacted
from flintmq.testing.simulation import (
    SimulatedDisk,
)
from support.metadata.store_on_disk import (
    JOURNAL,
    SNAPSHOT,
    State,
    everything,
    fresh_disk,
    simulate,
)


def journal_of(*sizes: int) -> tuple[SimulatedDisk, list[int]]:
    """A journal with one entry per size, in appends of their own, and the positions where they end."""
    disk = fresh_disk(6)
    ends: list[int] = []

    async def fill(store: LocalMetadataStore) -> None:
        ends.append(disk.size(JOURNAL))
        for n, size in enumerate(sizes):
            await store.txn({}, {f"/{n}": Put(bytes(size))})
            ends.append(disk.size(JOURNAL))

    simulate(disk, fill)
    return disk, ends


def test_a_torn_tail_is_cut_and_the_cut_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    disk, ends = journal_of(10, 10, 10)
    for size in range(ends[2] + 1, ends[3]):
        torn = disk.kill()
        torn.open(JOURNAL).truncate(size)
        caplog.clear()
        assert list(simulate(torn, everything)) == ["/0", "/1"]
        assert torn.size(JOURNAL) == ends[2]
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert f"cut {size - ends[2]} bytes at position {ends[2]}" in record.getMessage()


def test_any_flipped_byte_before_the_last_entry_is_refused_with_advice_that_works() -> None:
    disk, ends = journal_of(10, 700, 0, 10)
    for position in range(ends[0], ends[3]):
        damaged = disk.kill()
        damaged.flip(JOURNAL, position, mask=1 << (position % 8))
        start = max(end for end in ends if end <= position)
        with pytest.raises(CorruptionError, match=f"{JOURNAL} is damaged at position {start}:") as refusal:
            simulate(damaged, everything)
        assert f"truncate -s {start} {JOURNAL}" in str(refusal.value)
        damaged.open(JOURNAL).truncate(start)
        assert len(simulate(damaged, everything)) == ends.index(start)


def test_a_flipped_byte_in_the_last_entry_costs_that_entry_only() -> None:
    disk, ends = journal_of(10, 10)
    for position in range(ends[1], ends[2]):
        damaged = disk.kill()
        damaged.flip(JOURNAL, position)
        assert list(simulate(damaged, everything)) == ["/0"]


def snapshot_disk() -> tuple[SimulatedDisk, State]:
    """A store with a snapshot and fewer entries after it than make another."""
    disk = fresh_disk(7)

    async def fill(store: LocalMetadataStore) -> State:
        while not disk.exists(SNAPSHOT):
            await store.txn({}, {"/a": Put(bytes(100)), "/b": Put(bytes(200))})
        await store.txn({}, {"/c": Put(b"")})
        return await everything(store)

    return disk, simulate(disk, fill, snapshot_after_bytes=1000)


def test_a_snapshot_replaces_the_entries_and_a_reader_cannot_tell() -> None:
    disk, state = snapshot_disk()
    assert disk.size(JOURNAL) < 1000
    assert simulate(disk, everything) == state

    async def watch_the_forgotten(store: LocalMetadataStore) -> None:
        with pytest.raises(RevisionCompacted):
            await anext(store.watch("", after=0))
        head = (await store.get("")).revision
        assert list((await anext(store.watch("", after=head - 1))).items) == ["/c"]

    simulate(disk, watch_the_forgotten)


def test_a_crash_between_the_snapshot_and_the_cut_of_the_journal_changes_nothing() -> None:
    disk = fresh_disk(8)
    between: list[tuple[SimulatedDisk, State]] = []

    async def fill(store: LocalMetadataStore) -> None:
        def observe(operation: str, path: str) -> None:
            if operation == "truncate" and path == JOURNAL:
                between.append((disk.crash(), dict(store._keyspace.items)))

        disk.observer = observe
        for n in range(40):
            await store.txn({}, {f"/{n % 5}": Put(bytes(100)), f"/{(n + 1) % 5}": None})

    simulate(disk, fill, snapshot_after_bytes=1000)
    assert len(between) > 2
    for found, state in between:
        assert found.size(JOURNAL) > 1000
        assert simulate(found, everything) == state


def test_a_damaged_snapshot_is_refused() -> None:
    disk, _ = snapshot_disk()
    for position in range(disk.size(SNAPSHOT)):
        if 5 <= position < 8:
            continue  # the padding of the header means nothing
        damaged = disk.kill()
        damaged.flip(SNAPSHOT, position)
        with pytest.raises(FlintError, match=SNAPSHOT):
            simulate(damaged, everything)


@pytest.mark.parametrize("missing", [JOURNAL, SNAPSHOT])
def test_a_missing_file_is_not_taken_for_an_empty_store(missing: str) -> None:
    disk, _ = snapshot_disk()
    disk.remove(missing)
    with pytest.raises(CorruptionError, match="from one backup"):
        simulate(disk, everything)


def test_files_of_a_later_format_are_refused_by_name() -> None:
    disk, _ = journal_of(10)
    disk.open(JOURNAL).pwrite(bytes([9]), 4)
    with pytest.raises(StorageError, match="format version 9"):
        simulate(disk, everything)
