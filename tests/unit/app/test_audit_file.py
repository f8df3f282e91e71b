"""The file of the audit log: whole lines, rotation by size, and a disk that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flintmq.app.audit_file import AuditFile
from flintmq.errors import ConfigurationError


def event(number: int, **fields: object) -> dict[str, object]:
    return {"time": 1_700_000_000_123, "event": "authorization", "number": number, **fields}


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_one_line_whatever_a_name_holds(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.log"
    file = AuditFile(str(path), bytes_max=1 << 20, count=3)
    assert file.put(event(1, resource="a\nb\u2028\x1b[31m"))
    assert file.put(event(2))
    file.stop()
    first, second = read(path)
    assert first["time"] == "2023-11-14T22:13:20.123Z"
    assert first["resource"] == "a\nb\u2028\x1b[31m"
    assert second["number"] == 2
    assert path.read_bytes().isascii()
    assert path.stat().st_mode & 0o777 == 0o600


def test_files_are_rotated_by_size_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), bytes_max=4096, count=3)
    for number in range(200):
        assert file.put(event(number))
    file.stop()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = [
        one["number"] for name in ("audit.log.2", "audit.log.1", "audit.log") for one in read(tmp_path / name)
    ]
    assert kept == list(range(kept[0], 200))  # type: ignore[call-overload]
    assert all(one.stat().st_size <= 4096 for one in tmp_path.iterdir())


def test_a_line_that_a_crash_left_unfinished_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"time": "half')
    file = AuditFile(str(path), bytes_max=4096, count=2)
    file.put(event(1))
    file.stop()
    assert path.read_text().splitlines()[0] == '{"time": "half'
    assert json.loads(path.read_text().splitlines()[1])["number"] == 1


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "audit.log").mkdir()
    with pytest.raises(ConfigurationError, match=r"flint\.audit\.log\.file"):
        AuditFile(str(tmp_path / "audit.log"), bytes_max=4096, count=2)


def test_events_that_a_disk_does_not_take_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "directory" / "audit.log"
    file = AuditFile(str(path), bytes_max=4096, count=2)
    # The rotation fails: the name of the older file is taken by a directory that is not empty.
    (tmp_path / "directory" / "audit.log.1" / "x").mkdir(parents=True)
    for number in range(100):
        file.put(event(number))
    file.stop()
    assert file.lost > 0
    assert file.lost + len(read(path)) >= 100
    assert "cannot be written" in caplog.text
