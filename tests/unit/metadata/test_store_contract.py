"""What every metadata store promises: the local one, on real and simulated disks, and that of a simulated cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.store import (
    LeaseLost,
    MetadataStore,
    Put,
    RevisionCompacted,
    StoreChange,
    StoreItem,
    StoreUnavailable,
    TransactionTooLarge,
    TxnOutcome,
)
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from flintmq.testing.simulation.wires import CLIENTS
from flintmq.testing.simulation.world import World

Open = Callable[[], Awaitable[MetadataStore]]
Run = Callable[[Callable[[Open], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["real disk", "simulated disk", "simulated cluster"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario, which opens the store as often as it likes; what it leaves open is closed."""
    stores: list[MetadataStore] = []

    async def scene(scenario: Callable[[Open], Coroutine[Any, Any, None]], open_store: Open) -> None:
        async def opened() -> MetadataStore:
            store = await open_store()
            stores.append(store)
            return store

        try:
            async with asyncio.timeout(30):
                await scenario(opened)
        finally:
            for store in stores:
                await store.close()

    def on_the_real_disk(scenario: Callable[[Open], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            executor = LoopExecutor(loop)
            try:
                await scene(
                    scenario,
                    lambda: LocalMetadataStore.open(
                        f"{tmp_path}/metadata",
                        disk=RealDisk(),
                        clock=SystemClock(),
                        timers=loop,
                        executor=executor,
                    ),
                )
            finally:
                executor.close()

        asyncio.run(main())

    def on_the_simulated_disk(scenario: Callable[[Open], Coroutine[Any, Any, None]]) -> None:
        clock, disk = SimulatedClock(), SimulatedDisk(seed=7)
        with closing(SimulatedLoop(clock)) as loop:
            executor = SimulatedExecutor(loop, seed=7)
            loop.run_until_complete(
                scene(
                    scenario,
                    lambda: LocalMetadataStore.open(
                        "data/metadata", disk=disk, clock=clock, timers=loop, executor=executor
                    ),
                )
            )

    def in_a_simulated_cluster(scenario: Callable[[Open], Coroutine[Any, Any, None]]) -> None:
        with World(seed=7, brokers=0) as world:

            async def open_session() -> MetadataStore:
                assert world.store is not None
                return world.store.open(world.clients, CLIENTS)

            world.run_until(world.clients.spawn(scene(scenario, open_session)))

    runs: dict[str, Run] = {
        "real disk": on_the_real_disk,
        "simulated disk": on_the_simulated_disk,
        "simulated cluster": in_a_simulated_cluster,
    }
    return runs[request.param]


async def take(changes: Any, count: int) -> list[StoreChange]:
    """The next `count` changes that are not mere progress."""
    taken: list[StoreChange] = []
    async for change in changes:
        if change.items:
            taken.append(change)
            if len(taken) == count:
                break
    return taken


def test_a_transaction_writes_all_its_keys_in_the_next_revision(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        before = (await store.get("/t/")).revision
        outcome = await store.txn({"/t/a": 0}, {"/t/b": Put(b"2"), "/t/a": Put(b"1"), "/u": Put(b"")})
        assert outcome == TxnOutcome(True, before + 1)
        view = await store.get("/t/")
        assert view.revision == before + 1
        assert list(view.items.items()) == [
            ("/t/a", StoreItem(b"1", before + 1)),
            ("/t/b", StoreItem(b"2", before + 1)),
        ]
        assert (await store.get("/u", stale=True)).items == {"/u": StoreItem(b"", before + 1)}

    run(scenario)


def test_a_failed_expectation_changes_nothing_and_tells_what_is_there(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        first = await store.txn({}, {"/a": Put(b"1")})
        second = await store.txn({}, {"/b": Put(b"2")})
        refused = await store.txn({"/a": 0, "/b": second.revision, "/c": 0}, {"/a": Put(b"9"), "/b": None})
        assert refused == TxnOutcome(
            False,
            second.revision,
            {"/a": StoreItem(b"1", first.revision), "/b": StoreItem(b"2", second.revision), "/c": None},
        )
        assert (await store.get("")).items == {
            "/a": StoreItem(b"1", first.revision),
            "/b": StoreItem(b"2", second.revision),
        }
        assert (await store.txn({"/a": first.revision}, {"/a": Put(b"3")})).committed
        assert not (await store.txn({"/a": first.revision}, {"/a": Put(b"4")})).committed
        assert not (await store.txn({"/gone": 1}, {"/a": Put(b"5")})).committed

    run(scenario)


def test_a_writer_that_expects_a_key_it_no_longer_owns_is_fenced(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        old = await store.txn({"/controller": 0}, {"/controller": Put(b"1")})
        new = await store.txn({"/controller": old.revision}, {"/controller": Put(b"2")})
        fenced = await store.txn({"/controller": old.revision}, {"/topics/x": Put(b"")})
        assert not fenced.committed
        assert (await store.txn({"/controller": new.revision}, {"/topics/x": Put(b"")})).committed

    run(scenario)


def test_what_changes_nothing_makes_no_revision(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        made = await store.txn({}, {"/a": Put(b"1")})
        assert await store.txn({"/a": made.revision}, {}) == TxnOutcome(True, made.revision)
        assert await store.txn({}, {"/none": None}) == TxnOutcome(True, made.revision)
        assert not (await store.txn({"/a": 0}, {"/a": None})).committed
        assert (await store.txn({}, {"/b": Put(b"2")})).revision == made.revision + 1
        same_value_again = await store.txn({}, {"/b": Put(b"2")})
        assert same_value_again.revision == made.revision + 2

    run(scenario)


def test_a_deleted_key_is_absent_and_can_be_made_again(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        made = await store.txn({}, {"/a": Put(b"1"), "/b": Put(b"1")})
        gone = await store.txn({"/a": made.revision}, {"/a": None})
        assert list((await store.get("")).items) == ["/b"]
        again = await store.txn({"/a": 0}, {"/a": Put(b"2")})
        assert again == TxnOutcome(True, gone.revision + 1)

    run(scenario)


def test_one_of_ten_racing_transactions_wins(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        before = (await store.get("")).revision
        outcomes = await asyncio.gather(
            *(store.txn({"/race": 0}, {"/race": Put(b"%d" % runner)}) for runner in range(10))
        )
        winners = [runner for runner, outcome in enumerate(outcomes) if outcome.committed]
        assert len(winners) == 1
        item = StoreItem(b"%d" % winners[0], before + 1)
        assert (await store.get("/race")).items == {"/race": item}
        assert all(o == TxnOutcome(False, before + 1, {"/race": item}) for o in outcomes if not o.committed)

    run(scenario)


def test_transactions_asked_for_together_are_decided_in_order(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        before = (await store.get("")).revision
        outcomes = await asyncio.gather(
            store.txn({"/a": 0}, {"/a": Put(b"1")}),
            store.txn({"/a": before + 1}, {"/a": None}),
            store.txn({"/a": 0}, {"/a": Put(b"3")}),
            store.txn({}, {"/none": None}),
        )
        assert [outcome.revision - before for outcome in outcomes] == [1, 2, 3, 3]
        assert (await store.get("")).items == {"/a": StoreItem(b"3", before + 3)}

    run(scenario)


def test_a_watch_sees_whole_revisions_in_order_without_gap_or_repeat(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        start = (await store.get("")).revision
        watching = asyncio.create_task(take(store.watch("/t/", after=start), 3))
        await store.txn({}, {"/t/b": Put(b"2"), "/t/a": Put(b"1"), "/u": Put(b"")})
        await asyncio.gather(
            store.txn({}, {"/u": Put(b"elsewhere")}),
            store.txn({}, {"/t/a": None, "/t/c": Put(b"3")}),
            store.txn({}, {"/t/c": Put(b"4")}),
        )
        expected = [
            StoreChange(start + 1, {"/t/a": StoreItem(b"1", start + 1), "/t/b": StoreItem(b"2", start + 1)}),
            StoreChange(start + 3, {"/t/a": None, "/t/c": StoreItem(b"3", start + 3)}),
            StoreChange(start + 4, {"/t/c": StoreItem(b"4", start + 4)}),
        ]
        assert await watching == expected
        assert await take(store.watch("/t/", after=start), 3) == expected
        assert await take(store.watch("/t/", after=start + 1), 2) == expected[1:]

    run(scenario)


def test_a_watch_reports_progress_where_nothing_under_its_prefix_changed(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        start = (await store.get("")).revision
        for value in (b"1", b"2"):
            await store.txn({}, {"/elsewhere": Put(value)})
        watch = store.watch("/t/", after=start)
        assert await anext(watch) == StoreChange(start + 2, {})
        await store.txn({}, {"/t/a": Put(b"")})
        assert await anext(watch) == StoreChange(start + 3, {"/t/a": StoreItem(b"", start + 3)})

    run(scenario)


def test_a_cancelled_wait_loses_no_change(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        start = (await store.get("")).revision
        watch = store.watch("", after=start)
        waiting = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        await store.txn({}, {"/a": Put(b"")})
        assert (await anext(watch)).revision == start + 1

    run(scenario)


def test_get_and_watch_together_build_the_same_image(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()

        async def write(writer: int) -> None:
            for round_ in range(10):
                doomed = f"/{writer}/{round_ - 3}"
                await store.txn({}, {f"/{writer}/{round_}": Put(b"%d" % round_), doomed: None})

        writers = [asyncio.create_task(write(writer)) for writer in range(4)]
        await writers[0]
        view = await store.get("")
        image: dict[str, StoreItem] = dict(view.items)
        await asyncio.gather(*writers)
        final = await store.get("")
        seen = view.revision
        watch = store.watch("", after=seen)
        while seen < final.revision:
            change = await anext(watch)
            assert change.revision == seen + 1
            seen = change.revision
            for key, item in change.items.items():
                if item is None:
                    del image[key]
                else:
                    image[key] = item
        assert image == final.items

    run(scenario)


def test_a_watch_from_a_forgotten_or_unknown_revision_is_compacted(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        start = (await store.get("")).revision
        slow = store.watch("", after=start)
        await store.txn({}, {"/a": Put(b"")})
        assert (await anext(slow)).revision == start + 1
        for _ in range(101):
            await asyncio.gather(*(store.txn({}, {"/a": Put(b"")}) for _ in range(10)))
        head = (await store.get("")).revision
        for lost in (slow, store.watch("", after=head - 1001), store.watch("", after=head + 1)):
            with pytest.raises(RevisionCompacted):
                await anext(lost)
        assert (await anext(store.watch("", after=head - 1000))).revision == head - 999

    run(scenario)


def test_a_revoked_lease_takes_its_items_in_one_revision(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        lease, other = await store.lease(5), await store.lease(5)
        assert lease.ttl >= 5
        assert lease.id != other.id
        lost = asyncio.create_task(lease.lost())
        made = await store.txn(
            {}, {"/x": Put(b"", lease.id), "/y": Put(b"", lease.id), "/o": Put(b"", other.id), "/z": Put(b"")}
        )
        await store.txn({}, {"/y": Put(b"now nobody's")})
        await store.txn({}, {"/w": Put(b"", lease.id)})
        assert (await store.get("/x")).items["/x"] == StoreItem(b"", made.revision, lease.id)
        assert not lost.done()
        await lease.revoke()
        await lease.revoke()
        await lost
        head = (await store.get("")).revision
        assert head == made.revision + 3
        assert await take(store.watch("", after=head - 1), 1) == [StoreChange(head, {"/w": None, "/x": None})]
        assert list((await store.get("")).items) == ["/o", "/y", "/z"]
        await store.txn({}, {"/o": None})
        await other.revoke()
        assert (await store.get("")).revision == head + 1, (
            "a lease without items is revoked without a revision"
        )

    run(scenario)


def test_a_write_under_a_lease_that_does_not_live_is_refused(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        lease = await store.lease(5)
        with pytest.raises(LeaseLost):
            await store.txn({}, {"/a": Put(b"", lease.id + 1000)})
        _, late = await asyncio.gather(
            lease.revoke(), store.txn({}, {"/a": Put(b"", lease.id)}), return_exceptions=True
        )
        assert isinstance(late, LeaseLost)
        assert not (await store.get("")).items

    run(scenario)


def test_a_lease_lives_on_until_it_is_revoked(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        lease = await store.lease(0.05)
        await store.txn({}, {"/a": Put(b"", lease.id)})
        first = lease.deadline()
        loop = asyncio.get_running_loop()
        passed: asyncio.Future[None] = loop.create_future()
        loop.call_later(0.1, passed.set_result, None)
        await passed
        assert lease.deadline() > first, "held, so renewed"
        assert list((await store.get("")).items) == ["/a"]
        await lease.revoke()
        assert lease.deadline() == lease.deadline(), "frozen once lost"

    run(scenario)


def test_leased_items_are_gone_after_a_restart_in_one_revision(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        lease = await store.lease(5)
        made = await store.txn({}, {"/a": Put(b"", lease.id), "/b": Put(b"", lease.id), "/c": Put(b"stays")})
        await store.close()
        await lease.lost()
        for _ in range(2):
            store = await open_store()
            view = await store.get("")
            assert view.revision == made.revision + 1
            assert view.items == {"/c": StoreItem(b"stays", made.revision)}
            with pytest.raises(LeaseLost):
                await store.txn({}, {"/a": Put(b"", lease.id)})
            assert (await anext(store.watch("", after=made.revision))).items == {"/a": None, "/b": None}
            await store.close()

    run(scenario)


def test_a_transaction_within_the_limits_is_taken_and_one_beyond_refused(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        many = {f"/{n}": Put(b"") for n in range(store.max_ops)}
        assert (await store.txn(dict.fromkeys(many, 0), many)).committed
        with pytest.raises(TransactionTooLarge):
            await store.txn({}, {**many, "/one": Put(b"")})
        with pytest.raises(TransactionTooLarge):
            await store.txn(dict.fromkeys([*many, "/one"], 0), {})
        assert (await store.txn({}, {"/big": Put(bytes(store.max_bytes - 4))})).committed
        before = await store.get("")
        with pytest.raises(TransactionTooLarge):
            await store.txn({}, {"/big": Put(bytes(store.max_bytes - 3))})
        assert await store.get("") == before

    run(scenario)


def test_a_reopened_store_goes_on_where_it_was(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        for n in range(20):
            await store.txn({}, {f"/k{n % 7}": Put(b"%d" % n), f"/k{(n + 3) % 7}": None})
        view = await store.get("")
        await store.close()
        store = await open_store()
        assert await store.get("") == view
        assert (await anext(store.watch("", after=view.revision - 1))).revision == view.revision
        assert (await store.txn({}, {"/new": Put("ключ".encode())})).revision == view.revision + 1

    run(scenario)


def test_a_closed_store_finishes_what_was_asked_and_refuses_the_rest(run: Run) -> None:
    async def scenario(open_store: Open) -> None:
        store = await open_store()
        lease = await store.lease(5)
        watching = asyncio.ensure_future(anext(store.watch("/never", after=(await store.get("")).revision)))
        asked = asyncio.create_task(store.txn({}, {"/a": Put(b"1")}))
        await asyncio.sleep(0)
        await store.close()
        assert asked.done()
        assert (await asked).committed
        await lease.lost()
        with pytest.raises(StoreUnavailable):
            await watching
        for refused in (
            store.get(""),
            store.txn({}, {}),
            store.lease(5),
            anext(store.watch("", after=0)),
        ):
            with pytest.raises(StoreUnavailable):
                await refused
        reopened = await open_store()
        assert (await reopened.get("")).items["/a"].value == b"1"

    run(scenario)
