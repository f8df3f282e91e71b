"""A history made in a simulated cluster: producers, transactions, readers, faults by a schedule, and the checker.

    report = run_history(seed, schedule, brokers=3)
    assert not report.anomalies

Each topic has one replica and is created on a broker of its own. Records are synced before they are acknowledged, so
that nothing that was acknowledged may be lost, whatever happens.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flintmq.errors import RequestError
from flintmq.records.record import Record as WireRecord
from flintmq.testing.simulation.client import (
    LogTruncated,
    OutcomeUnknown,
    PlainWorldProducer,
    WorldClient,
    WorldProducer,
    WorldReader,
)
from flintmq.testing.simulation.fault_injection import FaultInjection
from flintmq.testing.simulation.fault_schedule import Schedule, random_schedule, shrink
from flintmq.testing.simulation.transactional_client import TransactionalWorldProducer
from flintmq.testing.simulation.world import World, WorldStuck
from support.histories.checker import check
from support.histories.history import (
    UNKNOWN,
    Assign,
    End,
    FinalRead,
    GaveUp,
    History,
    Outcome,
    Place,
    Poll,
    Record,
    Recorder,
    Send,
)

SETTINGS = {
    "log.segment.bytes": "16384",
    "log.index.interval.bytes": "512",
    "log.flush.interval.messages": "1",
    "transaction.state.log.num.partitions": "3",
}
PATIENCE_S = 120.0
_PADDING_MAX = 60

Producer = WorldProducer | TransactionalWorldProducer | PlainWorldProducer


class WorldRecorder(Recorder):
    """Moments are those of the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def now(self) -> int:
        return int(self.world.timeline.now_s * 1e9)


@dataclass
class HistoryReport:
    seed: int
    schedule: Schedule
    anomalies: Sequence[object]
    history: History
    digest: str
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def acknowledged(self) -> int:
        return sum(isinstance(one, Send) and one.outcome is Outcome.OK for one in self.history)


class Workload:
    """Clients that work on these partitions until the world's time is `end_s`, and until enough is done."""

    def __init__(
        self,
        world: World,
        places: Sequence[Place],
        end_s: float,
        *,
        operations_min: int = 0,
        checks_epochs: bool = False,
    ) -> None:
        self.world = world
        self._places = places
        self._end_s = end_s
        self._operations_min = operations_min
        self._checks_epochs = checks_epochs
        self._values: Iterator[int] = itertools.count()
        self.recorder = WorldRecorder(world)

    async def run(self, *, writers: int, transactors: int, readers: int, plain: int = 0) -> None:
        """Half of the readers want committed records only."""
        await asyncio.gather(
            *(self._write(f"writer {index}") for index in range(writers)),
            *(self._write(f"plain writer {index}", PlainWorldProducer) for index in range(plain)),
            *(self._transact(f"transactor {index}") for index in range(transactors)),
            *(self._read(f"reader {index}", committed_only=index % 2 == 1) for index in range(readers)),
        )

    def is_over(self) -> bool:
        is_enough = len(self.recorder.history) >= self._operations_min
        return is_enough and self.world.timeline.now_s >= self._end_s

    async def _write(
        self, name: str, kind: Callable[[WorldClient], WorldProducer | PlainWorldProducer] = WorldProducer
    ) -> None:
        client = WorldClient(self.world, name, patience_s=PATIENCE_S)
        for instance in itertools.count(1):
            producer, process = kind(client), f"{name}#{instance}"
            while not self.is_over():
                place = client.random.choice(self._places)
                if not await self.send(client, producer, process, place):
                    break
                await asyncio.sleep(client.random.uniform(0.0, 0.1))
            else:
                return

    async def send(
        self,
        client: WorldClient,
        producer: Producer,
        process: str,
        place: Place,
        transaction: str | None = None,
        sources: Sequence[int] = (),
    ) -> bool:
        """Send a few values, or one for each source, in one batch; return whether the producer is still of use."""
        chosen: Sequence[int | None] = sources or [None] * client.random.randint(1, 4)
        sends = [
            self.recorder.begin(
                Send(
                    process=process,
                    place=place,
                    value=next(self._values),
                    transaction=transaction,
                    source=source,
                )
            )
            for source in chosen
        ]
        payloads = [b"%d " % send.value + b"." * client.random.randrange(_PADDING_MAX) for send in sends]
        try:
            offset = await producer.send(*place, payloads)
        except (OutcomeUnknown, RequestError) as error:
            self.recorder.note(GaveUp(process=process, why=str(error)))
            return False
        for index, send in enumerate(sends):
            send.offset = UNKNOWN if offset is None else offset + index
            self.recorder.end(send)
        return True

    async def _transact(self, name: str) -> None:
        client = WorldClient(self.world, name, patience_s=PATIENCE_S)
        producer = TransactionalWorldProducer(client, name)
        for instance in itertools.count(1):
            if not await self.open(producer):
                continue
            process = f"{name}#{instance}"
            for count in itertools.count(1):
                if self.is_over():
                    # Whatever was left open is ended, so that readers of committed records reach the end.
                    await producer.open()
                    return
                if not await self._transaction(client, producer, process, f"{process}.{count}"):
                    break
                await asyncio.sleep(client.random.uniform(0.0, 0.1))

    async def open(self, producer: TransactionalWorldProducer) -> bool:
        try:
            await producer.open()
        except (OutcomeUnknown, RequestError):
            return False
        return True

    async def _transaction(
        self, client: WorldClient, producer: TransactionalWorldProducer, process: str, name: str
    ) -> bool:
        """Return whether the producer is still of use."""
        for _ in range(client.random.randint(1, 4)):
            place = client.random.choice(self._places)
            if not await self.send(client, producer, process, place, name):
                return False
        commits = client.random.random() < 0.7
        end = self.recorder.begin(End(process=process, transaction=name, commits=commits))
        try:
            await producer.end(commits=commits)
        except (OutcomeUnknown, RequestError) as error:
            self.recorder.note(GaveUp(process=process, why=str(error)))
            return False
        self.recorder.end(end)
        return True

    async def _read(self, name: str, *, committed_only: bool) -> None:
        client = WorldClient(self.world, name, patience_s=PATIENCE_S)
        positions = dict.fromkeys(self._places, 0)
        self.recorder.note(Assign(process=name, positions=dict(positions), committed_only=committed_only))
        # Consumers of both kinds exist: with the epochs of leaders, and without.
        reader = WorldReader(
            client,
            positions,
            committed_only=committed_only,
            checks_epochs=self._checks_epochs and name != "reader 0",
        )
        while not self.is_over():
            for place in self._places:
                poll = self.recorder.begin(Poll(process=name))
                poll.records = [read_record(place, record) for record in await reader.poll(*place)]
                self.recorder.end(poll)

    async def read_all(self, *, committed_only: bool, places: Sequence[Place] | None = None) -> None:
        """Read everything that such a reader finds in the end."""
        client = WorldClient(self.world, "final reader", patience_s=PATIENCE_S)
        ends, records = {}, []
        for place in self._places if places is None else places:
            ends[place] = end = await client.end_offset(*place, committed_only=committed_only)
            reader = WorldReader(client, {place: 0}, committed_only=committed_only)
            while reader.positions[place] < end:
                records += [read_record(place, record) for record in await reader.poll(*place)]
        self.recorder.note(
            FinalRead(process="final reader", committed_only=committed_only, ends=ends, records=records)
        )


