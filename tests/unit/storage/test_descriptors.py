"""A bounded number of open files, whoever still reads from them (issue: 10,000 topics must work)."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path

from flintmq.effects.real import RealDisk
from flintmq.settings import TopicConfig
from flintmq.storage import reader
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.recovery.log_loader import open_log
from flintmq.storage.segment import Segment
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedDisk
from support.log.on_simulated_disk import NOW_MS, PLENTY, TOPIC_ID
from support.wire.batches import append, produced


def segments_on(disk: SimulatedDisk, count: int, limit: int) -> tuple[Descriptors, list[Segment]]:
    descriptors = Descriptors(disk, limit)
    disk.makedirs("f")
    segments = [Segment("f", base, descriptors, index_interval=0, created_ms=0) for base in range(count)]
    for segment in segments:
        segment.open(create=True)
    return descriptors, segments


def test_no_more_than_the_limit_are_open() -> None:
    descriptors, segments = segments_on(SimulatedDisk(0), 50, limit=10)
    assert len(descriptors) == 10
    assert sum(segment.file is not None for segment in segments) == 10


def test_a_file_in_use_gets_a_second_chance() -> None:
    _, segments = segments_on(SimulatedDisk(0), 10, limit=10)
    descriptors = segments[0]._descriptors
    newcomers = [Segment("f", 100 + n, descriptors, index_interval=0, created_ms=0) for n in range(20)]
    for newcomer in newcomers:
        segments[3].open()
        newcomer.open(create=True)
    assert segments[3].file is not None
    assert sum(segment.file is not None for segment in segments) == 1


def test_a_file_that_was_let_go_is_opened_again() -> None:
    _, segments = segments_on(SimulatedDisk(0), 30, limit=8)
    assert segments[0].file is None
    assert segments[0].open() is segments[0].file


def open_files(device: int, inode: int) -> int:
    """Return how many descriptors of this process are of one file. Other threads may open others meanwhile."""
    gc.collect()
    count = 0
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            found = os.fstat(int(name))
            count += (found.st_dev, found.st_ino) == (device, inode)
    return count


def test_a_range_in_flight_survives_eviction_and_deletion_and_then_lets_go(tmp_path: Path) -> None:
    disk = RealDisk()
    directory = str(tmp_path / "orders-0")
    disk.makedirs(directory)
    log, _ = open_log(
        PartitionDir(
            directory,
            topic="orders",
            partition=0,
            topic_id=TOPIC_ID,
            disk=disk,
            descriptors=Descriptors(disk, 8),
        ),
        TopicConfig(segment_bytes=300),
        clean=False,
        recovery_point=0,
        start_offset=0,
        now_ms=NOW_MS,
    )
    for n in range(40):
        append(log, produced(b"%0150d" % n))
    part = reader.read(log, 0, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert part is not None
    before = part.read()
    for offset in range(1, 40):
        reader.read(log, offset, PLENTY, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert log.segments[0].file is None, "evicted meanwhile"
    file = os.stat(f"{directory}/{0:020d}.log")
    log.remove_files(log.advance_start(30))
    assert not disk.exists(f"{directory}/{0:020d}.log")
    assert part.read() == before
    held = open_files(file.st_dev, file.st_ino)
    del part
    assert open_files(file.st_dev, file.st_ino) == held - 1
