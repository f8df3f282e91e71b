"""A data folder on a simulated disk, driven by a seed, with every crash it may meet.

A `Life` is one process: it opens the folder, checks what it finds against the models that the life before left,
and goes on with random work. Before each change of the disk the machine or the process may die; the disk found
then is kept as a `Moment` with the models so far, while the life itself goes on unharmed. Each moment is the
beginning of another life, which may be crashed again, while it recovers too.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from random import Random

from flintmq.errors import ErrorCode, FlintError, RequestError, StorageError
from flintmq.partitions.partition import Partition
from flintmq.partitions.record_deletion import delete_records
from flintmq.records.compression import Codec
from flintmq.settings import TopicConfig
from flintmq.storage.log import Log
from flintmq.storage.log_dir import AssignedPartition, LogDir
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.log.checks import PLENTY, check, learn
from support.log.client import retry, send
from support.log.model import LogModel
from support.wire.batches import produced

FOLDER = "data"
TOPICS = ("a", "b")
_EVERYTHING = 1 << 30
START_MS = 1_700_000_000_000


@dataclass(slots=True)
class Moment:
    """What a crash left, and what had happened by then."""

    disk: SimulatedDisk
    models: dict[str, LogModel]
    deleting: frozenset[bytes]
    clock_ms: int


class Producer:
    """A client's side of an idempotent producer."""

    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0

    def resume(self, model: LogModel) -> None:
        """Go on after what the log is known to hold."""
        mine = [w.header for w in model.batches if w.header.producer_id == self.id]
        if mine:
            self.epoch, self.sequence = mine[-1].producer_epoch, (mine[-1].last_sequence + 1) & 0x7FFFFFFF

    def fence(self) -> None:
        self.epoch += 1
        self.sequence = 0


def configs(random: Random) -> TopicConfig:
    """Small segments, so that rolling is frequent."""
    flush_messages, flush_ms = random.choice(((1, _EVERYTHING), (1, _EVERYTHING), (7, _EVERYTHING),
                                              (_EVERYTHING, 500), (_EVERYTHING, _EVERYTHING)))  # fmt: skip
    return TopicConfig(
        segment_bytes=random.choice((1200, 2500, 6000)),
        index_interval_bytes=random.choice((0, 300, 4096)),
        preallocate=random.random() < 0.2,
        flush_messages=flush_messages,
        flush_ms=flush_ms,
        segment_ms=random.choice((5_000, 10**9)),
    )