def read_record(place: Place, record: WireRecord) -> Record:
    assert record.value is not None
    return Record(place, record.offset, int(record.value.partition(b" ")[0]))


def run_history(
    seed: int,
    schedule: Schedule,
    *,
    brokers: int = 1,
    shared_store: bool = True,
    duration_s: float = 30.0,
    configs: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    on_world: Callable[[World], object] = lambda world: None,
) -> HistoryReport:
    """Let clients work while the faults happen, mend everything, read everything, and check the history."""
    with World(
        seed, brokers=brokers, settings={**SETTINGS, **(settings or {})}, shared_store=shared_store
    ) as world:
        on_world(world)
        world.start()
        admin = WorldClient(world, "admin")
        places = []
        for node_id in world.brokers:
            topic = f"topic-{node_id}"
            created = admin.create_topic(topic, partitions=2, configs=configs, on=node_id)
            world.run_until(world.clients.spawn(created))
            places += [(topic, 0), (topic, 1)]
        injection = FaultInjection(world)
        injection.schedule(schedule)
        workload = Workload(world, places, world.timeline.now_s + duration_s)
        # A transaction belongs to one broker, as long as coordinators do not find partitions of others.
        transactors = 2 if brokers == 1 else 0
        work = world.clients.spawn(workload.run(writers=2 + brokers, transactors=transactors, readers=2))
        world.run_for(duration_s)
        injection.mend()
        world.run_until(work)
        for committed_only in (False, True):
            world.run_until(world.clients.spawn(workload.read_all(committed_only=committed_only)))
        counts = Counter(world.counts)
        if world.store is not None:
            counts["uncertain"] = world.store.uncertain_count
        history = workload.recorder.history
        return HistoryReport(seed, schedule, check(history), history, world.trace.digest(), counts)


def explore(
    seed: int,
    *,
    brokers: int = 1,
    shared_store: bool = True,
    duration_s: float = 30.0,
    count: int = 6,
    run: Callable[..., HistoryReport] = run_history,
) -> HistoryReport:
    """Run a seed with random faults; AssertionError with the shrunk schedule if there are anomalies, or no end."""
    schedule = random_schedule(seed, brokers=list(range(1, brokers + 1)), duration_s=duration_s, count=count)
    return checked(
        seed,
        schedule,
        lambda faults: run(seed, faults, brokers=brokers, shared_store=shared_store, duration_s=duration_s),
    )


def checked(seed: int, schedule: Schedule, again: Callable[[Schedule], HistoryReport]) -> HistoryReport:
    """Run a schedule; AssertionError with a shrunk one if there are anomalies, or no end."""
    print(f"FLINT_SEED={seed}")

    def problems(faults: Schedule) -> list[str]:
        try:
            return [str(anomaly) for anomaly in again(faults).anomalies]
        except (WorldStuck, OutcomeUnknown, LogTruncated) as error:
            return [str(error)]

    try:
        report = again(schedule)
        found = [str(anomaly) for anomaly in report.anomalies]
    except (WorldStuck, OutcomeUnknown, LogTruncated) as error:
        found = [str(error)]
    if found:
        smaller = shrink(schedule, lambda faults: bool(problems(faults)))
        shown = "\n  ".join(problems(smaller)[:10])
        faults = "\n  ".join(f"{fault}," for fault in smaller)
        raise AssertionError(f"FLINT_SEED={seed}:\n  {shown}\nwith these faults:\n  {faults}")
    return report
