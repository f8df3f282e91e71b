"""The data folder: every log of this broker, its checkpoints, and the promise left by a clean stop.

format                                what wrote the folder, checked before anything is touched
clean-shutdown                        there after an orderly stop: where each log ended
recovery-point-offset-checkpoint      up to where each log was surely synced
log-start-offset-checkpoint           what DeleteRecords and retention took away
cleaner-offset-checkpoint             up to where each log is compacted
reserve                               nothing: room for the above when the disk is full
topic-0/ …                            one folder for each partition
topic-0.<id>-delete/                  deleted, and removed in the background
topic-0.<id>-stray/                   a partition that the metadata does not know: kept, not served

Invariant: a line of a checkpoint speaks of the folder of that name as long as its `partition.metadata` has the
topic's id, and no line outlives its folder into the life of another topic with the same name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flintmq.effects import Clock, Disk, Executor, read_file, write_atomically, write_plainly
from flintmq.errors import ConfigurationError, CorruptionError, StorageError
from flintmq.metrics import LogCounters
from flintmq.records.uuids import encode_uuid
from flintmq.settings import TopicConfig
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.durability.disk_reserve import DiskReserve
from flintmq.storage.durability.flush import METADATA_FILE, NO_SPACE, Flush, decode_metadata, encode_metadata
from flintmq.storage.durability.offset_checkpoint import TopicPartition
from flintmq.storage.log import Log
from flintmq.storage.recovery.log_loader import Recovery, open_log

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


class LogDir:
    def __init__(
        self,
        path: str,
        *,
        disk: Disk,
        clock: Clock,
        executor: Executor,
        descriptors: int,
        threads: int = 2,
        counters: LogCounters | None = None,
    ) -> None:
        self.path = path
        self.counters = counters or LogCounters()
        self.logs: dict[TopicPartition, Log] = {}
        self.assigned = 0
        """How many `load` has to open, or had."""
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._descriptors = Descriptors(disk, descriptors)
        self._threads = threads
        # What the checkpoint files are known to say.
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        # Those of which it is not known whether the last try to write them came to anything.
        self._unsure: set[str] = set()
        self._checkpointing = threading.Lock()
        self._reserve = DiskReserve(disk, path)
        # Folders whose renaming is not yet on stable storage.
        self._renamed: set[str] = set()
        # Logs whose `partition.metadata` is on stable storage, though this process has not flushed them.
        self._identified: set[tuple[bytes, int]] = set()

    # ---- opening and closing

    def check_format(self) -> None:
        """Refuse a folder written by a newer FlintMQ; write the format of a new one.

        The upgrade rule: a version reads its own format and every older one, and rewrites this file only
        after it has upgraded what it must.
        """
        self._disk.makedirs(self.path)
        path = f"{self.path}/{FORMAT_FILE}"
        if not self._disk.exists(path):
            # ORDER: the folder's own name is durable BEFORE the file that says that all was done.
            above, slash, _ = self.path.rpartition("/")
            self._disk.sync_dir(above or slash)
            write_atomically(self._disk, path, json.dumps({"format": FORMAT_VERSION}).encode() + b"\n")
            return
        try:
            version = int(json.loads(read_file(self._disk, path))["format"])
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

    async def load(
        self, assigned: Iterable[Assigned], *, deleting: frozenset[bytes]
    ) -> list[tuple[Log, Recovery]]:
        """Open every assigned log, several at a time; what is not assigned is put aside."""
        clean_ends = self._read_checkpoint(CLEAN_SHUTDOWN)
        if clean_ends is not None:
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
        # ORDER: the promise is gone from the disk BEFORE anything is written that would break it; and what the
        # process before renamed but did not live to sync is durable BEFORE anybody relies on it.
        self._disk.sync_dir(self.path)
        for name in (
            offset_checkpoint.RECOVERY_POINT,
            offset_checkpoint.LOG_START,
            offset_checkpoint.FIRST_DIRTY,
        ):
            self._checkpointed[name] = self._read_checkpoint(name) or {}
        wanted = list(assigned)
        self.assigned = len(wanted)
        ids = self._put_aside(wanted, deleting)
        known = {(p.topic, p.partition) for p in wanted if ids.get(_name(p)) == p.topic_id}
        self._forget({(p.topic, p.partition) for p in wanted} - known)
        started = known & self._checkpointed[offset_checkpoint.LOG_START].keys()
        self._identified = {(p.topic_id, p.partition) for p in wanted if (p.topic, p.partition) in started}
        reports: list[tuple[Log, Recovery]] = []
        gate = asyncio.Semaphore(self._threads)

        async def one(partition: Assigned) -> None:
            key = (partition.topic, partition.partition)
            log = self._log(partition)
            clean_end = clean_ends.get(key) if clean_ends is not None else None
            if key not in known and clean_end:
                logger.error("%s is gone from %s, which an orderly stop left with it", log.name, self.path)
            if key not in known and not self._disk.exists(log.folder):
                self._begin(log)
                report = Recovery()
            elif clean_end is None or key not in known:
                async with gate:
                    report = await self._executor.run(self._open_if_possible, log, key, None, key in known)
            else:
                # Nothing to scan: a thread for each log would cost more than the log.
                report = self._open_if_possible(log, key, clean_end, True)
            self.logs[key] = log
            reports.append((log, report))

        if clean_ends is None:
            await asyncio.gather(*(one(partition) for partition in wanted))
        else:
            for partition in wanted:
                await one(partition)
        self._reserve.keep()
        return reports

    def _open_if_possible(
        self, log: Log, key: TopicPartition, clean_end: int | None, is_known: bool
    ) -> Recovery:
        """A log that the disk does not give is offline; the others are served."""
        recovery_point = self._checkpointed[offset_checkpoint.RECOVERY_POINT].get(key, 0)
        start_offset = self._checkpointed[offset_checkpoint.LOG_START].get(key, 0)
        log.first_dirty_offset = self._checkpointed[offset_checkpoint.FIRST_DIRTY].get(key, 0)
        # What is compacted was synced before, and has holes that look like a lost end: it is not to be scanned even
        # where the checkpoint that says so is lost.
        recovery_point = max(recovery_point, log.first_dirty_offset)
        try:
            if not is_known:
                self._make_folder(log)
            return self._open(log, clean_end, recovery_point, start_offset)
        except (OSError, StorageError, CorruptionError) as error:
            # What the checkpoints say of it is kept for the next start.
            log.recovery_point, log.start_offset = recovery_point, start_offset
            log.go_offline(f"it could not be opened: {error}")
            return Recovery()

    def _make_folder(self, log: Log) -> None:
        """A folder without an id is taken over: nothing in it was ever promised to be durable."""
        is_new = not self._disk.exists(log.folder)
        self._disk.makedirs(log.folder)
        try:
            write_plainly(self._disk, f"{log.folder}/{METADATA_FILE}", encode_metadata(log.topic_id))
        except OSError:
            if is_new:
                # Else the next try would find a folder of nobody and put it aside.
                self._disk.remove_tree(log.folder)
            raise

    def _open(self, log: Log, clean_end: int | None, recovery_point: int, start_offset: int) -> Recovery:
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
        flushes: list[tuple[Log, Flush]] = []
        for log in self.logs.values():
            if log.offline is not None:
                continue
            try:
                if log.unflushed or log.sealed:
                    flush = log.prepare_flush()
                    flush.run_at_stop()
                    flushes.append((log, flush))
                log.close()
            except (OSError, StorageError) as error:
                log.go_offline(f"it could not be closed: {error}")
        try:
            # ORDER: indexes and names are on disk BEFORE the checkpoints say that recovery may trust them, and
            # the promise comes after everything that it promises.
            self._disk.sync_all()
            for log, flush in flushes:
                log.flushed(flush, self._clock.now_ms())
            self.checkpoint()
            if all(log.offline is None for log in self.logs.values()):
                ends = {key: log.end_offset for key, log in self.logs.items()}
                write_atomically(self._disk, f"{self.path}/{CLEAN_SHUTDOWN}", offset_checkpoint.encode(ends))
        except (OSError, StorageError) as error:
            logger.error("this stop is not a clean one, the next start scans the logs: %s", error)

    # ---- partitions

    def create(self, partition: Assigned) -> Log:
        """The empty log of a new partition. It gets its folder with the first batch: most of what a topic of a
        thousand partitions costs are the files, and many partitions never see a record."""
        log = self._log(partition)
        self._begin(log)
        self.logs[partition.topic, partition.partition] = log
        return log

    def _begin(self, log: Log) -> None:
        log.begin(lambda: self._make(log), self._clock.now_ms())

    def _make(self, log: Log) -> None:
        """ORDER: the folder of a deleted topic of the same name, and the lines about it, are gone from the disk
        BEFORE the new one is made."""
        if self._disk.exists(log.folder) and self._folder_id(log.folder) != log.topic_id:
            self._rename_away(log.folder, STRAY)
        if log.folder in self._renamed:
            self._disk.sync_dir(self.path)
            self._renamed.clear()
        key = (log.topic, log.partition)
        self._forget({key})
        self._make_folder(log)

    def delete(self, topic: str, partition: int) -> Callable[[], None] | None:
        """Take a log out of service at once; what is returned removes its files, away from the loop."""
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return None
        log.offline = log.offline or f"{log.name} was deleted"
        # ORDER: a flush that runs in a thread must not write into a folder that is no longer this log's.
        log.gate.shut()
        # The disk gives back the room of a file only when nobody has it open: readers have their own reference.
        for segment in log.segments:
            segment.file = None
        log.sealed.clear()
        if not log.is_made and not self._disk.exists(log.folder):
            return None
        return self._remover(self._rename_away(log.folder, DELETED))

    def leftovers(self) -> list[Callable[[], None]]:
        """Removers for deleted folders that a crash left behind."""
        return [
            self._remover(f"{self.path}/{name}")
            for name in self._disk.list(self.path)
            if name.endswith(DELETED)
        ]

    def _remover(self, folder: str) -> Callable[[], None]:
        def remove() -> None:
            if self._disk.exists(folder):
                self._disk.remove_tree(folder)
            # ORDER: what is forgotten once this returns does not come back with a power loss.
            self._disk.sync_dir(self.path)

        return remove

    def _log(self, partition: Assigned) -> Log:
        return Log(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=partition.topic_id,
            folder=f"{self.path}/{_name(partition)}",
            config=partition.config,
            disk=self._disk,
            descriptors=self._descriptors,
            counters=self.counters,
        )

    def _put_aside(self, wanted: list[Assigned], deleting: frozenset[bytes]) -> dict[str, bytes]:
        """Folders of other topics, even of the same name, never mix with those that are wanted.

        Returns the names and topic ids of those that stay.
        """
        ids: dict[str, bytes] = {}
        names = {_name(p): p.topic_id for p in wanted}
        for name in self._disk.list(self.path):
            folder = f"{self.path}/{name}"
            if name.endswith((DELETED, STRAY)):
                continue
            if not self._disk.exists(f"{folder}/{METADATA_FILE}") and name not in names:
                continue
            topic_id = self._folder_id(folder)
            if topic_id in deleting:
                self._rename_away(folder, DELETED)
            elif name not in names or (topic_id != names[name] and (topic_id is not None or deleting)):
                # One without an id was never flushed. It is taken over where no deleted topic can have left it.
                aside = self._rename_away(folder, STRAY)
                logger.error("%s belongs to no topic that this broker knows; kept as %s", folder, aside)
            elif topic_id is not None:
                ids[name] = topic_id
        if self._renamed:
            self._disk.sync_dir(self.path)
            self._renamed.clear()
        return ids

    def _folder_id(self, folder: str) -> bytes | None:
        path = f"{folder}/{METADATA_FILE}"
        return decode_metadata(read_file(self._disk, path)) if self._disk.exists(path) else None

    def _rename_away(self, folder: str, suffix: str) -> str:
        tag = encode_uuid(self._folder_id(folder) or bytes(16))
        target, copies = f"{folder}.{tag}{suffix}", 0
        while self._disk.exists(target):
            if suffix == DELETED:
                self._disk.remove_tree(target)
            else:
                copies += 1
                target = f"{folder}.{tag}.{copies}{suffix}"
        self._disk.rename(folder, target)
        self._renamed.add(folder)
        return target

    # ---- checkpoints

    def checkpoint(self) -> None:
        """Write what changed since the last time; recovery starts from here."""
        self._write_checkpoint(offset_checkpoint.RECOVERY_POINT, lambda log: log.recovery_point)
        self._write_checkpoint(offset_checkpoint.FIRST_DIRTY, lambda log: log.first_dirty_offset)
        self.checkpoint_starts()
        self._reserve.keep()

    def checkpoint_starts(self) -> None:
        """ORDER: before the files below a new start are removed."""
        for log in list(self.logs.values()):
            # A line counts only with the id beside it; before the first flush nothing has made that durable.
            if (
                log.start_offset > 0
                and log.durable_segment < 0
                and (log.topic_id, log.partition) not in self._identified
            ):
                log.gate.replace(self._disk, f"{log.folder}/{METADATA_FILE}", encode_metadata(log.topic_id))
                self._disk.sync_dir(self.path)
                self._identified.add((log.topic_id, log.partition))
        self._write_checkpoint(offset_checkpoint.LOG_START, lambda log: log.start_offset)

    def start_is_durable(self, log: Log) -> bool:
        """Whether the checkpoint on disk says where the log begins now."""
        written = self._checkpointed.get(offset_checkpoint.LOG_START, {}).get((log.topic, log.partition), 0)
        return offset_checkpoint.LOG_START not in self._unsure and written >= log.start_offset

    def _write_checkpoint(self, name: str, offset_of: Callable[[Log], int]) -> None:
        # One at a time, and each with offsets taken after its turn came: requests and housekeeping both write
        # checkpoints from threads, and an older one must not replace a newer.
        with self._checkpointing:
            self._replace_checkpoint(
                name, {key: offset for key, log in list(self.logs.items()) if (offset := offset_of(log)) > 0}
            )

    def _replace_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if name in self._unsure or self._checkpointed.get(name) != offsets:
            path, data = f"{self.path}/{name}", offset_checkpoint.encode(offsets)
            self._unsure.add(name)
            try:
                write_atomically(self._disk, path, data)
            except OSError as error:
                if error.errno not in NO_SPACE or not self._reserve.give_up():
                    raise
                write_atomically(self._disk, path, data)
            self._checkpointed[name] = offsets
            self._unsure.discard(name)

    def _forget(self, keys: set[TopicPartition]) -> None:
        """Take lines out of the checkpoints, durably."""
        with self._checkpointing:
            for name, offsets in list(self._checkpointed.items()):
                if name in self._unsure or not keys.isdisjoint(offsets):
                    kept = {key: offset for key, offset in offsets.items() if key not in keys}
                    self._replace_checkpoint(name, kept)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return None
        try:
            return offset_checkpoint.decode(read_file(self._disk, path))
        except CorruptionError as error:
            logger.warning("%s: %s Doing without it: every segment is scanned.", path, error)
            return None


def _name(partition: Assigned) -> str:
    return f"{partition.topic}-{partition.partition}"
