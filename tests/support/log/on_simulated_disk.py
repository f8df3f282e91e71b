"""One log in a directory of a simulated disk, opened as often as a test wants."""

from __future__ import annotations

from typing import Any

from flintmq.settings import TopicConfig
from flintmq.storage import reader
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.limits import LOG_LIMITS, LogLimits
from flintmq.storage.log import Log
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.recovery.log_loader import RecoveryReport, open_log
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedDisk
from support.wire.batches import append, produced, split

TOPIC_ID = bytes(range(16))
DIRECTORY = "data/orders-0"
NOW_MS = 1_700_000_000_000
PLENTY = 1 << 30


class Bench:
    """Settings are those of the topic, by field name."""

    def __init__(self, *, descriptors: int = 64, limits: LogLimits = LOG_LIMITS, **settings: Any) -> None:
        self.disk = SimulatedDisk(1, journaling=False)
        self.disk.makedirs(DIRECTORY)
        self.disk.sync_dir("")
        self.descriptors = descriptors
        self.limits = limits
        self.config = TopicConfig(**{"index_interval_bytes": 0, **settings})
        self.report = RecoveryReport()
        self.log = self.open()

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        start_offset: int = 0,
        high_watermark: int | None = None,
    ) -> Log:
        """A new process finds the directory as it is now."""
        self.log, self.report = open_log(
            PartitionDir(
                DIRECTORY,
                topic="orders",
                partition=0,
                topic_id=TOPIC_ID,
                disk=self.disk,
                descriptors=Descriptors(self.disk, self.descriptors),
            ),
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            high_watermark=high_watermark,
            now_ms=NOW_MS,
            limits=self.limits,
        )
        return self.log

    def reconfigure(self, **settings: Any) -> None:
        self.config = TopicConfig(**{"index_interval_bytes": 0, **settings})
        self.log.configure(self.config)

    def fill(self, count: int, *, size: int = 100, step_ms: int = 10) -> list[bytes]:
        """Append batches of one record, each a little later; what they look like in the log."""
        written = []
        for _ in range(count):
            end = self.log.end_offset
            batch = produced(b"%05d" % end + bytes(size), timestamp=NOW_MS + end * step_ms)
            append(self.log, batch)
            written.append(bytes(batch))
        return written

    def flush(self) -> None:
        flush = self.log.prepare_flush()
        flush.run()
        self.log.flushed(flush, NOW_MS)

    def truncate(self, offset: int) -> None:
        """Cut the log off, from the first step to the last."""
        truncation = self.log.begin_truncation(offset, NOW_MS)
        assert truncation is not None
        truncation.run()
        self.log.finish_truncation(truncation, NOW_MS)

    def restart(self, offset: int) -> None:
        truncation = self.log.begin_restart(offset, NOW_MS)
        truncation.run()
        self.log.finish_truncation(truncation, NOW_MS)

    def close(self) -> None:
        self.flush()
        self.log.close()
        self.disk.sync_all()

    def path(self, base_offset: int, suffix: str) -> str:
        return f"{DIRECTORY}/{base_offset:020d}{suffix}"

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]


def contents(log: Log, isolation: Isolation = Isolation.LOG_END) -> list[bytes]:
    """Every batch from the start on that such a reader may see."""
    found: list[bytes] = []
    offset = log.start_offset
    while (part := reader.read(log, offset, PLENTY, isolation, at_least_one=True)) is not None:
        batches = split(part.read())
        found += [data for _, data in batches]
        offset = batches[-1][0].last_offset + 1
    return found
