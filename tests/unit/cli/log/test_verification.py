"""`flintmq log verify PATH`: damage is told by its offsets, and a broker that works meanwhile is no damage (S5)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.cli.common.output import UNKNOWN_END
from flintmq.cli.log.verification import VerifiedLog, logs_in, size_of, verify
from flintmq.records.record import NewRecord, build_batch


def batch(base_offset: int, count: int = 2) -> bytes:
    records: list[NewRecord] = [(b"k", b"value %d" % at, 1_000, ()) for at in range(count)]
    return build_batch(records, base_offset=base_offset)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "orders-0"
    made.mkdir()
    return made


def write(folder: Path, base: int, *batches: bytes) -> Path:
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def checked(path: Path, note: Callable[[int], object] = lambda _: None) -> VerifiedLog:
    ((found, bases),) = logs_in(str(path)).items()
    verified = verify(found, bases, is_whole=path.is_dir(), note=note)
    assert verified is not None
    return verified


def test_a_sound_log_is_read_to_its_end(folder: Path) -> None:
    write(folder, 0, batch(0), batch(2))
    write(folder, 4, batch(4, 3))
    read: list[int] = []
    found = checked(folder, read.append)
    assert (found.name, found.segments, found.batches, found.records) == ("orders-0", 2, 3, 7)
    assert found.damaged == []
    assert found.size == sum(read) == size_of(logs_in(str(folder)))


def test_damaged_batches_are_told_by_their_offsets_and_neighbours_as_one(folder: Path) -> None:
    write(folder, 0, damaged(batch(0)), damaged(batch(2)), batch(4), damaged(batch(6)))
    write(folder, 8, batch(8))
    assert checked(folder).damaged == [(0, 4), (6, 8)]


def test_where_no_batch_is_the_rest_of_the_segment_is_lost(folder: Path) -> None:
    write(folder, 0, batch(0), b"x" * 200, batch(4))
    write(folder, 6, batch(6))
    found = checked(folder)
    assert found.damaged == [(2, 6)]
    assert found.records == 4


def test_the_end_of_what_is_lost_in_the_newest_segment_is_not_known(folder: Path) -> None:
    write(folder, 0, batch(0), batch(2)[:-3])
    assert checked(folder).damaged == [(2, UNKNOWN_END)]


def test_zeros_behind_the_newest_batch_are_preallocated_and_no_damage(folder: Path) -> None:
    write(folder, 0, batch(0), bytes(4096))
    found = checked(folder)
    assert (found.damaged, found.size) == ([], len(batch(0)))


def test_one_segment_alone_ends_where_the_next_begins(folder: Path) -> None:
    first = write(folder, 0, batch(0), batch(2))
    write(folder, 3, damaged(batch(3)))
    assert checked(first).damaged == [(2, 3)]
    assert checked(first).segments == 1


def test_all_logs_of_a_data_folder_are_found_but_not_deleted_ones(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0.0123-delete"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, 0, batch(0))
    (tmp_path / "a-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert [os.path.basename(name) for name in logs_in(str(tmp_path))] == ["a-0", "a-1"]


def test_a_batch_that_is_being_written_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(folder, 0, batch(0), batch(2)[:40])

    def broker(_: float) -> None:
        with path.open("ab") as file:
            file.write(batch(2)[40:] + batch(4))

    monkeypatch.setattr("flintmq.cli.log.verification.time.sleep", broker)
    found = checked(folder)
    assert (found.damaged, found.records) == ([], 6)


def test_a_log_that_is_compacted_meanwhile_is_checked_again(folder: Path) -> None:
    """The first segment is replaced by one that reaches over the second."""
    for base in range(0, 8, 2):
        write(folder, base, batch(base))
    swapped = threading.Event()

    def broker(_: int) -> None:
        if not swapped.is_set():
            swapped.set()
            cleaned = folder / "cleaned"
            cleaned.write_bytes(batch(2) + batch(5, 1))
            os.replace(cleaned, folder / f"{2:020d}.log")
            (folder / f"{4:020d}.log").unlink()

    found = checked(folder, broker)
    assert swapped.is_set()
    assert (found.damaged, found.segments, found.records) == ([], 3, 7)


def test_damage_that_stays_is_told_though_the_folder_changes_all_the_time(folder: Path) -> None:
    write(folder, 0, damaged(batch(0)))
    rolled = iter(range(2, 1000))
    found = checked(folder, lambda _: write(folder, next(rolled)))
    assert found.damaged == [(0, 2)]


def test_a_folder_that_is_deleted_meanwhile_is_left_out(folder: Path) -> None:
    write(folder, 0, batch(0))
    bases = logs_in(str(folder))[str(folder)]
    folder.rename(folder.with_name("orders-0.0123-delete"))
    assert verify(str(folder), bases, is_whole=True, note=lambda _: None) is None


def test_nothing_is_opened_for_writing(folder: Path) -> None:
    path = write(folder, 0, damaged(batch(0)), batch(2))
    before = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert checked(folder).damaged == [(0, 2)]
    finally:
        folder.chmod(0o755)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [one.name for one in folder.iterdir()] == [path.name]
