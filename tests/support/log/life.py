"""One log through its whole life on a simulated disk, beside a plain model of what it must hold.

The model is in `support.log.model`, what must hold in `support.log.checks`. `LogLife` does one thing at a
time, as a test asks for it, with as much of it left under way as the test wants, and `check` compares. A crash is
armed for the nth change of the disk from now: what would be found then is kept, and the next life begins with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple

from flintmq.errors import ErrorCode, FlintError, RequestError, StorageError
from flintmq.partitions.maintenance.log_cleaner import LogCleaner
from flintmq.partitions.maintenance.retention import retain
from flintmq.partitions.maintenance.scrub import verify_log
from flintmq.partitions.partition import Partition
from flintmq.partitions.record_deletion import delete_records
from flintmq.records.compression import Codec
from flintmq.records.markers import Marker
from flintmq.records.record import build_batch
from flintmq.settings import BrokerConfig, TopicConfig
from flintmq.storage import reader
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from flintmq.storage.timestamp_lookup import TimestampOffset, offset_for_time
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.log.checks import PLENTY, Reading, check, learn, read_batches, records_in
from support.log.client import end_transaction, send
from support.log.compactions import SimulatedCompactions
from support.log.model import LogModel, Told

FOLDER = "data"
START_MS = 1_700_000_000_000
TRANSACTIONAL_PRODUCERS = (3, 4)


class Found(NamedTuple):
    """What a crash left, and what was known by then."""

    disk: SimulatedDisk
    model: LogModel
    deleting: frozenset[bytes]


class LogLife:
    is_replicated = False

    def __init__(self, config: TopicConfig, *, seed: int, dedupe_bytes: int = 1 << 20) -> None:
        self.disk = SimulatedDisk(seed)
        self.disk.sync_dir("")
        self.model = LogModel(bytes(15) + b"\x01", config, is_replica=self.is_replicated)
        self.deleting: frozenset[bytes] = frozenset()
        self.readings: list[Reading] = []
        self._random = Random(seed)
        self._seed = seed
        self._topics = 1
        self._elapsed_ms = 0
        self._config = replace(BrokerConfig(), log_cleaner_dedupe_buffer_size=dedupe_bytes)
        self._fuse = 0
        self._power = False
        self._left: Found | None = None
        self._is_open = False
        self._countdown = 0
        self._action: Callable[[], object] = lambda: None
        self.compactions: list[asyncio.Task[None]] = []
        self.open()

    @property
    def log(self) -> Log:
        return self.partition.log

    # ---- processes

    def open(self) -> None:
        """Another process finds what is on the disk, and serves what it should."""
        self.clock = SimulatedClock(START_MS + self._elapsed_ms)
        self.loop = SimulatedLoop(self.clock)
        self._seed += 1
        self.executor = SimulatedExecutor(self.loop, self._seed)
        self.disk.observer = self._observe
        self.folder = LogDir(
            FOLDER,
            disk=self.disk,
            clock=self.clock,
            executor=self.executor,
            descriptors=8,
            replicated=self.is_replicated,
        )
        self.cleaner = LogCleaner(
            SimulatedCompactions(self.disk, self.executor),
            log_dir=self.folder,
            clock=self.clock,
            executor=self.executor,
            config=lambda: self._config,
        )
        self.folder.check_format()
        assigned = [AssignedPartition("t", 0, self.model.topic_id, self.model.config)]
        ((log, _),) = self.loop.run_until_complete(self.folder.load(assigned, deleting=self.deleting))
        assert log.offline is None, log.offline
        self.model = self.model.found_after_crash(log)
        self._serve(log)
        self.check(is_new=True)
        self._is_open = True
        for remove in self.folder.unfinished_deletions():
            remove()

    def _serve(self, log: Log) -> None:
        self.partition = Partition(log, clock=self.clock, timers=self.loop, executor=self.executor)
        self.partition.lead(node_id=0, leader_epoch=0, replicas=[0], isr=[0])

    def arm(self, changes: int, *, power: bool) -> None:
        """Let the crash come right before the nth change of the disk from now."""
        self._fuse, self._power = changes, power

    def after(self, changes: int, action: Callable[[], object]) -> None:
        """Do something on the loop as soon as the disk was changed so many times, whatever a thread is at."""
        self._countdown, self._action = changes, action

    def _observe(self, operation: str, path: str) -> None:
        if self._countdown:
            self._countdown -= 1
            if not self._countdown:
                self.loop.call_soon(self._action)
        if self._fuse:
            self._fuse -= 1
            if not self._fuse:
                self._left = self._crash(power=self._power)

    def _crash(self, *, power: bool) -> Found:
        if self._is_open:
            learn(self.model, self.log)
        model = self.model.copy()
        model.power_was_lost = model.power_was_lost or power
        disk = self.disk.crash() if power else self.disk.kill()
        disk.free_bytes = PLENTY
        return Found(disk, model, self.deleting)

    @property
    def has_crashed(self) -> bool:
        """Whether the armed crash has come."""
        return self._left is not None

    def crash(self, *, power: bool) -> None:
        self._left = self._crash(power=power)
        self.settle()

    def settle(self, *, then_arm: int = 0) -> None:
        """If the armed crash has come, begin the next life with what it left; then see whether all is well.

        With `then_arm` that life may crash too, at its nth change of the disk.
        """
        while (left := self._left) is not None:
            self._left, self._fuse, then_arm = None, then_arm, 0
            self._end_process()
            self.disk, self.model, self.deleting = left
            self.open()
        if self.log.offline is not None:
            self.crash(power=False)
        self.check()

    def _end_process(self) -> None:
        self.disk.observer, self._is_open, self._countdown = None, False, 0
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_idle()
        self._elapsed_ms = self.clock.now_ms() - START_MS
        self.loop.close()
        self.readings.clear()

    def stop(self) -> None:
        """An orderly stop in the middle of whatever is under way, and another start."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        if self._steps(2):
            return
        self.partition.close()
        self.folder.close()
        if self._left is None and self.log.offline is None:
            self.model.promised = self.model.end
        self.crash(power=False) if self._left is None else self.settle()

    def end(self) -> None:
        self._end_process()

    # ---- work

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], *, wait: bool) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work()
            except (FlintError, OSError):
                pass

        task = self.loop.create_task(guarded())
        if wait:
            self.loop.run_until_complete(task)
        return task

    def _steps(self, count: int) -> bool:
        """So many turns of the loop, with work in threads half done; whether a crash came."""
        for _ in range(count):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        return self._left is not None

    def step(self, count: int) -> None:
        self._steps(count)

    def wait(self, seconds: float) -> None:
        self.loop.advance(seconds)
        self.partition.flush_if_due(self.clock.now_ms())
        self.loop.run_until_idle()

    def append(
        self,
        pairs: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int,
        age_ms: int,
        codec: Codec,
    ) -> None:
        model, log = self.model, self.log
        timestamp = self.clock.now_ms() - age_ms
        epoch, sequence = -1, -1
        if producer_id >= 0:
            mine = model.last_of(producer_id)
            epoch, sequence = model.epoch_of(producer_id), mine[-1].header.last_sequence + 1 if mine else 0
        batch = self._batch(pairs, timestamp, producer_id, epoch, sequence, codec)
        try:
            self.send(batch)
        except RequestError as error:
            # Only where the records it wrote last are deleted may a producer be told so, or compacted away for the
            # sake of others that were cut off.
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            assert model.compacted_away or model.last_of(producer_id)[-1].end <= log.segments[0].base_offset
            batch = self._batch(pairs, timestamp, producer_id, epoch + 1, 0, codec)
            self.send(batch)
        except FlintError:
            return
        self._written()

    def end_transaction(self, producer_id: int, *, commit: bool, bumps_epoch: bool) -> None:
        """Write a marker, whether there is anything to end or not."""
        model, now_ms = self.model, self.clock.now_ms()
        epoch = model.epoch_of(producer_id) + (1 if bumps_epoch else 0)
        marker = Marker(producer_id, epoch, coordinator_epoch=0, committed=commit)
        try:
            self.send_marker(marker, now_ms, bumps_epoch=bumps_epoch)
        except RequestError:
            raise
        except FlintError:
            return
        self._written()

    def send(self, batch: bytearray) -> None:
        send(self.model, self.partition, batch, self.clock.now_ms())

    def send_marker(self, marker: Marker, now_ms: int, *, bumps_epoch: bool) -> None:
        end_transaction(self.model, self.partition, marker, now_ms, bumps_epoch=bumps_epoch)

    def _written(self) -> None:
        """The log has got longer: a compaction that waits for its turn looks at it later."""
        if not all(task.done() for task in self.compactions):
            self._may_be_cleaned()

    def _batch(
        self,
        pairs: Sequence[tuple[bytes | None, bytes | None]],
        timestamp: int,
        producer_id: int,
        epoch: int,
        sequence: int,
        codec: Codec,
    ) -> bytearray:
        return bytearray(
            build_batch(
                [(key, value, timestamp, ()) for key, value in pairs],
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=producer_id in TRANSACTIONAL_PRODUCERS,
            )
        )

    def roll(self) -> None:
        if self.log.active.size:
            try:
                self.log.roll(self.clock.now_ms())
            except StorageError:
                pass

    def compact(self, *, forced: bool, wait: bool) -> None:
        self._may_be_cleaned()
        partition = self.partition

        async def compact() -> None:
            await self.cleaner.compact(partition, forced=forced)

        self.compactions.append(self.run(compact, wait=wait))

    def _may_be_cleaned(self) -> None:
        stable = self.model.stable(self.log.segments[0].base_offset)
        self.model.cleaned_below = max(self.model.cleaned_below, stable)

    def retain(self, *, wait: bool) -> None:
        model, log, now_ms = self.model, self.log, self.clock.now_ms()
        partition, is_alone = self.partition, wait and not asyncio.all_tasks(self.loop)
        before = self.read_all()

        async def work() -> None:
            done = await retain([partition], log_dir=self.folder, clock=self.clock, executor=self.executor)
            for one in done:
                if one.expired is not None:
                    self._started_at(model, one.expired.start_offset)

        self.run(work, wait=wait)
        if is_alone and log.config.retention_bytes < 0:
            young = now_ms - log.config.retention_ms
            for offset, told in before.items():
                kept = offset >= log.start_offset or told.timestamp < young
                assert kept, f"offset {offset} went before its time"

    def delete_records(self, share: float, *, wait: bool) -> None:
        model, log, partition = self.model, self.log, self.partition
        start = log.start_offset + int((log.high_watermark - log.start_offset) * share)

        async def work() -> None:
            await delete_records([(partition, start)], log_dir=self.folder, executor=self.executor)
            self._started_at(model, start)

        self.run(work, wait=wait)

    def _started_at(self, model: LogModel, start: int) -> None:
        """Somebody who waited for it was told that the log begins there."""
        if model is self.model:
            model.start_acknowledged = max(model.start_acknowledged, start)

    def checkpoint(self) -> None:
        self.executor.submit(self.folder.checkpoint, lambda _, error: None)

    def verify(self, *, wait: bool) -> None:
        partition = self.partition

        async def verify() -> None:
            await verify_log(partition, self.executor, lambda done, total: None)

        self.run(verify, wait=wait)

    def recreate(self) -> None:
        """The topic is deleted, whatever is under way, and another of its name is made."""
        model = self.model
        self.deleting |= {model.topic_id}
        self._topics += 1
        self.model = LogModel(bytes(15) + bytes([self._topics]), model.config, is_replica=self.is_replicated)
        self.partition.close()
        remove = self.folder.delete("t", 0)
        self._serve(self.folder.create(AssignedPartition("t", 0, self.model.topic_id, self.model.config)))
        if remove is not None:
            self.executor.submit(remove, lambda _, error: None)

    # ---- looking

    def begin_reading(self, share: float) -> None:
        """A client is being sent a range, slowly."""
        log = self.log
        offset = log.start_offset + int((log.end_offset - log.start_offset) * share)
        part = reader.read(log, offset, 300, Isolation.LOG_END, at_least_one=True)
        if part is not None:
            self.readings.append((part, part.read()))

    def look_up(self, age_ms: int) -> None:
        """A client asks for an offset by time; the answer comes from a thread."""
        model, log, timestamp = self.model, self.log, self.clock.now_ms() - age_ms
        generation = log.generation

        def done(found: TimestampOffset | None, error: BaseException | None) -> None:
            assert error is None or isinstance(error, FlintError), error
            if found is not None and log.generation == generation:
                told = model.records.get(found.offset) or model.markers[found.offset]
                assert told.timestamp == found.timestamp >= timestamp

        self.executor.submit(partial(offset_for_time, log, timestamp), done)

    def read_all(self) -> dict[int, Told]:
        return records_in(self.log, read_batches(self.model, self.log))

    def check(self, *, is_new: bool = False) -> None:
        learn(self.model, self.log)
        check(self.model, self.log, self._random, is_new=is_new, readings=self.readings)
