"""The local metadata store after power loss, kills, failing disks and damage (R1, R4, R5, R8).

Every step of a run may be the last: the disk is asked, before each change it makes, what would be found
after a power loss there, and each such find is opened, checked against what the run had seen, written to and
crashed again. The run itself goes on, so the state at every revision is known exactly.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import pytest

from flintmq.errors import MetadataStoreError, StorageError
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.store import (
    Lease,
    OutcomeUncertain,
    Put,
    RevisionCompacted,
    StoreChange,
    StoreItem,
    StoreUnavailable,
)
from flintmq.testing.simulation import (
    SimulatedDisk,
    SimulatedFile,
)
from support.metadata.store_on_disk import (
    State,
    everything,
    fresh_disk,
    simulate,
)

# -- seeded crashes


@dataclass
class Moment:
    """What a crash left, and what had been seen and asked for by then."""

    disk: SimulatedDisk
    seen: int
    asked: int


@dataclass
class Life:
    """One process on one disk, from its opening to its end, with every state it had."""

    random: Random
    states: dict[int, State]
    seen: int
    asked: list[dict[str, Put | None]]
    asked_at_birth: int
    uniform: bool
    """Whether all changes have one size, so that what is left of one may be taken for another."""
    unanswered_from: int = 0
    """The first that the life before asked for: only of those may one still turn up unannounced."""
    depth: int = 0
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked_from = len(self.asked)

    def live(self, disk: SimulatedDisk) -> None:
        chance = (0.25, 0.15, 0.0)[self.depth]

        def observe(operation: str, path: str) -> None:
            # Oftener where the most is at stake: written and not yet synced.
            if self.random.random() < (2 * chance if operation == "sync" else chance):
                found = disk.kill() if self.random.random() < 0.2 else disk.crash()
                self.moments.append(Moment(found, self.seen, len(self.asked)))

        disk.observer = observe
        try:
            simulate(disk, self._work, seed=self.random.getrandbits(32), snapshot_after_bytes=3000)
        except StorageError:
            pass  # the disk failed while the store was opened
        disk.observer = None
        for _ in range(2 if chance else 0):
            self.moments.append(Moment(disk.crash(), self.seen, len(self.asked)))
            self.moments.append(Moment(disk.kill(), self.seen, len(self.asked)))

    async def _work(self, store: LocalMetadataStore) -> None:
        await self._check(store)
        watching = asyncio.create_task(self._follow(store))
        try:
            await asyncio.gather(*(self._write(store) for _ in range(self.random.choice((1, 4)))))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _check(self, store: LocalMetadataStore) -> None:
        """What was found is a state that there was, not older than what was seen, and not of the future."""
        view = await store.get("")
        last = max(self.states)
        if view.revision > last:
            # Only an answer that never came may add to what the last life knew.
            try:
                async for change in store.watch("", after=last):
                    self._extend(change)
                    if change.revision == view.revision:
                        break
            except RevisionCompacted:
                pytest.fail("a snapshot has what nobody was told of")
        revision, expected = view.revision, self.states[view.revision]
        leased = {key for key, item in self.states[max(0, revision - 1)].items() if item.lease}
        if expected != view.items and leased:
            # The items of leases were dropped as this revision, in place of what the last life did in it.
            revision -= 1
            expected = {key: item for key, item in self.states[revision].items() if key not in leased}
        assert view.items == expected
        assert not any(item.lease for item in expected.values())
        assert view.revision >= self.seen, "what was seen is lost"
        assert all(int(item.value[:8]) < self.asked_at_birth for item in expected.values())
        self.states = {r: state for r, state in self.states.items() if r <= revision}
        self.states[view.revision] = dict(view.items)
        self.seen = view.revision

    def _extend(self, change: StoreChange) -> None:
        before = self.states[change.revision - 1]
        puts = {key: item for key, item in change.items.items() if item is not None}
        if puts:
            number = int(next(iter(puts.values())).value[:8])
            assert self.unanswered_from <= number < self.asked_at_birth, "what was gone came back"
            asked = self.asked[number]
            whole = {k: StoreItem(p.value, change.revision, p.lease) if p else None for k, p in asked.items()}
            assert change.items == {k: item for k, item in whole.items() if item or k in before}
        else:
            ended = {before[key].lease for key in change.items}
            living = {item.lease for item in before.values() if item.lease}
            assert len(ended) == 1 or ended == living, "one lease was revoked, or all ended with the process"
            assert set(change.items) == {key for key, item in before.items() if item.lease in ended}
            assert 0 not in ended
        self._learn(change)

    def _learn(self, change: StoreChange) -> None:
        state = dict(self.states[change.revision - 1])
        for key, item in change.items.items():
            if item is None:
                del state[key]
            else:
                state[key] = item
        self.states[change.revision] = state

    async def _follow(self, store: LocalMetadataStore) -> None:
        async for change in store.watch("", after=self.seen):
            self._learn(change)
            self.seen = max(self.seen, change.revision)

    async def _write(self, store: LocalMetadataStore) -> None:
        random = self.random
        leases: list[Lease] = []
        for _ in range((8, 2, 1)[self.depth]):
            try:
                if random.random() < 0.1 and not self.uniform:
                    leases.append(await store.lease(10))
                if leases and random.random() < 0.1:
                    await leases.pop().revoke()
                view = await store.get("")
                keys = random.sample(
                    [f"/key/{n}" for n in range(8)], 1 if self.uniform else random.randint(1, 4)
                )
                lease = leases[-1].id if leases and random.random() < 0.5 else 0
                value = b"%08d" % len(self.asked) + bytes(
                    random.choice((500,) if self.uniform else (0, 20, 700))
                )
                writes: dict[str, Put | None] = {key: Put(value, lease) for key in keys}
                if len(keys) > 1 and random.random() < 0.5:
                    writes[keys[-1]] = None
                expect = {keys[0]: item.revision if (item := view.items.get(keys[0])) else 0}
                self.asked.append(writes)
                outcome = await store.txn(expect if random.random() < 0.5 else {}, writes)
                assert outcome.revision >= view.revision
                self.seen = max(self.seen, outcome.revision)
            except MetadataStoreError:
                return


def explore(seed: int) -> int:
    """Live through one seed and every crash that it finds; how many there were."""
    random = Random(seed)
    uniform = random.random() < 0.3
    first = Life(random, {0: {}}, seen=0, asked=[], asked_at_birth=0, uniform=uniform)
    disk = fresh_disk(random.getrandbits(64))
    match random.choice(("none", "none", "write", "sync", "sync_dir", "space")):
        case "write":
            disk.fail("write", nth=random.randint(1, 30))
        case "sync":
            disk.fail("sync", nth=random.randint(1, 30))
        case "sync_dir":
            disk.fail("sync_dir", nth=random.randint(1, 8))
        case "space":
            disk.free_bytes = random.randint(100, 20_000)
    first.live(disk)
    crashes = 0
    lives = [first]
    while lives:
        life = lives.pop()
        for moment in life.moments:
            crashes += 1
            moment.disk.free_bytes = 1 << 30
            heir = Life(
                random,
                dict(life.states),
                seen=moment.seen,
                asked=list(life.asked),
                asked_at_birth=moment.asked,
                uniform=uniform,
                unanswered_from=life.asked_from,
                depth=life.depth + 1,
            )
            heir.live(moment.disk)
            assert heir.seen >= moment.seen
            lives.append(heir)
    return crashes


def explore_or_name_the_seed(seed: int) -> int:
    try:
        return explore(seed)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.parametrize("block", range(4))
def test_what_was_acknowledged_survives_every_crash_and_the_rest_is_whole_or_absent(block: int) -> None:
    crashes = sum(explore_or_name_the_seed(seed) for seed in range(block * 25, block * 25 + 25))
    assert crashes > 1000


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", range(2, 44))
def test_the_same_over_many_more_seeds(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        explore_or_name_the_seed(seed)


def test_a_disk_that_only_pretends_to_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFile, "sync", lambda self: None)
    with pytest.raises(AssertionError, match="seed"):
        sum(explore_or_name_the_seed(seed) for seed in range(20))


# -- a failing disk


def test_transactions_that_wait_share_one_sync_and_a_lone_one_costs_one() -> None:
    disk = fresh_disk(1)
    operations: list[str] = []

    async def scenario(store: LocalMetadataStore) -> None:
        disk.observer = lambda operation, path: operations.append(operation)
        await store.txn({}, {"/a": Put(b"")})
        assert operations == ["write", "sync"]
        await asyncio.gather(*(store.txn({}, {f"/{n}": Put(b"")}) for n in range(100)))
        assert operations == ["write", "sync"] * 2

    simulate(disk, scenario)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_ends_the_store(operation: Literal["write", "sync"]) -> None:
    disk = fresh_disk(2)
    fatal: list[BaseException] = []

    async def scenario(store: LocalMetadataStore) -> None:
        await store.txn({}, {"/safe": Put(b"1")})
        lease = await store.lease(5)
        disk.fail(operation)
        first = asyncio.create_task(store.txn({}, {"/lost": Put(b"2")}))
        late: list[asyncio.Future[Any]] = []
        disk.observer = lambda *_: late.append(asyncio.ensure_future(store.txn({}, {"/late": Put(b"3")})))
        with pytest.raises(OutcomeUncertain):
            await first
        disk.observer = None
        assert late
        for refused in (*late, store.txn({}, {}), store.get(""), store.lease(1)):
            with pytest.raises(StoreUnavailable):
                await refused
        with pytest.raises(StoreUnavailable):
            await anext(store.watch("", after=0))
        await lease.lost()
        await lease.revoke()
        await store.close()

    simulate(disk, scenario, on_fatal=fatal.append)
    assert [error.errno for error in fatal if isinstance(error, OSError)] == [errno.EIO]
    found = simulate(disk.kill(), everything)
    assert found["/safe"].value == b"1"
    assert "/late" not in found


def test_what_is_read_after_a_failed_sync_does_not_vanish_with_the_page_cache() -> None:
    disk = fresh_disk(3)

    async def fail(store: LocalMetadataStore) -> None:
        disk.fail("sync")
        with pytest.raises(OutcomeUncertain):
            await store.txn({}, {"/a": Put(bytes(3000))})

    simulate(disk, fail)
    disk = disk.kill()
    found = simulate(disk, everything)
    assert list(found) == ["/a"], "the page cache still has it"
    for _ in range(20):
        assert simulate(disk.crash(), everything) == found


def test_a_full_disk_ends_the_store_and_room_brings_back_all_that_was_acknowledged() -> None:
    disk = fresh_disk(4)
    acknowledged: list[str] = []

    async def fill(store: LocalMetadataStore) -> None:
        disk.free_bytes = 1000
        try:
            for n in range(100):
                await store.txn({}, {f"/{n:02}": Put(bytes(40))})
                acknowledged.append(f"/{n:02}")
        except OutcomeUncertain:
            return
        pytest.fail("the disk never became full")

    simulate(disk, fill)
    disk.free_bytes = 1 << 20
    assert acknowledged
    assert list(simulate(disk, everything)) == acknowledged


def test_a_disk_that_fails_at_the_opening_is_a_storage_error() -> None:
    disk = fresh_disk(5)
    disk.fail("sync")
    with pytest.raises(StorageError, match="data/metadata"):
        simulate(disk, everything)
