"""The directory of one partition: whose it is, the files of its segments, and the guard against its late writers.

Recovery builds a log from it; the log then uses it for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Iterable

from flintmq.effects import Disk
from flintmq.records.checksum import crc32c
from flintmq.settings import TopicConfig
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.durability.flush import CloseGuard
from flintmq.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, Segment


class PartitionDir:
    def __init__(
        self, path: str, *, topic: str, partition: int, topic_id: bytes, disk: Disk, descriptors: Descriptors
    ) -> None:
        self.path = path
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.disk = disk
        self.close_guard = CloseGuard()
        self._descriptors = descriptors

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def new_segment(self, base_offset: int, config: TopicConfig, now_ms: int) -> Segment:
        """Return a segment that has no file yet, or whose file is to be read."""
        jitter_max_ms = min(config.segment_jitter_ms, config.segment_ms)
        return Segment(
            self.path,
            base_offset,
            self._descriptors,
            index_interval=config.index_interval_bytes,
            created_ms=now_ms,
            # Not random but spread, and so the same in every run.
            jitter_ms=crc32c(f"{self.name}@{base_offset}".encode()) % jitter_max_ms if jitter_max_ms else 0,
        )

    def remove_files(self, segments: Iterable[Segment]) -> None:
        """Remove the files of `segments`; readers that hold a descriptor finish. OSError after all were tried."""
        failure: OSError | None = None
        with self.close_guard.entered() as is_mine:
            for segment in segments:
                segment.removed = True
                segment.file = None
                if not is_mine:
                    continue
                try:
                    for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                        path = segment.path(suffix)
                        if self.disk.exists(path):
                            self.disk.remove(path)
                except OSError as error:
                    failure = error
        if failure is not None:
            raise failure
