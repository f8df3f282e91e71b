"""A cleaned segment takes the place of others, in steps that may each be the last, or come twice (R1, Z7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from flintmq.effects import read_file, write_plainly
from flintmq.errors import CorruptionError
from flintmq.storage.compaction.swap import (
    CLEANED,
    SWAP_FILE,
    Swap,
    discard_cleaned,
    finish_swap,
    rename_cleaned,
    resume_swap,
    retract_swap,
    write_swap,
)
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, file_name
from flintmq.testing.simulation import SimulatedDisk

DIRECTORY = "data/orders-0"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
SWAP = Swap((0, 10, 20), has_transaction_index=False)
KEPT = 30


class Folder:
    """Three segments that are replaced, one that is not, and the cleaned one beside them, all synced."""

    def __init__(self, disk: SimulatedDisk | None = None) -> None:
        if disk is not None:
            self.disk = disk
            return
        self.disk = SimulatedDisk(1, journaling=False)
        self.disk.makedirs(DIRECTORY)
        for base in (*SWAP.bases, KEPT):
            for suffix in SUFFIXES:
                self._write(file_name(base, suffix), b"old %d%s" % (base, suffix.encode()))
        for suffix in (LOG, INDEX, TIME_INDEX):
            self._write(file_name(0, suffix) + CLEANED, b"new" + suffix.encode())
        self.disk.sync_all()

    def _write(self, name: str, data: bytes) -> None:
        write_plainly(self.disk, f"{DIRECTORY}/{name}", data)

    def files(self) -> dict[str, bytes]:
        return {name: read_file(self.disk, f"{DIRECTORY}/{name}") for name in self.disk.list(DIRECTORY)}

    def resume(self) -> bool:
        return resume_swap(self.disk, DIRECTORY, self.disk.list(DIRECTORY))


OLD = {
    file_name(base, suffix): b"old %d%s" % (base, suffix.encode())
    for base, suffix in itertools.product((*SWAP.bases, KEPT), SUFFIXES)
}
NEW = {
    **{file_name(0, suffix): b"new" + suffix.encode() for suffix in (LOG, INDEX, TIME_INDEX)},
    **{file_name(KEPT, suffix): b"old %d%s" % (KEPT, suffix.encode()) for suffix in SUFFIXES},
}


def whole(disk: SimulatedDisk) -> None:
    write_swap(disk, DIRECTORY, SWAP)
    rename_cleaned(disk, DIRECTORY, SWAP)
    finish_swap(disk, DIRECTORY, SWAP)


def retracted(disk: SimulatedDisk) -> None:
    write_swap(disk, DIRECTORY, SWAP)
    retract_swap(disk, DIRECTORY)


def test_the_cleaned_files_take_the_place_of_all_that_they_were_made_from() -> None:
    folder = Folder()
    whole(folder.disk)
    assert folder.files() == NEW


def test_a_cleaned_segment_brings_its_own_index_of_transactions_if_it_has_one() -> None:
    folder = Folder()
    swap = Swap((0,), has_transaction_index=True)
    folder._write(file_name(0, TXN_INDEX) + CLEANED, b"new.txnindex")
    write_swap(folder.disk, DIRECTORY, swap)
    rename_cleaned(folder.disk, DIRECTORY, swap)
    finish_swap(folder.disk, DIRECTORY, swap)
    found = folder.files()
    assert found[file_name(0, TXN_INDEX)] == b"new.txnindex"
    assert found[file_name(10, LOG)] == OLD[file_name(10, LOG)]


@pytest.mark.parametrize("repeated", [write_swap, rename_cleaned, finish_swap])
def test_every_step_may_come_twice(repeated: Callable[[SimulatedDisk, str, Swap], None]) -> None:
    folder = Folder()
    for step in (write_swap, rename_cleaned, finish_swap):
        step(folder.disk, DIRECTORY, SWAP)
        if step is repeated:
            step(folder.disk, DIRECTORY, SWAP)
    assert SWAP_FILE not in folder.files()
    assert folder.files() == NEW


def outcomes(work: Callable[[SimulatedDisk], None], *, again: bool) -> list[dict[str, bytes]]:
    """What a process finds and makes of it, for a crash at each change of the disk, of the process or the machine;
    with `again` also for another crash at each change that the first recovery makes."""
    found: list[dict[str, bytes]] = []

    def observe(disk: SimulatedDisk, work: Callable[[SimulatedDisk], None]) -> list[SimulatedDisk]:
        left: list[SimulatedDisk] = []

        def keep(operation: str, path: str) -> None:
            left.extend((disk.kill(), disk.crash(), disk.crash()))

        disk.observer = keep
        work(disk)
        disk.observer = None
        return [*left, disk.kill(), disk.crash()]

    def recover(disk: SimulatedDisk) -> None:
        Folder(disk).resume()

    for left in observe(Folder().disk, work):
        for disk in observe(left, recover) if again else [left]:
            Folder(disk).resume()
            found.append({name: data for name, data in Folder(disk).files().items() if ".tmp" not in name})
    return found


@pytest.mark.parametrize("again", [False, True])
def test_after_any_crash_there_is_either_the_old_or_the_new_and_nothing_between(again: bool) -> None:
    found = outcomes(whole, again=again)
    assert all(one in (OLD, NEW) for one in found)
    assert OLD in found
    assert NEW in found


@pytest.mark.parametrize("again", [False, True])
def test_what_is_taken_back_leaves_the_old_or_is_finished_whole_after_any_crash(again: bool) -> None:
    """The note goes first: without its cleaned files it would only remove segments."""
    folder = Folder()
    retracted(folder.disk)
    assert folder.files() == OLD
    assert all(one in (OLD, NEW) for one in outcomes(retracted, again=again))


def test_once_finished_no_power_loss_brings_the_note_back() -> None:
    """It would put the half-written files of the next pass in place."""
    folder = Folder()
    whole(folder.disk)
    folder._write(file_name(0, LOG) + CLEANED, b"half")
    for _ in range(50):
        found = Folder(folder.disk.crash())
        found.resume()
        assert found.files() == NEW


def test_what_a_pass_left_without_a_note_means_nothing() -> None:
    folder = Folder()
    assert folder.resume()
    assert folder.files() == OLD
    assert not folder.resume()


def test_what_an_unfinished_pass_left_is_removed_but_never_beside_a_note() -> None:
    folder = Folder()
    write_swap(folder.disk, DIRECTORY, SWAP)
    before = folder.files()
    discard_cleaned(folder.disk, DIRECTORY)
    assert folder.files() == before
    folder.disk.remove(f"{DIRECTORY}/{SWAP_FILE}")
    discard_cleaned(folder.disk, DIRECTORY)
    assert folder.files() == OLD


@pytest.mark.parametrize("missing", [INDEX, TIME_INDEX, TXN_INDEX])
def test_a_swap_is_finished_though_files_are_missing_on_the_way(missing: str) -> None:
    folder = Folder()
    for base in SWAP.bases[1:]:
        folder.disk.remove(f"{DIRECTORY}/{file_name(base, missing)}")
    write_swap(folder.disk, DIRECTORY, SWAP)
    folder.resume()
    assert folder.files() == NEW


def test_a_note_that_makes_no_sense_is_damage_and_nothing_is_touched() -> None:
    folder = Folder()
    folder._write(SWAP_FILE, b"{")
    before = folder.files()
    with pytest.raises(CorruptionError, match="makes no sense"):
        folder.resume()
    assert folder.files() == before
