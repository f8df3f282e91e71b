"""The directory of one partition: whose it is, the files of its segments, and the guard against its late writers.

Recovery builds a log from it; the log then uses it for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flintmq.effects import Disk
from flintmq.errors import StorageError
from flintmq.records.checksum import crc32c
from flintmq.settings import TopicConfig
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.durability.flush import CloseGuard
from flintmq.storage.segment import LOG, SEGMENT_SUFFIXES, Segment


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

    def create_file(self, segment: Segment, config: TopicConfig) -> None:
        """Create the file of a new segment. StorageError if that fails; OSError if what exists of it cannot be
        removed either.
        """
        # Somebody may have opened a removed file of the same name before.
        segment.file = None
        try:
            file = segment.open(create=True)
            file.truncate(0)
            if config.preallocate:
                file.allocate(config.segment_bytes)
        except OSError as error:
            # ORDER: it is gone from the disk BEFORE another batch is written: that batch gets the offset by which
            # the file is named, and a start that finds the file would end the segment before there.
            segment.file = None
            if self.disk.exists(segment.path(LOG)):
                self.disk.remove(segment.path(LOG))
                self.disk.sync_dir(self.path)
            raise StorageError(f"{segment.path(LOG)} could not be made: {error}.") from error

    def remove_files(self, segments: Iterable[Segment], live: Sequence[Segment] = ()) -> None:
        """Remove the files of `segments`; readers that hold a descriptor finish. OSError after all were tried.

        Where a segment of `live`, as it is once no other thread changes the directory, has the name of one of them,
        the files are that segment's.
        """
        failure: OSError | None = None
        with self.close_guard.entered() as is_mine:
            bases = {segment.base_offset for segment in list(live)}
            for segment in segments:
                segment.removed = True
                segment.file = None
                if not is_mine or segment.base_offset in bases:
                    continue
                try:
                    self.remove_unguarded(segment)
                except OSError as error:
                    failure = error
        if failure is not None:
            raise failure

    def remove_unguarded(self, segment: Segment) -> None:
        """Remove the files of one segment. The caller has entered the guard."""
        for suffix in SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            if self.disk.exists(path):
                self.disk.remove(path)
