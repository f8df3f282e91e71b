"""The process that compacts: lines in, lines out, one segment at a time (Z7)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.effects.real import RealDisk
from flintmq.storage.compaction.job import (
    CompactionDamage,
    CompactionFailure,
    CompactionProgress,
    CompactionSummary,
    Event,
    GroupResult,
    decode_event,
    encode_job,
)
from flintmq.storage.compaction.swap import CLEANED
from flintmq.storage.compaction.worker import RateLimit
from support.log.on_real_disk import LogOnDisk

DEADLINE_S = 30


@pytest.fixture
def log(tmp_path: Path) -> LogOnDisk:
    log = LogOnDisk(RealDisk(), str(tmp_path / "orders-0"))
    for value in (b"1", b"2", b"3"):
        log.append([(b"a", value), (b"b" + value, value)])
        log.roll()
    return log


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "flintmq.storage.compaction.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield process
        process.kill()


def send(worker: subprocess.Popen[bytes], line: bytes) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line)
    worker.stdin.flush()


def events(worker: subprocess.Popen[bytes]) -> Iterator[Event]:
    assert worker.stdout is not None
    for line in worker.stdout:
        yield decode_event(line)


def ended(worker: subprocess.Popen[bytes]) -> int:
    assert worker.stdin is not None
    worker.stdin.close()
    return worker.wait(DEADLINE_S)


def test_it_waits_after_each_segment_until_told_to_go_on(
    log: LogOnDisk, worker: subprocess.Popen[bytes]
) -> None:
    send(worker, encode_job(log.job(segment_bytes=1)))
    replaced = []
    last: Event | None = None
    for event in events(worker):
        last = event
        if isinstance(event, GroupResult):
            replaced.append(event.bases)
            log.swap(event)
            send(worker, b"go on\n")
    assert replaced == [(0,), (2,), (4,)]
    assert isinstance(last, CompactionSummary)
    assert log.pairs() == [(b"b1", b"1"), (b"b2", b"2"), (b"a", b"3"), (b"b3", b"3")]
    assert ended(worker) == 0


def test_it_ends_when_nobody_tells_it_to_go_on(log: LogOnDisk, worker: subprocess.Popen[bytes]) -> None:
    send(worker, encode_job(log.job(segment_bytes=1)))
    told = events(worker)
    assert any(isinstance(event, GroupResult) for event in told)
    assert ended(worker) == 0
    assert [event for event in told if not isinstance(event, CompactionProgress)] == []


def test_it_ends_in_the_middle_of_a_segment_when_the_other_end_is_gone(
    log: LogOnDisk, worker: subprocess.Popen[bytes]
) -> None:
    send(worker, encode_job(log.job(bytes_per_second=1)))
    assert ended(worker) == 0
    assert list(events(worker)) == []
    assert not [name for name in log.disk.list(log.directory) if name.endswith(CLEANED)]


def test_it_ends_without_a_job(worker: subprocess.Popen[bytes]) -> None:
    assert ended(worker) == 0


def test_a_folder_that_is_gone_is_told_as_a_failure(log: LogOnDisk, worker: subprocess.Popen[bytes]) -> None:
    job = log.job()
    log.disk.remove_tree(log.directory)
    send(worker, encode_job(job))
    (told,) = events(worker)
    assert isinstance(told, CompactionFailure)
    assert "No such file" in told.reason
    assert ended(worker) == 0


def test_damage_is_told_as_such(log: LogOnDisk, worker: subprocess.Popen[bytes]) -> None:
    file = log.disk.open(log.path(0, ".log"))
    file.pwrite(b"\xff", 70)
    file.close()
    send(worker, encode_job(log.job()))
    *_, told = events(worker)
    assert isinstance(told, CompactionDamage)
    assert ended(worker) == 0


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_work_ahead_of_the_rate_sleeps() -> None:
    time = Time()
    pace = RateLimit(1000, time.monotonic, time.sleep)
    pace(500)
    pace(10)  # too short a pause is saved up
    pace(490)
    assert time.slept == [pytest.approx(0.5), pytest.approx(0.5)]


def test_a_rest_is_not_made_up_for_by_a_burst() -> None:
    time = Time()
    pace = RateLimit(1000, time.monotonic, time.sleep)
    pace(100)
    time.now += 60
    pace(100)
    pace(1000)
    assert time.slept == [pytest.approx(0.1), pytest.approx(1.0)]


def test_without_a_rate_it_never_sleeps() -> None:
    time = Time()
    RateLimit(0, time.monotonic, time.sleep)(1 << 40)
    assert time.slept == []
