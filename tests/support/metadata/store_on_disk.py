"""A local metadata store on a simulated disk, opened in a simulated process of its own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, TypeVar

from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.store import StoreItem
from flintmq.testing.simulation import (
    SimulatedClock,
    SimulatedDisk,
    SimulatedExecutor,
    SimulatedLoop,
)

T = TypeVar("T")
State = dict[str, StoreItem]
FOLDER = "data/metadata"
JOURNAL = f"{FOLDER}/journal"
SNAPSHOT = f"{FOLDER}/snapshot"


def simulate(
    disk: SimulatedDisk,
    scenario: Callable[[LocalMetadataStore], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    snapshot_after_bytes: int = 1 << 20,
    on_fatal: Callable[[BaseException], object] | None = None,
) -> T:
    """Open the store on this disk in a process of its own and run the scenario; it dies without a close."""
    clock = SimulatedClock()

    async def main(loop: SimulatedLoop) -> T:
        store = await LocalMetadataStore.open(
            FOLDER,
            disk=disk,
            clock=clock,
            timers=loop,
            executor=SimulatedExecutor(loop, seed),
            on_fatal=on_fatal,
            snapshot_after_bytes=snapshot_after_bytes,
        )
        return await scenario(store)

    with closing(SimulatedLoop(clock)) as loop:
        return loop.run_until_complete(main(loop))


def fresh_disk(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.makedirs("data")
    disk.sync_dir("")
    return disk


async def everything(store: LocalMetadataStore) -> State:
    return dict((await store.get("")).items)
