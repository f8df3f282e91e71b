"""The metadata store of a simulated cluster under faults. What it promises otherwise: tests/unit/metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from flintmq.metadata.store import (
    LeaseLost,
    OutcomeUncertain,
    Put,
    RevisionCompacted,
    StoreChange,
    StoreUnavailable,
)
from flintmq.testing.simulation.process import MachineClock, SimulatedProcess
from flintmq.testing.simulation.store import SimulatedStore, TxnFault
from flintmq.testing.simulation.store_session import SessionLease, StoreSession
from flintmq.testing.simulation.wires import STORE
from flintmq.testing.simulation.world import World

_MACHINES = ("one", "two")
_CUT = (("one", STORE), (STORE, "one"))


class Stage:
    """Two processes with a session each."""

    def __init__(self, world: World) -> None:
        self.world = world
        assert world.store is not None
        self.store: SimulatedStore = world.store
        self.processes = {
            name: SimulatedProcess(name, world.timeline, MachineClock(world.timeline)) for name in _MACHINES
        }
        for process in self.processes.values():
            world.add(process, None)
        self.one, self.two = (self.open(name) for name in _MACHINES)

    def open(self, name: str) -> StoreSession:
        return self.store.open(self.processes[name], name)

    def put(self, session: StoreSession, key: str, value: bytes, lease: int = 0) -> asyncio.Task[object]:
        return session.process.spawn(_put(session, key, value, lease))

    def failure(self, task: asyncio.Task[object]) -> BaseException | None:
        self.world.run_until_true(task.done, within_s=60)
        return task.exception()

    def lease(self, session: StoreSession, ttl: float) -> SessionLease:
        return self.world.run_until(session.process.spawn(session.lease(ttl)))


async def _put(session: StoreSession, key: str, value: bytes, lease: int) -> object:
    return await session.txn({}, {key: Put(value, lease)})


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, brokers=0) as world:
        yield Stage(world)


@pytest.mark.parametrize(
    ("fault", "error", "is_applied", "is_applied_later"),
    [
        (TxnFault.UNAVAILABLE, StoreUnavailable, False, False),
        (TxnFault.LOST, OutcomeUncertain, False, False),
        (TxnFault.APPLIED, OutcomeUncertain, True, True),
        (TxnFault.LATE, OutcomeUncertain, False, True),
    ],
)
def test_a_transaction_fails_in_every_way(
    stage: Stage, fault: TxnFault, error: type[Exception], is_applied: bool, is_applied_later: bool
) -> None:
    stage.store.fail_next("one", fault)
    assert isinstance(stage.failure(stage.put(stage.one, "/a", b"")), error)
    assert ("/a" in stage.store.items) == is_applied
    stage.world.run_for(5.0)
    assert ("/a" in stage.store.items) == is_applied_later
    assert stage.store.uncertain_count == (error is OutcomeUncertain)
    assert stage.failure(stage.put(stage.one, "/b", b"")) is None, "only one transaction fails"


def test_a_fault_meets_the_machine_that_it_is_for(stage: Stage) -> None:
    stage.store.fail_next("one", TxnFault.LOST)
    assert stage.failure(stage.put(stage.two, "/a", b"")) is None
    assert isinstance(stage.failure(stage.put(stage.one, "/a", b"")), OutcomeUncertain)


def test_a_late_transaction_is_decided_when_it_arrives(stage: Stage) -> None:
    async def expecting() -> object:
        return await stage.one.txn({"/a": 0}, {"/a": Put(b"late")})

    stage.store.fail_next("one", TxnFault.LATE)
    assert isinstance(stage.failure(stage.processes["one"].spawn(expecting())), OutcomeUncertain)
    assert stage.failure(stage.put(stage.two, "/a", b"first")) is None
    stage.world.run_for(5.0)
    assert stage.store.items["/a"].value == b"first"


def test_a_session_that_is_cut_off_learns_nothing_and_its_transaction_may_be_applied_late(
    stage: Stage,
) -> None:
    fates = set()
    for n in range(8):
        stage.world.wires.block(_CUT)
        task = stage.put(stage.one, f"/{n}", b"")
        assert isinstance(stage.failure(task), OutcomeUncertain)
        assert f"/{n}" not in stage.store.items
        stage.world.run_for(4.0)
        stage.world.wires.unblock(_CUT)
        stage.world.run_for(1.0)
        fates.add(f"/{n}" in stage.store.items)
    assert fates == {True, False}, "delivered after all, or given up with the connection"


def test_a_session_that_knows_that_it_is_cut_off_sends_nothing(stage: Stage) -> None:
    stage.world.wires.block(_CUT)
    first = stage.put(stage.one, "/first", b"")
    stage.world.run_for(1.2)
    began_s = stage.world.timeline.now_s
    assert isinstance(stage.failure(stage.put(stage.one, "/second", b"")), StoreUnavailable)
    assert stage.world.timeline.now_s - began_s < 0.1
    assert isinstance(stage.failure(first), OutcomeUncertain)
    stage.world.wires.unblock(_CUT)
    stage.world.run_for(1.0)
    assert "/second" not in stage.store.items


def test_a_read_without_a_response_changes_nothing_and_is_unavailable(stage: Stage) -> None:
    stage.world.wires.block([(STORE, "one")])
    assert isinstance(stage.failure(stage.processes["one"].spawn(stage.one.get(""))), StoreUnavailable)


def test_a_watch_that_was_cut_off_catches_up_without_gap_or_repeat(stage: Stage) -> None:
    seen: list[StoreChange] = []

    async def follow() -> None:
        async for change in stage.one.watch("/", after=0):
            seen.append(change)

    stage.processes["one"].spawn(follow())
    for n in range(12):
        if n in (3, 7):
            stage.world.wires.block(_CUT)
        if n in (6, 9):
            stage.world.wires.unblock(_CUT)
        stage.put(stage.two, f"/{n}", b"")
        stage.world.run_for(6.0)
    stage.world.run_for(20.0)
    assert [change.revision for change in seen] == list(range(1, 13))
    assert [key for change in seen for key in change.items] == [f"/{n}" for n in range(12)]


def test_a_watch_behind_a_compaction_is_told_so(stage: Stage) -> None:
    for n in range(3):
        assert stage.failure(stage.put(stage.two, f"/{n}", b"")) is None
    stage.store.compact()
    task = stage.processes["one"].spawn(stage.one.watch("/", after=1).__anext__())
    stage.world.run_until_true(task.done, within_s=5)
    assert isinstance(task.exception(), RevisionCompacted)


def test_a_restored_store_goes_back_and_its_watches_must_begin_again(stage: Stage) -> None:
    assert stage.failure(stage.put(stage.two, "/kept", b"")) is None
    backup = stage.store.backup()
    assert stage.failure(stage.put(stage.two, "/gone", b"")) is None
    task = stage.processes["one"].spawn(stage.one.watch("/", after=2).__anext__())
    stage.world.run_for(1.0)
    assert not task.done()
    stage.store.restore(backup)
    stage.world.run_until_true(task.done, within_s=0.1)
    assert isinstance(task.exception(), RevisionCompacted)
    assert list(stage.store.items) == ["/kept"]


# ---- leases


def test_a_lease_is_renewed_for_as_long_as_its_process_runs(stage: Stage) -> None:
    lease = stage.lease(stage.one, 3.0)
    assert stage.failure(stage.put(stage.one, "/a", b"", lease.id)) is None
    stage.world.run_for(60.0)
    assert "/a" in stage.store.items
    clock = stage.processes["one"].clock
    assert clock.monotonic() < lease.deadline() <= clock.monotonic() + 3.0


@pytest.mark.parametrize("how", ["paused", "cut off", "dead"])
def test_a_lease_expires_by_the_time_of_the_store(stage: Stage, how: str) -> None:
    lease = stage.lease(stage.one, 3.0)
    assert stage.failure(stage.put(stage.one, "/a", b"", lease.id)) is None
    process = stage.processes["one"]
    deadline_s = process.clock.world_time(lease.deadline())
    if how == "paused":
        process.is_paused = True
    elif how == "dead":
        process.abandon()
    else:
        stage.world.wires.block(_CUT)
    stage.world.run_until_true(lambda: "/a" not in stage.store.items, within_s=4)
    assert stage.world.timeline.now_s >= deadline_s, "the store is never ahead of what the process counts on"
    if how == "dead":
        return
    lost = process.spawn(lease.lost())
    process.is_paused = False
    if how == "cut off":
        stage.world.run_for(10.0)
        assert not lost.done(), "it has not been told"
        stage.world.wires.unblock(_CUT)
    stage.world.run_until(lost, within_s=3)
    assert isinstance(stage.failure(stage.put(stage.one, "/b", b"", lease.id)), LeaseLost)


def test_a_lease_may_be_lost_while_its_process_lives(stage: Stage) -> None:
    lease, other = stage.lease(stage.one, 3.0), stage.lease(stage.two, 3.0)
    assert stage.failure(stage.put(stage.one, "/a", b"", lease.id)) is None
    assert stage.failure(stage.put(stage.two, "/b", b"", other.id)) is None
    stage.store.expire_leases("one")
    assert list(stage.store.items) == ["/b"]
    stage.world.run_until(stage.processes["one"].spawn(lease.lost()), within_s=1.5)


def test_a_clock_that_runs_slowly_loses_its_lease(stage: Stage) -> None:
    lease = stage.lease(stage.one, 3.0)
    stage.processes["one"].clock.set_rate(0.2)
    stage.processes["one"].retime()
    stage.world.run_until(stage.processes["one"].spawn(lease.lost()), within_s=30)


def test_a_dead_process_asks_for_nothing_more(stage: Stage) -> None:
    process = stage.processes["one"]
    process.spawn(_put(stage.one, "/a", b"", 0))
    process.is_alive = False
    process.turn(5)
    stage.world.run_for(1.0)
    assert not stage.store.items
