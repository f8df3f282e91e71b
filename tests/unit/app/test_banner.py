"""What a broker says when it starts (Z5)."""

from __future__ import annotations

import queue
from pathlib import Path

from flintmq.app.banner import StartWatch, banner, ready_line, recovery_words
from flintmq.app.broker import StartupReport
from flintmq.settings import Listener
from flintmq.storage.corrupt_ranges import CorruptRange
from flintmq.storage.recovery.log_loader import RecoveryReport


def started(*listeners: Listener) -> StartupReport:
    return StartupReport(list(listeners), "cluster-1", 3, [], 12.3)


def test_the_ready_line_names_every_address_as_a_client_would_write_it() -> None:
    line = ready_line(started(Listener("A", "127.0.0.1", 1), Listener("A", "::1", 1), Listener("B", "", 2)))
    assert line == "ready 127.0.0.1:1 [::1]:1 0.0.0.0:2 in 12 ms"


def test_the_banner_says_when_only_this_machine_can_connect() -> None:
    local = banner(started(Listener("P", "127.0.0.1", 9092), Listener("P", "::1", 9092)), "/data")
    assert any("--host 0.0.0.0" in line for line in local)
    assert any("/data (3 partitions)" in line for line in local)
    assert not any("--host" in line for line in banner(started(Listener("P", "10.0.0.1", 9092)), "/data"))


def test_recovery_is_told_only_where_it_did_something() -> None:
    assert recovery_words([RecoveryReport(), RecoveryReport()]) == []
    words = recovery_words(
        [
            RecoveryReport(segments_scanned=1, bytes_cut=17),
            RecoveryReport(segments_scanned=2, segments_dropped=1, indexes_rebuilt=1),
            RecoveryReport(quarantined=[CorruptRange(0, 5)]),
        ]
    )
    assert words == [
        "the last stop was not an orderly one: 3 segments checked",
        "17 bytes that were never completely written cut off, 1 segment dropped",
        "the indexes of 1 segment rebuilt",
        "1 range of offsets damaged and refused to readers; see the log",
    ]


def test_a_long_start_after_a_crash_is_explained_while_it_lasts(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("{}")
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with StartWatch(str(tmp_path), said.put, patience_s=0.01) as watch:
        words = said.get(timeout=10)
        watch.progress = lambda: (1200, 10_000)
        while "1,200 of 10,000" not in said.get(timeout=10):
            pass
    assert str(tmp_path) in words
    assert "not an orderly one" in words


def test_a_short_start_is_not_talked_about(tmp_path: Path) -> None:
    said: list[str] = []
    with StartWatch(str(tmp_path), said.append, patience_s=60) as watch:
        watch.over()
    assert said == []