class Life:
    def __init__(
        self,
        random: Random,
        models: dict[str, LogModel],
        *,
        deleting: frozenset[bytes],
        depth: int,
        steps: int,
        uniform: bool,
    ) -> None:
        self.random = random
        self.uniform = uniform
        """Whether all batches have one size, so that what is left of one may be taken for another."""
        self.models = models
        self.deleting = deleting
        self.depth = depth
        self.steps = steps
        self.moments: list[Moment] = []
        self.partitions: dict[str, Partition] = {}
        self.chance = (0.12, 0.06, 0.0)[depth]
        self.is_over = False
        self.is_broken = False

    # ---- living

    def live(self, disk: SimulatedDisk, *, clock_ms: int = START_MS) -> None:
        self.disk = disk
        self.clock = SimulatedClock(clock_ms)
        disk.observer = lambda operation, path: self._perhaps_die()
        with closing(SimulatedLoop(self.clock)) as self.loop:
            self.executor = SimulatedExecutor(self.loop, self.random.getrandbits(32))
            try:
                self._open()
            except OSError:
                return  # a disk that fails at the opening: the process ends, the next one tries again
            for name, partition in self.partitions.items():
                if partition.log.offline is None:
                    check(self.models[name], partition.log, self.random, is_new=True)
            self.producers = {(name, id): Producer(id) for name in self.models for id in (1, 2)}
            for (name, _), producer in self.producers.items():
                producer.resume(self.models[name])
            for _ in range(self.steps):
                if not self.is_over:
                    self._step()
            if not (self.is_over or self.is_broken) and self.random.random() < 0.5:
                self._close()
            disk.observer = None
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_idle()

    def _close(self) -> None:
        """An orderly stop: after it nothing is lost any more, whatever happens."""
        self.loop.run_until_idle()
        self.folder.close()
        for name, partition in self.partitions.items():
            assert partition.log.offline is None
            self.models[name].promised = self.models[name].end
        if self.depth < 2:
            self._die(self.random.random() < 0.5)

    def _open(self) -> None:
        self.folder = LogDir(FOLDER, disk=self.disk, clock=self.clock, executor=self.executor, descriptors=8)
        self.folder.check_format()
        wanted = [
            AssignedPartition(name, 0, model.topic_id, model.config) for name, model in self.models.items()
        ]
        for log, _ in self.loop.run_until_complete(self.folder.load(wanted, deleting=self.deleting)):
            self._serve(log)
        for remove in self.folder.unfinished_deletions():
            remove()

    def _serve(self, log: Log) -> None:
        model = self.models[log.topic]
        model.leader_epoch += self.random.choice((0, 1))
        partition = Partition(log, clock=self.clock, timers=self.loop, executor=self.executor)
        partition.lead(node_id=0, leader_epoch=model.leader_epoch, replicas=[0], isr=[0])
        self.partitions[log.topic] = partition

    def _perhaps_die(self) -> None:
        if self.random.random() < self.chance:
            self._die(self.random.random() < 0.75)

    def _die(self, power_is_lost: bool) -> None:
        """Keep what would be found, were this the end."""
        for name, partition in self.partitions.items():
            learn(self.models[name], partition.log)
        models = {name: model.copy() for name, model in self.models.items()}
        if power_is_lost:
            for model in models.values():
                model.power_was_lost = True
        disk = self.disk.crash() if power_is_lost else self.disk.kill()
        disk.free_bytes = PLENTY
        self.moments.append(Moment(disk, models, self.deleting, self.clock.now_ms()))

    # ---- work

    def _step(self) -> None:
        name = self.random.choice(TOPICS)
        partition = self.partitions[name]
        chance = self.random.random()
        if chance < 0.55:
            self._append(name, partition)
        elif chance < 0.65:
            self._retry(name, partition)
        elif chance < 0.80:
            self.loop.run_until_idle()
        elif chance < 0.85:
            self.loop.advance(self.random.choice((0.2, 1.0, 3.0)))
            for each in self.partitions.values():
                each.flush_if_due(self.clock.now_ms())
        elif chance < 0.89:
            self.executor.submit(self.folder.checkpoint, lambda _, error: None)
        elif chance < 0.93:
            self._delete_records(name, partition)
        elif chance < 0.95:
            self.models[name].config = configs(self.random)
            partition.configure(self.models[name].config)
        elif chance < 0.96:
            self._recreate(name)
        elif chance < 0.97:
            self._break_something()
        else:
            # One step of the loop only, so that work in threads is seen half done.
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def _append(self, name: str, partition: Partition) -> None:
        random = self.random
        producer = None if random.random() < 0.3 else self.producers[name, random.choice((1, 2))]
        if producer is not None and random.random() < 0.03:
            producer.fence()
        count, sizes = (1, (200,)) if self.uniform else (random.choice((1, 1, 2, 5)), (1, 30, 200))
        values = [random.randbytes(random.choice(sizes)) for _ in range(count)]
        batch = produced(
            *values,
            timestamp=self.clock.now_ms() - random.choice((0, 0, 50, 4000)),
            codec=Codec.NONE if self.uniform else random.choice(list(Codec)),
            producer_id=producer.id if producer else -1,
            epoch=producer.epoch if producer else -1,
            sequence=producer.sequence if producer else -1,
        )
        try:
            send(self.models[name], partition, batch, self.clock.now_ms())
        except RequestError as error:
            # Only where the records it wrote last are gone may a producer be told so.
            if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or producer is None:
                raise
            known = [w for w in self.models[name].batches if w.header.producer_id == producer.id]
            assert not known or known[-1].end <= partition.log.segments[0].base_offset
            producer.fence()
            return
        except FlintError:
            return
        if producer is not None:
            producer.sequence = (producer.sequence + len(values)) & 0x7FFFFFFF

    def _retry(self, name: str, partition: Partition) -> None:
        log = partition.log
        mine = self.models[name].remembered(log.segments[0].base_offset)
        if mine and log.offline is None:
            retry(partition, self.random.choice(mine), self.clock.now_ms())

    def _delete_records(self, name: str, partition: Partition) -> None:
        model, log = self.models[name], partition.log
        if log.offline is not None or log.high_watermark <= log.start_offset:
            return
        start = self.random.randint(log.start_offset, log.high_watermark)
        model.start_asked = max(model.start_asked, start)

        async def delete() -> None:
            try:
                await delete_records([(partition, start)], log_dir=self.folder, executor=self.executor)
            except (OSError, StorageError):
                return
            model.start_acknowledged = max(model.start_acknowledged, start)

        task = self.loop.create_task(delete())
        if self.random.random() < 0.7:
            self.loop.run_until_complete(task)

    def _recreate(self, name: str) -> None:
        """Delete the topic and make another of the same name, as the metadata would have it."""
        old = self.models[name]
        self.deleting |= {old.topic_id}
        model = LogModel(self.random.randbytes(16), configs(self.random))
        # The metadata says so from here on, whatever has become of the folders.
        self.models[name] = model
        self.partitions.pop(name).close()
        remove = self.folder.delete(name, 0)
        for _ in range(self.random.randint(0, 3)):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        try:
            self._serve(self.folder.create(AssignedPartition(name, 0, model.topic_id, model.config)))
        except (OSError, StorageError):
            self.is_over = True
            return
        if remove is not None:
            self.executor.submit(remove, lambda _, error: None)
        for producer in (self.producers[name, 1], self.producers[name, 2]):
            producer.epoch = producer.sequence = 0

    def _break_something(self) -> None:
        if self.depth == 0:
            self.is_broken = True
            match self.random.choice(("write", "sync", "sync_dir", "space", "room")):
                case "write":
                    self.disk.fail("write", nth=self.random.randint(1, 10))
                case "sync":
                    self.disk.fail("sync", nth=self.random.randint(1, 10))
                case "sync_dir":
                    self.disk.fail("sync_dir", nth=self.random.randint(1, 5))
                case "space":
                    self.disk.free_bytes = self.random.randint(0, 3000)
                case _:
                    self.disk.free_bytes = PLENTY


def explore(seed: int, *, steps: int = 120) -> int:
    """Live through one seed and every crash that it finds; how many there were."""
    random = Random(seed)
    disk = SimulatedDisk(random.getrandbits(64))
    disk.sync_dir("")
    models = {name: LogModel(random.randbytes(16), configs(random)) for name in TOPICS}
    uniform = random.random() < 0.3
    lives = [Life(random, models, deleting=frozenset(), depth=0, steps=steps, uniform=uniform)]
    lives[0].live(disk)
    crashes = 0
    while lives:
        life = lives.pop()
        for moment in life.moments:
            crashes += 1
            heir = Life(
                random,
                moment.models,
                deleting=moment.deleting,
                depth=life.depth + 1,
                uniform=uniform,
                steps=random.choice((0, 4, 15)),
            )
            heir.live(moment.disk, clock_ms=moment.clock_ms)
            lives.append(heir)
    return crashes
