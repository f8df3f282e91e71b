"""The data folder: every log of this broker, its checkpoints, and the promise left by a clean stop.

    format                                what wrote the folder, checked before anything is touched
    clean-shutdown                        there after an orderly stop: where each log ended
    recovery-point-offset-checkpoint      up to where each log was surely synced
    log-start-offset-checkpoint           what DeleteRecords and retention took away
    topic-0/ …                            one folder for each partition
    topic-0.<id>-delete/                  deleted, and removed in the background
    topic-0.<id>-stray/                   a partition that the metadata does not know: kept, not served
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flintmq.effects import Clock, Disk, Executor, read_file, write_atomically, write_plainly
from flintmq.errors import ConfigurationError, CorruptionError
from flintmq.model.uuids import encode_uuid
from flintmq.settings import TopicConfig
from flintmq.storage import checkpoints
from flintmq.storage.checkpoints import TopicPartition
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.log import METADATA_FILE, Log, decode_metadata, encode_metadata
from flintmq.storage.recovery import Recovery, open_log

logger = logging.getLogger(__name__)

FORMAT_FILE = "format"
FORMAT_VERSION = 1
CLEAN_SHUTDOWN = "clean-shutdown"
DELETED, STRAY = "-delete", "-stray"


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition that belongs on this broker, as the metadata has it."""

    topic: str
    partition: int
    topic_id: bytes
    config: TopicConfig


