"""What truncations leave on disk."""

from __future__ import annotations

import pytest

from flintmq.effects import read_file, write_plainly
from flintmq.errors import CorruptionError
from flintmq.storage.truncation.notes import (
    NOTE_FILE,
    TruncationNote,
    apply_cut,
    read_note,
    remove_note,
    write_cut,
    write_note,
)
from support.log.on_simulated_disk import DIRECTORY, Bench


@pytest.mark.parametrize("restarts", [False, True])
def test_a_note_is_read_as_it_was_written_until_it_is_removed(restarts: bool) -> None:
    bench = Bench()
    bench.flush()
    note = TruncationNote(recovery_point=7, start_offset=7, restarts=restarts)
    write_note(bench.disk, DIRECTORY, note)
    for _ in range(5):
        assert read_note(bench.disk.crash(), DIRECTORY) == note
    remove_note(bench.disk, DIRECTORY)
    for _ in range(5):
        assert not bench.disk.crash().exists(f"{DIRECTORY}/{NOTE_FILE}")
    remove_note(bench.disk, DIRECTORY)


def test_a_note_that_makes_no_sense_is_refused() -> None:
    bench = Bench()
    write_plainly(bench.disk, f"{DIRECTORY}/{NOTE_FILE}", b"{}")
    with pytest.raises(CorruptionError, match="truncation makes no sense"):
        read_note(bench.disk, DIRECTORY)


def test_a_file_is_cut_at_the_noted_size_and_no_shorter() -> None:
    bench = Bench()
    bench.fill(3)
    segment = bench.log.active
    data = read_file(bench.disk, segment.path(".log"))
    segment.size = 40
    write_cut(bench.disk, segment)
    assert read_file(bench.disk, segment.path(".log")) == data
    apply_cut(bench.disk, segment)
    assert read_file(bench.disk, segment.path(".log")) == data[:40]
    assert not bench.disk.exists(segment.path(".cut"))
    segment.size = 90
    write_cut(bench.disk, segment)
    apply_cut(bench.disk, segment)
    assert bench.disk.size(segment.path(".log")) == 40
    write_plainly(bench.disk, segment.path(".cut"), b"x")
    with pytest.raises(CorruptionError, match="makes no sense"):
        apply_cut(bench.disk, segment)


def test_a_file_that_was_cut_before_a_kill_is_synced_before_its_note_goes() -> None:
    bench = Bench()
    bench.fill(3)
    bench.flush()
    segment = bench.log.active
    segment.size = 40
    write_cut(bench.disk, segment)
    segment.open().truncate(40)
    bench.disk = bench.disk.kill()
    apply_cut(bench.disk, segment)
    bench.disk.sync_dir(DIRECTORY)
    for _ in range(10):
        assert bench.disk.crash().size(segment.path(".log")) == 40
