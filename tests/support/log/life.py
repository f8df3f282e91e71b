"""One log through its whole life on a simulated disk, beside a plain model of what it must hold.

The model is in `support.log.model`, the comparison in `support.log.checks`. `LogLife` does one thing at a time, as a
test asks for it, with as much of it left under way as the test wants, and `check` compares. A crash is armed for the
nth change of the disk from now: what would be found then is kept, and the next life begins with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest

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
from flintmq.storage.segment import FileRange
from flintmq.storage.timestamp_lookup import TimestampOffset, offset_for_time
from flintmq.storage.visibility import Isolation
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.log.checks import PLENTY, check_committed, check_missing, check_stable, check_visible, read_all
from support.log.compactions import SimulatedCompactions
from support.log.model import Ended, Model, Told
from support.wire.batches import split

FOLDER = "data"
START_MS = 1_700_000_000_000
PRODUCERS = (1, 2)
TRANSACTIONAL_PRODUCERS = (3, 4)


class Found(NamedTuple):
    """What a crash left, and what was known by then."""

    disk: SimulatedDisk
    model: Model
    deleting: frozenset[bytes]


class LogLife:
    def __init__(self, config: TopicConfig, *, seed: int, dedupe_bytes: int = 1 << 20) -> None:
        self.disk = SimulatedDisk(seed)
        self.disk.sync_dir("")
        self.model = Model(bytes(15) + b"\x01", config)
        self.deleting: frozenset[bytes] = frozenset()
        self.readers: list[tuple[FileRange, bytes]] = []
        self._seed = seed
        self._topics = 1
        self._elapsed_ms = 0
        self._config = replace(BrokerConfig(), log_cleaner_dedupe_buffer_size=dedupe_bytes)
        self._fuse = 0
        self._power = False
        self._left: Found | None = None
        self._is_open = False
        self._countdown = 0
        self._checks = 0
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
        self.folder = LogDir(FOLDER, disk=self.disk, clock=self.clock, executor=self.executor, descriptors=8)
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
        self._serve(log)
        self.check(is_new=True)
        self._is_open = True
        for remove in self.folder.unfinished_deletions():
            remove()

    def _serve(self, log: Log) -> None:
        self.partition = Partition(
            log, leader_epoch=0, isr=[0], clock=self.clock, timers=self.loop, executor=self.executor
        )

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
            self._learn()
        model = self.model.copy()
        model.power_was_lost = model.power_was_lost or power
        disk = self.disk.crash() if power else self.disk.kill()
        disk.free_bytes = PLENTY
        return Found(disk, model, self.deleting)

    def _learn(self) -> None:
        """What anybody may know of the log at this moment."""
        model, log = self.model, self.log
        if log.topic_id == model.topic_id and log.offline is None:
            model.promised = max(model.promised, min(log.recovery_point, model.end))
            model.start_asked = max(model.start_asked, log.start_offset)
            model.first_dirty = max(model.first_dirty, log.first_dirty_offset)

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
        self.readers.clear()

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
            epoch, sequence = model.epoch_of(producer_id), mine[-1].last_sequence + 1 if mine else 0
        batch = self._batch(pairs, timestamp, producer_id, epoch, sequence, codec)
        try:
            appended = self._send(batch)
        except RequestError as error:
            # Only where the records it wrote last are deleted may a producer be told so.
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            assert model.last_of(producer_id)[-1].last_offset < log.segments[0].base_offset
            batch = self._batch(pairs, timestamp, producer_id, epoch + 1, 0, codec)
            appended = self._send(batch)
        except FlintError:
            return
        ((header, _),) = split(bytes(batch))
        assert appended == (model.end, header.last_offset), "a new batch was taken for a repetition"
        for number, (key, value) in enumerate(pairs):
            model.records[model.end + number] = Told(key, value, timestamp)
        model.end = header.last_offset + 1
        if producer_id >= 0:
            model.batches.append(header)
        self._written()

    def end_transaction(self, producer_id: int, *, commit: bool, bumps_epoch: bool) -> None:
        """Write a marker, whether there is anything to end or not."""
        model, now_ms = self.model, self.clock.now_ms()
        epoch = model.epoch_of(producer_id) + (1 if bumps_epoch else 0)
        marker = Marker(producer_id, epoch, coordinator_epoch=0, committed=commit)
        try:
            appended = self.partition.append_marker(marker, now_ms, bumps_epoch=bumps_epoch)
        except RequestError:
            raise
        except FlintError:
            return
        assert appended.base_offset == appended.last_offset == model.end
        model.markers[model.end] = Ended(marker, now_ms)
        model.end += 1
        self._written()

    def _written(self) -> None:
        """The log has got longer."""
        model = self.model
        if not all(task.done() for task in self.compactions):
            # One that waits for its turn looks at the log later.
            self._may_be_cleaned()
        if model.config.flush_messages == 1:
            end = model.end

            def acknowledged(failure: str | None) -> None:
                if failure is None and model is self.model:
                    model.promised = max(model.promised, end)

            if self.partition.is_visible(end - 1):
                acknowledged(None)
            else:
                self.partition.when_visible(end - 1, acknowledged)

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

    def _send(self, batch: bytearray) -> tuple[int, int]:
        now_ms = self.clock.now_ms()
        view = memoryview(batch)
        appended = self.partition.append(view, self.partition.check(view, now_ms), now_ms)
        return appended.base_offset, appended.last_offset

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
        before = read_all(log, model)

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

    def _started_at(self, model: Model, start: int) -> None:
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
        self.model = Model(bytes(15) + bytes([self._topics]), model.config)
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
            self.readers.append((part, part.read()))

    def look_up(self, age_ms: int) -> None:
        """A client asks for an offset by time; the answer comes from a thread."""
        model, log, timestamp = self.model, self.log, self.clock.now_ms() - age_ms

        def done(found: TimestampOffset | None, error: BaseException | None) -> None:
            assert error is None or isinstance(error, FlintError), error
            if found is not None:
                told = model.records.get(found.offset) or model.markers[found.offset]
                assert told.timestamp == found.timestamp >= timestamp

        self.executor.submit(partial(offset_for_time, log, timestamp), done)

    def retry(self, producer_id: int) -> None:
        """The last batch of a producer, once more: it is known, and nothing is written."""
        mine, log = self.model.last_of(producer_id), self.log
        if not mine or mine[-1].base_offset < log.segments[0].base_offset:
            return  # its last records are deleted, and it may be forgotten with them
        known = log.producers.check(mine[-1])
        assert known is not None, f"the batch at {mine[-1].base_offset} would be written twice"
        assert (known.first_offset, known.last_offset) == (mine[-1].base_offset, mine[-1].last_offset)
        for older in mine[:-1]:
            try:
                assert log.producers.check(older) is not None, "an older batch would be written twice"
            except RequestError:
                pass  # not remembered: refused, which is safe

    def check(self, *, is_new: bool = False) -> None:
        """The log holds what the model says, and a new process goes on from what it found."""
        model, log = self.model, self.log
        self._learn()
        found = read_all(log, model)
        if is_new:
            survivors = model.promised if model.power_was_lost else model.end
            assert log.end_offset >= survivors, f"the log ends at {log.end_offset}; {survivors} was safe"
            assert log.end_offset <= model.end
            model.cut(log.end_offset)
            assert model.start_acknowledged <= log.start_offset <= max(model.start_asked, 0)
            model.start_asked = model.start_acknowledged = log.start_offset
            model.promised = min(model.promised, model.end)
            if model.config.flush_messages == 1:
                model.promised = model.end
            model.power_was_lost = False
        assert log.end_offset == model.end
        assert not log.corrupt, f"sound records are called damaged: {log.corrupt}"
        for offset, told in found.items():
            assert told == model.records[offset], f"offset {offset} holds what nobody wrote"
        back = model.gone & found.keys()
        assert not back, f"offsets {sorted(back)} came back"
        check_missing(log, model, found)
        below = [told.key for offset, told in found.items() if offset < model.first_dirty]
        assert not model.config.compacts or len(set(below)) == len(below), "a key is twice in the clean part"
        for producer_id in PRODUCERS + TRANSACTIONAL_PRODUCERS:
            self.retry(producer_id)
        check_visible(log)
        check_stable(log, model)
        if model.markers:
            self._checks += 1
            check_committed(log, model, found, turn=self._checks)
        for part, data in self.readers:
            assert part.read() == data, "a reader was given other bytes than those it asked for"
        if log.start_offset:
            with pytest.raises(RequestError, match=ErrorCode.OFFSET_OUT_OF_RANGE.name):
                reader.read(log, log.start_offset - 1, 1, Isolation.LOG_END, at_least_one=True)