class LogFolder:
    def __init__(
        self, path: str, *, disk: Disk, clock: Clock, executor: Executor, descriptors: int, threads: int = 2
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._descriptors = Descriptors(disk, descriptors)
        self._threads = threads
        self._checkpointed: dict[str, bytes] = {}

    # ---- opening and closing

    def check_format(self) -> None:
        """Refuse a folder written by a newer FlintMQ; write the format of a new one.

        The upgrade rule: a version reads its own format and every older one, and rewrites this file only
        after it has upgraded what it must.
        """
        self._disk.makedirs(self.path)
        path = f"{self.path}/{FORMAT_FILE}"
        if not self._disk.exists(path):
            write_atomically(self._disk, path, json.dumps({"format": FORMAT_VERSION}).encode() + b"\n")
            return
        try:
            version = json.loads(read_file(self._disk, path))["format"]
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(
                f"{path} makes no sense. If {self.path} is a FlintMQ data folder, restore the file with "
                f'{{"format": {FORMAT_VERSION}}}; otherwise choose another folder.'
            ) from None
        if version > FORMAT_VERSION:
            raise ConfigurationError(
                f"{self.path} was written by a newer FlintMQ (format {version}; this one knows {FORMAT_VERSION}). "
                "Upgrade, or use another folder."
            )

    async def load(self, assigned: Iterable[Assigned], *, deleting: frozenset[bytes]) -> list[tuple[Log, Recovery]]:
        """Open every assigned log, several at a time; what is not assigned is put aside."""
        clean_ends = self._read_checkpoint(CLEAN_SHUTDOWN)
        recovery_points = self._read_checkpoint(checkpoints.RECOVERY_POINT) or {}
        starts = self._read_checkpoint(checkpoints.LOG_START) or {}
        if clean_ends is not None:
            # ORDER: the promise is gone from the disk BEFORE anything is written that would break it.
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._disk.sync_dir(self.path)
        wanted = list(assigned)
        self._put_aside(wanted, deleting)
        reports: list[tuple[Log, Recovery]] = []
        gate = asyncio.Semaphore(self._threads)

        async def one(partition: Assigned) -> None:
            key = (partition.topic, partition.partition)
            log = self._log(partition)
            clean_end = (clean_ends or {}).get(key)
            async with gate:
                report = await self._executor.run(
                    self._open, log, clean_end, recovery_points.get(key, 0), starts.get(key, 0)
                )
            self.logs[key] = log
            reports.append((log, report))

        if clean_ends is None:
            await asyncio.gather(*(one(partition) for partition in wanted))
        else:
            # Nothing to scan: a thread for each log would cost more than the log.
            for partition in wanted:
                key = (partition.topic, partition.partition)
                log = self._log(partition)
                report = self._open(log, clean_ends.get(key), recovery_points.get(key, 0), starts.get(key, 0))
                self.logs[key] = log
                reports.append((log, report))
        return reports

    def _open(self, log: Log, clean_end: int | None, recovery_point: int, start_offset: int) -> Recovery:
        fresh = not self._disk.exists(log.folder)
        self._disk.makedirs(log.folder)
        metadata = f"{log.folder}/{METADATA_FILE}"
        if fresh or not self._disk.exists(metadata):
            write_plainly(self._disk, metadata, encode_metadata(log.topic_id))
        now_ms = self._clock.now_ms()
        report = open_log(
            log,
            clean=clean_end is not None,
            recovery_point=recovery_point,
            start_offset=start_offset,
            now_ms=now_ms,
        )
        if clean_end is not None and log.end_offset != clean_end:
            logger.error(
                "%s ends at offset %d, but the orderly stop left it at %d: it was changed from outside",
                log.name,
                log.end_offset,
                clean_end,
            )
        return report

    def close(self) -> None:
        """Leave the promise of a clean stop. The caller has stopped all writers."""
        for log in self.logs.values():
            if log.offline is not None:
                continue
            flush = log.prepare_flush()
            if log.unflushed:
                flush.run()
                log.flushed(flush, self._clock.now_ms())
            log.close()
        self.checkpoint()
        self._disk.sync_all()
        # ORDER: the promise comes after everything that it promises.
        if all(log.offline is None for log in self.logs.values()):
            ends = {key: log.end_offset for key, log in self.logs.items()}
            write_atomically(self._disk, f"{self.path}/{CLEAN_SHUTDOWN}", checkpoints.encode(ends))

    # ---- partitions

    def create(self, partition: Assigned) -> Log:
        """The empty log of a new partition."""
        log = self._log(partition)
        if self._disk.exists(log.folder) and self._folder_id(log.folder) != partition.topic_id:
            self._rename_away(log.folder, STRAY)
        self._open(log, None, 0, 0)
        self.logs[partition.topic, partition.partition] = log
        return log

    def delete(self, topic: str, partition: int) -> Callable[[], None] | None:
        """Take a log out of service at once; what is returned removes its files, away from the loop."""
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return None
        log.offline = log.offline or f"{log.name} was deleted"
        return self._remover(self._rename_away(log.folder, DELETED))

    def leftovers(self) -> list[Callable[[], None]]:
        """Removers for deleted folders that a crash left behind."""
        return [
            self._remover(f"{self.path}/{name}") for name in self._disk.list(self.path) if name.endswith(DELETED)
        ]

    def _remover(self, folder: str) -> Callable[[], None]:
        def remove() -> None:
            if self._disk.exists(folder):
                self._disk.remove_tree(folder)

        return remove

    def _log(self, partition: Assigned) -> Log:
        return Log(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=partition.topic_id,
            folder=f"{self.path}/{partition.topic}-{partition.partition}",
            config=partition.config,
            disk=self._disk,
            descriptors=self._descriptors,
        )

    def _put_aside(self, wanted: list[Assigned], deleting: frozenset[bytes]) -> None:
        """Folders of other topics, even of the same name, never mix with those that are wanted."""
        names = {f"{p.topic}-{p.partition}": p.topic_id for p in wanted}
        for name in self._disk.list(self.path):
            folder = f"{self.path}/{name}"
            if name.endswith((DELETED, STRAY)) or not self._disk.exists(f"{folder}/{METADATA_FILE}"):
                continue
            topic_id = self._folder_id(folder)
            if topic_id in deleting:
                self._rename_away(folder, DELETED)
            elif name not in names or (topic_id is not None and names[name] != topic_id):
                aside = self._rename_away(folder, STRAY)
                logger.error("%s belongs to no topic that this broker knows; kept as %s", folder, aside)

    def _folder_id(self, folder: str) -> bytes | None:
        path = f"{folder}/{METADATA_FILE}"
        return decode_metadata(read_file(self._disk, path)) if self._disk.exists(path) else None

    def _rename_away(self, folder: str, suffix: str) -> str:
        tag = encode_uuid(self._folder_id(folder) or bytes(16))
        target = f"{folder}.{tag}{suffix}"
        if self._disk.exists(target):
            self._disk.remove_tree(target)
        self._disk.rename(folder, target)
        return target

    # ---- checkpoints

    def checkpoint(self) -> None:
        """Write what changed since the last time; recovery starts from here."""
        self._write_checkpoint(checkpoints.RECOVERY_POINT, lambda log: log.recovery_point)
        self.checkpoint_starts()

    def checkpoint_starts(self) -> None:
        """ORDER: before the files below a new start are removed."""
        self._write_checkpoint(checkpoints.LOG_START, lambda log: log.start_offset)

    def _write_checkpoint(self, name: str, offset_of: Callable[[Log], int]) -> None:
        offsets = {key: offset for key, log in list(self.logs.items()) if (offset := offset_of(log)) > 0}
        data = checkpoints.encode(offsets)
        if self._checkpointed.get(name) != data:
            write_atomically(self._disk, f"{self.path}/{name}", data)
            self._checkpointed[name] = data

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return None
        try:
            return checkpoints.decode(read_file(self._disk, path))
        except CorruptionError as error:
            logger.warning("%s: %s Doing without it: every segment is scanned.", path, error)
            return None
