"""The simulated disk loses what a real one may lose, and nothing else; else the crash tests prove nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from flintmq.effects import Disk, read_file, write_atomically
from flintmq.testing.simulation import SECTOR, SimulatedDisk

TRIES = 200


def disk_with(data: bytes, *, journaling: bool | None = False) -> SimulatedDisk:
    """A disk on which `d/f` has this content, all of it durable."""
    disk = SimulatedDisk(1, journaling=journaling)
    disk.makedirs("d")
    file = disk.open("d/f", create=True)
    file.pwrite(data, 0)
    file.sync()
    disk.sync_dir("d")
    disk.sync_dir("")
    return disk


def found_after_crashes(disk: SimulatedDisk, path: str = "d/f") -> set[bytes | None]:
    def finds() -> Iterator[bytes | None]:
        for _ in range(TRIES):
            found = disk.crash()
            yield read_file(found, path) if found.exists(path) else None

    return set(finds())


def test_it_is_a_disk() -> None:
    disk: Disk = SimulatedDisk(0, capacity_bytes=1000)
    disk.makedirs("/a/b")
    write_atomically(disk, "/a/b/f", b"hello")
    assert read_file(disk, "a/b/f") == b"hello"
    assert disk.list("a") == ["b"]
    assert disk.size("a/b/f") == 5
    assert disk.open("a/b/f").fd == -1
    disk.rename("a/b", "a/c")
    assert not disk.exists("a/b")
    assert disk.list("a/c") == ["f"]
    file = disk.open("a/c/f")
    file.pwrite(b"!", 7)
    assert file.pread(100, 3) == b"lo\0\0!"
    file.allocate(10)
    file.allocate(4)
    assert file.size() == 10
    file.truncate(2)
    disk.remove("a/c/f")
    assert file.pread(10, 0) == b"he", "an open file outlives its name"
    disk.makedirs("a/c/d")
    disk.remove_tree("a/c")
    assert disk.list("a") == []
    assert disk.usage("a") == (1000, 1000)


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda disk: disk.open("d/none"), errno.ENOENT),
        (lambda disk: disk.open("none/f", create=True), errno.ENOENT),
        (lambda disk: disk.open("d"), errno.EISDIR),
        (lambda disk: disk.list("d/f"), errno.ENOTDIR),
        (lambda disk: disk.size("d/f/g"), errno.ENOTDIR),
        (lambda disk: disk.remove("d"), errno.EISDIR),
        (lambda disk: disk.makedirs("d/f"), errno.EEXIST),
        (lambda disk: disk.rename("d/none", "d/f"), errno.ENOENT),
        (lambda disk: disk.rename("d/f", "e"), errno.EISDIR),
        (lambda disk: disk.rename("e", "d"), errno.ENOTEMPTY),
        (lambda disk: disk.open("d/f", writable=False).pwrite(b"x", 0), errno.EBADF),
    ],
)
def test_a_wrong_use_has_the_error_of_the_system(
    action: Callable[[SimulatedDisk], object], code: int
) -> None:
    disk = disk_with(b"")
    disk.makedirs("e")
    with pytest.raises(OSError) as raised:  # noqa: PT011  # the code is what is checked
        action(disk)
    assert raised.value.errno == code


def test_what_was_synced_survives_every_crash() -> None:
    data = bytes(range(256)) * 20
    assert found_after_crashes(disk_with(data)) == {data}


def test_an_unsynced_write_is_there_or_not_or_torn_between_sectors() -> None:
    old, new = b"o" * (3 * SECTOR), b"n" * (3 * SECTOR)
    disk = disk_with(old)
    disk.open("d/f").pwrite(new, 0)
    found = found_after_crashes(disk)
    assert {old, new} <= found
    assert len(found) == 8, "every mixture of three sectors"
    for data in found:
        assert data is not None
        for start in range(0, len(data), SECTOR):
            assert len(set(data[start : start + SECTOR])) == 1, "no sector is torn itself"
    assert read_file(disk, "d/f") == new, "the disk that was asked goes on"


def test_an_overwritten_unsynced_version_may_be_what_is_found() -> None:
    disk = disk_with(b"1")
    file = disk.open("d/f")
    file.pwrite(b"2", 0)
    file.pwrite(b"3", 0)
    assert found_after_crashes(disk) == {b"1", b"2", b"3"}


def test_an_unsynced_end_may_be_missing_shorter_or_zeros() -> None:
    disk = disk_with(b"a" * 100)
    disk.open("d/f").pwrite(b"b" * 1000, 100)
    found = {data for data in found_after_crashes(disk) if data is not None}
    assert all(data.startswith(b"a" * 100) for data in found), "what was safe stays"
    sizes = {len(data) for data in found}
    assert {100, 1100} <= sizes
    assert len(sizes) > 20
    assert any(data.endswith(bytes(100)) for data in found), "size without data"


def test_an_unsynced_cut_may_be_undone() -> None:
    disk = disk_with(b"a" * 2000)
    disk.open("d/f").truncate(100)
    found = found_after_crashes(disk)
    assert b"a" * 2000 in found
    assert b"a" * 100 in found


def test_a_sync_covers_what_was_written_before_it_only() -> None:
    disk = disk_with(b"")
    file = disk.open("d/f")
    file.pwrite(b"1" * SECTOR, 0)
    file.sync()
    file.pwrite(b"2" * SECTOR, SECTOR)
    for data in found_after_crashes(disk):
        assert data is not None
        assert data.startswith(b"1" * SECTOR)


@pytest.mark.parametrize("journaling", [False, True])
def test_a_synced_file_in_an_unsynced_folder(journaling: bool) -> None:
    disk = disk_with(b"", journaling=journaling)
    file = disk.open("d/new", create=True)
    file.pwrite(b"data", 0)
    file.sync()
    expected = {b"data"} if journaling else {b"data", None}
    assert found_after_crashes(disk, "d/new") == expected
    disk.sync_dir("d")
    assert found_after_crashes(disk, "d/new") == {b"data"}


def test_about_half_of_the_seeds_are_journaling() -> None:
    assert 60 < sum(SimulatedDisk(seed).journaling for seed in range(200)) < 140


def test_a_folder_whose_own_name_is_not_safe_takes_its_files_along() -> None:
    disk = SimulatedDisk(1, journaling=False)
    disk.makedirs("d")
    file = disk.open("d/f", create=True)
    file.pwrite(b"data", 0)
    file.sync()
    disk.sync_dir("d")
    assert found_after_crashes(disk) == {b"data", None}
    disk.sync_dir("")
    assert found_after_crashes(disk) == {b"data"}


def test_unsynced_names_are_lost_from_the_newest_backwards() -> None:
    disk = disk_with(b"")
    for name in ("1", "2", "3"):
        disk.open(f"d/{name}", create=True)
    disk.remove("d/f")
    found = {tuple(disk.crash().list("d")) for _ in range(TRIES)}
    assert found == {("f",), ("1", "f"), ("1", "2", "f"), ("1", "2", "3", "f"), ("1", "2", "3")}


def test_a_rename_is_whole_or_absent_and_its_folder_makes_it_safe() -> None:
    disk = disk_with(b"old")
    write_atomically(disk, "d/f", b"new")
    assert found_after_crashes(disk) == {b"new"}
    disk.makedirs("e")
    disk.sync_dir("")
    disk.rename("d/f", "e/g")
    places = {(found.exists("d/f"), found.exists("e/g")) for found in (disk.crash() for _ in range(TRIES))}
    assert places == {(True, False), (False, True)}
    disk.sync_dir("e")
    assert found_after_crashes(disk, "e/g") == {b"new"}


def test_sync_all_makes_everything_safe() -> None:
    disk = SimulatedDisk(1, journaling=False)
    disk.makedirs("d/e")
    disk.open("d/e/f", create=True).pwrite(b"data", 0)
    disk.sync_all()
    assert found_after_crashes(disk, "d/e/f") == {b"data"}


def test_a_kill_loses_nothing_and_syncs_nothing() -> None:
    disk = disk_with(b"old")
    disk.open("d/f").pwrite(b"new", 0)
    disk.open("d/g", create=True)
    killed = disk.kill()
    assert read_file(killed, "d/f") == b"new"
    assert killed.exists("d/g")
    assert found_after_crashes(killed) == {b"old", b"new"}
    assert found_after_crashes(killed, "d/g") == {b"", None}


def test_a_failed_sync_loses_the_pages_and_a_second_one_does_not_bring_them_back() -> None:
    lost = 0
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.makedirs("d")
        file = disk.open("d/f", create=True)
        file.pwrite(b"o" * SECTOR, 0)
        file.sync()
        disk.sync_dir("d")
        disk.sync_dir("")
        file.pwrite(b"n" * SECTOR, 0)
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
        assert file.pread(1, 0) == b"n", "the page cache still has it"
        lost += read_file(disk.crash(), "d/f") == b"o" * SECTOR
    assert 0 < lost < 20


def test_faults_come_at_the_operation_asked_for_and_once() -> None:
    disk = disk_with(b"0000")
    file = disk.open("d/f")
    disk.fail("write", nth=2)
    disk.fail("read", nth=1, code=errno.ENXIO)
    disk.fail("sync_dir")
    file.pwrite(b"1", 0)
    with pytest.raises(OSError, match="Input/output"):
        file.pwrite(b"2222", 0)
    file.pwrite(b"3", 0)
    with pytest.raises(OSError, match="No such device"):
        file.pread(1, 0)
    assert file.pread(1, 0) == b"3"
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_dir("d")
    disk.sync_dir("d")


def test_a_write_that_does_not_fit_is_done_in_part() -> None:
    disk = disk_with(b"1234")
    disk.free_bytes = 3
    file = disk.open("d/f")
    with pytest.raises(OSError, match="No space") as full:
        file.pwrite(b"abcdef", 3)
    assert full.value.errno == errno.ENOSPC
    assert read_file(disk, "d/f") == b"123abcd"
    file.pwrite(b"over", 0)
    with pytest.raises(OSError, match="No space"):
        file.allocate(8)
    file.truncate(0)
    file.pwrite(b"1234567", 0)
    disk.remove("d/f")
    assert disk.free_bytes == 7


def test_a_flipped_byte_is_damage_that_a_crash_keeps() -> None:
    disk = disk_with(b"\x00\x00")
    disk.flip("d/f", 1, mask=0x80)
    assert found_after_crashes(disk) == {b"\x00\x80"}


def test_the_observer_is_told_before_anything_changes() -> None:
    disk = disk_with(b"old")
    seen: list[tuple[str, str, bytes]] = []
    disk.observer = lambda operation, path: seen.append((operation, path, read_file(disk, "d/f")))
    write_atomically(disk, "d/f", b"new")
    assert [(operation, path) for operation, path, _ in seen] == [
        ("create", "d/f.tmp"),
        ("truncate", "d/f.tmp"),
        ("write", "d/f.tmp"),
        ("sync", "d/f.tmp"),
        ("rename", "d/f"),
        ("sync_dir", "d"),
    ]
    assert [content for *_, content in seen] == [b"old"] * 5 + [b"new"]


def test_the_same_seed_finds_the_same_disks() -> None:
    def finds(seed: int) -> list[bytes]:
        disk = SimulatedDisk(seed, journaling=True)
        file = disk.open("f", create=True)
        file.sync()
        file.pwrite(b"x" * 5000, 0)
        return [read_file(disk.crash(), "f") for _ in range(20)]

    assert finds(5) == finds(5)
    assert finds(5) != finds(6)
