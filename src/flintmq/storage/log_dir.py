"""The data directory: every log of this broker, its checkpoints, and the promise left by a clean stop.

format                                what wrote the directory, checked before anything is touched
clean-shutdown                        there after an orderly stop: where each log ended
recovery-point-offset-checkpoint      up to where each log was surely synced
log-start-offset-checkpoint           what DeleteRecords and retention took away
cleaner-offset-checkpoint             up to where each log is compacted
replication-offset-checkpoint         the high watermark of each log, in a cluster
reserve                               nothing: room for the above when the disk is full
topic-0/ …                            one directory for each partition
topic-0.<id>-delete/                  deleted, and removed in the background
topic-0.<id>-stray/                   a partition that the metadata does not know: kept, not served

Invariant: a line of a checkpoint speaks of the directory of that name as long as its `partition.metadata` has the
topic's id, and no line outlives its directory into the life of another topic with the same name.
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
from flintmq.records.topic_partition import TopicPartition
from flintmq.records.uuids import encode_uuid
from flintmq.settings import TopicConfig
from flintmq.storage.descriptors import Descriptors
from flintmq.storage.durability import offset_checkpoint
from flintmq.storage.durability.disk_reserve import DiskReserve
from flintmq.storage.durability.flush import METADATA_FILE, NO_SPACE, Flush, decode_metadata, encode_metadata
from flintmq.storage.limits import LOG_LIMITS, LogLimits
from flintmq.storage.log import Log
from flintmq.storage.log_state import LogState
from flintmq.storage.partition_dir import PartitionDir
from flintmq.storage.producer_snapshots import ProducerSnapshots
from flintmq.storage.producer_state import ProducerState
from flintmq.storage.recovery.log_loader import RecoveryReport, open_log

logger = logging.getLogger(__name__)

FORMAT_FILE = "format"
FORMAT_VERSION = 1
CLEAN_SHUTDOWN = "clean-shutdown"
DELETED, STRAY = "-delete", "-stray"


@dataclass(frozen=True, slots=True)
class AssignedPartition:
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
        limits: LogLimits = LOG_LIMITS,
        replicated: bool = False,
    ) -> None:
        """`replicated` logs have other copies in a cluster: after a start not all that they hold need be visible."""
        self.path = path
        self.counters = counters or LogCounters()
        self.logs: dict[TopicPartition, Log] = {}
        self._watch: Callable[[Log], object] | None = None
        self.assigned = 0
        """How many `load` has to open, or had."""
        self.was_clean = False
        """Whether the last stop was an orderly one; known from `load` on."""
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._descriptors = Descriptors(disk, descriptors)
        self._threads = threads
        self._limits = limits
        self._replicated = replicated
        # What the checkpoint files are known to say.
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        # Those of which it is not known whether the last try to write them came to anything.
        self._unsure: set[str] = set()
        self._checkpointing = threading.Lock()
        self._reserve = DiskReserve(disk, path)
        # Directories whose renaming is not yet on stable storage.
        self._renamed: set[str] = set()
        # Logs whose `partition.metadata` is on stable storage, though this process has not flushed them.
        self._identified: set[tuple[bytes, int]] = set()

    # ---- opening and closing

    def check_format(self) -> None:
        """Refuse a directory written by a newer FlintMQ; write the format of a new one.

        The upgrade rule: a version reads its own format and every older one, and rewrites this file only
        after it has upgraded what it must.
        """
        self._disk.makedirs(self.path)
        path = f"{self.path}/{FORMAT_FILE}"
        if not self._disk.exists(path):
            # ORDER: the directory's own name is durable BEFORE the file that says that all was done.
            above, slash, _ = self.path.rpartition("/")
            self._disk.sync_dir(above or slash)
            write_atomically(self._disk, path, json.dumps({"format": FORMAT_VERSION}).encode() + b"\n")
            return
        try:
            version = int(json.loads(read_file(self._disk, path))["format"])
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(
                f"{path} makes no sense. If {self.path} is a FlintMQ data directory, restore the file with "
                f'{{"format": {FORMAT_VERSION}}}; otherwise choose another directory.'
            ) from None
        if version > FORMAT_VERSION:
            raise ConfigurationError(
                f"{self.path} was written by a newer FlintMQ (format {version}; this one knows {FORMAT_VERSION}). "
                "Upgrade, or use another directory."
            )

    async def load(
        self, assigned: Iterable[AssignedPartition], *, deleting: frozenset[bytes]
    ) -> list[tuple[Log, RecoveryReport]]:
        """Open every assigned log, several at a time; what is not assigned is put aside."""
        clean_ends = self._read_checkpoint(CLEAN_SHUTDOWN)
        self.was_clean = clean_ends is not None
        if clean_ends is not None:
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
        # ORDER: the promise is gone from the disk BEFORE anything is written that would break it; and what the
        # process before renamed but did not live to sync is durable BEFORE anybody relies on it.
        self._disk.sync_dir(self.path)
        for name in (
            offset_checkpoint.RECOVERY_POINT,
            offset_checkpoint.LOG_START,
            offset_checkpoint.FIRST_DIRTY,
            *([offset_checkpoint.HIGH_WATERMARK] if self._replicated else []),
        ):
            self._checkpointed[name] = self._read_checkpoint(name) or {}
        wanted = list(assigned)
        self.assigned = len(wanted)
        ids = self._put_aside(wanted, deleting)
        known = {(p.topic, p.partition) for p in wanted if ids.get(_name(p)) == p.topic_id}
        self._forget({(p.topic, p.partition) for p in wanted} - known)
        started = known & self._checkpointed[offset_checkpoint.LOG_START].keys()
        self._identified = {(p.topic_id, p.partition) for p in wanted if (p.topic, p.partition) in started}
        reports: list[tuple[Log, RecoveryReport]] = []
        gate = asyncio.Semaphore(self._threads)

        async def one(partition: AssignedPartition) -> None:
            key = (partition.topic, partition.partition)
            directory = self._partition_dir(partition)
            clean_end = clean_ends.get(key) if clean_ends is not None else None
            if key not in known and clean_end:
                logger.error(
                    "%s is gone from %s, which an orderly stop left with it", directory.name, self.path
                )
            if key not in known and not self._disk.exists(directory.path):
                opened = self._empty_log(directory, partition.config), RecoveryReport()
            elif clean_end is None or key not in known:
                async with gate:
                    opened = await self._executor.run(
                        self._open_if_possible, directory, partition.config, None, key in known
                    )
            else:
                # Nothing to scan: a thread for each log would cost more than the log.
                opened = self._open_if_possible(directory, partition.config, clean_end, True)
            self.logs[key] = opened[0]
            reports.append(opened)

        if clean_ends is None:
            await asyncio.gather(*(one(partition) for partition in wanted))
        else:
            for partition in wanted:
                await one(partition)
        self._reserve.create()
        return reports

    def _open_if_possible(
        self, directory: PartitionDir, config: TopicConfig, clean_end: int | None, is_known: bool
    ) -> tuple[Log, RecoveryReport]:
        """Open a log. One that the disk does not give is offline; the others are served."""
        key = (directory.topic, directory.partition)
        start_offset = self._checkpointed[offset_checkpoint.LOG_START].get(key, 0)
        first_dirty_offset = self._checkpointed[offset_checkpoint.FIRST_DIRTY].get(key, 0)
        high_watermark = (
            self._checkpointed[offset_checkpoint.HIGH_WATERMARK].get(key, 0) if self._replicated else None
        )
        # What is compacted was synced before, and has holes that look like a lost end: it is not to be scanned even
        # where the checkpoint that says so is lost.
        recovery_point = max(
            self._checkpointed[offset_checkpoint.RECOVERY_POINT].get(key, 0), first_dirty_offset
        )
        try:
            if not is_known:
                self._create_directory(directory)
            log, report = open_log(
                directory,
                config,
                clean=clean_end is not None,
                recovery_point=recovery_point,
                start_offset=start_offset,
                first_dirty_offset=first_dirty_offset,
                high_watermark=high_watermark,
                now_ms=self._clock.now_ms(),
                counters=self.counters,
                limits=self._limits,
            )
        except (OSError, StorageError, CorruptionError) as error:
            # What the checkpoints say of it is kept for the next start.
            state = self._empty_state(directory)
            state.recovery_point, state.start_offset = recovery_point, start_offset
            state.first_dirty_offset = first_dirty_offset
            log = Log(directory, config, state, counters=self.counters, limits=self._limits)
            log.visibility.recover(high_watermark or 0, 0, ())
            log.go_offline(f"it could not be opened: {error}")
            return log, RecoveryReport()
        if clean_end is not None and log.end_offset != clean_end:
            logger.error(
                "%s ends at offset %d, but the orderly stop left it at %d: it was changed from outside",
                log.name,
                log.end_offset,
                clean_end,
            )
        return log, report

    def _create_directory(self, directory: PartitionDir) -> None:
        """A directory without an id is taken over: nothing in it was ever promised to be durable."""
        is_new = not self._disk.exists(directory.path)
        self._disk.makedirs(directory.path)
        try:
            write_plainly(
                self._disk, f"{directory.path}/{METADATA_FILE}", encode_metadata(directory.topic_id)
            )
        except OSError:
            if is_new:
                # Else the next try would find a directory of nobody and put it aside.
                self._disk.remove_tree(directory.path)
            raise

    def close(self) -> None:
        """Write the clean-shutdown marker. The caller has stopped all writers."""
        flushes: list[tuple[Log, Flush]] = []
        for log in self.logs.values():
            if log.offline is not None:
                continue
            if log.truncation is not None:
                log.retire("the broker stopped while it was truncated")
                continue
            try:
                if log.unflushed or log.sealed:
                    flush = log.prepare_flush()
                    flush.run_at_shutdown()
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

    def create(self, partition: AssignedPartition) -> Log:
        """The empty log of a new partition. It gets its directory with the first batch: most of what a topic of a
        thousand partitions costs are the files, and many partitions never see a record."""
        log = self._empty_log(self._partition_dir(partition), partition.config)
        if self._watch is not None:
            self._watch(log)
        self.logs[partition.topic, partition.partition] = log
        return log

    def watch(self, watch: Callable[[Log], object]) -> None:
        """Call `watch` with every log, and with each that is created later: it sets the log's callbacks."""
        self._watch = watch
        for log in self.logs.values():
            watch(log)

    def _empty_log(self, directory: PartitionDir, config: TopicConfig) -> Log:
        now_ms = self._clock.now_ms()
        state = self._empty_state(directory)
        state.segments = [directory.new_segment(0, config, now_ms)]
        state.last_flush_ms = now_ms
        return Log(
            directory,
            config,
            state,
            counters=self.counters,
            limits=self._limits,
            create_directory=lambda: self._create_for_first_batch(directory),
        )

    def _empty_state(self, directory: PartitionDir) -> LogState:
        return LogState(
            snapshots=ProducerSnapshots(self._disk, directory.path, limits=self._limits),
            producers=ProducerState(producers_max=self._limits.producers_max),
        )

    def _create_for_first_batch(self, directory: PartitionDir) -> None:
        """ORDER: the directory of a deleted topic of the same name, and the lines about it, are gone from the disk
        BEFORE the new one is made."""
        path = directory.path
        if self._disk.exists(path) and self._topic_id_of(path) != directory.topic_id:
            self._rename_away(path, STRAY)
        if path in self._renamed:
            self._disk.sync_dir(self.path)
            self._renamed.clear()
        self._forget({(directory.topic, directory.partition)})
        self._create_directory(directory)

    def delete(self, topic: str, partition: int) -> Callable[[], None] | None:
        """Take a log out of service at once; what is returned removes its files, away from the loop."""
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return None
        log.retire(f"{log.name} was deleted")
        if not log.is_created and not self._disk.exists(log.directory):
            return None
        return self._remover(self._rename_away(log.directory, DELETED))

    def unfinished_deletions(self) -> list[Callable[[], None]]:
        """Return removers for deleted directories that a crash left behind."""
        return [
            self._remover(f"{self.path}/{name}")
            for name in self._disk.list(self.path)
            if name.endswith(DELETED)
        ]

    def _remover(self, directory: str) -> Callable[[], None]:
        def remove() -> None:
            if self._disk.exists(directory):
                self._disk.remove_tree(directory)
            # ORDER: what is forgotten once this returns does not come back with a power loss.
            self._disk.sync_dir(self.path)

        return remove

    def _partition_dir(self, partition: AssignedPartition) -> PartitionDir:
        return PartitionDir(
            f"{self.path}/{_name(partition)}",
            topic=partition.topic,
            partition=partition.partition,
            topic_id=partition.topic_id,
            disk=self._disk,
            descriptors=self._descriptors,
        )

    def _put_aside(self, wanted: list[AssignedPartition], deleting: frozenset[bytes]) -> dict[str, bytes]:
        """Directories of other topics, even of the same name, never mix with those that are wanted.

        Returns the names and topic ids of those that stay.
        """
        ids: dict[str, bytes] = {}
        names = {_name(p): p.topic_id for p in wanted}
        for name in self._disk.list(self.path):
            directory = f"{self.path}/{name}"
            if name.endswith((DELETED, STRAY)):
                continue
            if not self._disk.exists(f"{directory}/{METADATA_FILE}") and name not in names:
                continue
            topic_id = self._topic_id_of(directory)
            if topic_id in deleting:
                self._rename_away(directory, DELETED)
            elif name not in names or (topic_id != names[name] and (topic_id is not None or deleting)):
                # One without an id was never flushed. It is taken over where no deleted topic can have left it.
                aside = self._rename_away(directory, STRAY)
                logger.error("%s belongs to no topic that this broker knows; kept as %s", directory, aside)
            elif topic_id is not None:
                ids[name] = topic_id
        if self._renamed:
            self._disk.sync_dir(self.path)
            self._renamed.clear()
        return ids

    def _topic_id_of(self, directory: str) -> bytes | None:
        path = f"{directory}/{METADATA_FILE}"
        return decode_metadata(read_file(self._disk, path)) if self._disk.exists(path) else None

    def _rename_away(self, directory: str, suffix: str) -> str:
        tag = encode_uuid(self._topic_id_of(directory) or bytes(16))
        target, copies = f"{directory}.{tag}{suffix}", 0
        while self._disk.exists(target):
            if suffix == DELETED:
                self._disk.remove_tree(target)
            else:
                copies += 1
                target = f"{directory}.{tag}.{copies}{suffix}"
        self._disk.rename(directory, target)
        self._renamed.add(directory)
        return target

    # ---- checkpoints

    def checkpoint(self) -> None:
        """Write what changed since the last time; recovery starts from here."""
        # ORDER: which truncations the checkpoints know of is seen BEFORE their offsets are.
        truncated = [(log, log.generation) for log in list(self.logs.values()) if log.has_truncation_note]
        self._write_checkpoint(offset_checkpoint.RECOVERY_POINT, lambda log: log.recovery_point)
        self._write_checkpoint(offset_checkpoint.FIRST_DIRTY, lambda log: log.first_dirty_offset)
        self._write_starts()
        if self._replicated:
            self._write_checkpoint(offset_checkpoint.HIGH_WATERMARK, lambda log: log.high_watermark)
        for log, generation in truncated:
            log.forget_truncation(generation)
        self._reserve.create()

    def checkpoint_starts(self) -> None:
        """ORDER: before the files below a new start are removed."""
        if any(log.has_truncation_note for log in list(self.logs.values())):
            # A note may name an older start, which counts for as long as the note exists.
            self.checkpoint()
        else:
            self._write_starts()

    def _write_starts(self) -> None:
        for log in list(self.logs.values()):
            # A line counts only with the id beside it; before the first flush nothing has made that durable.
            if (
                log.start_offset > 0
                and log.durable_segment < 0
                and (log.topic_id, log.partition) not in self._identified
            ):
                log.close_guard.replace(
                    self._disk, f"{log.directory}/{METADATA_FILE}", encode_metadata(log.topic_id)
                )
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
                if error.errno not in NO_SPACE or not self._reserve.release():
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


def _name(partition: AssignedPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
