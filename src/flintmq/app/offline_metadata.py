"""The metadata of a broker that does not run: its first users, or settings that keep it from starting."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from flintmq.app.process import lock_directory
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.scram_credentials import ScramCredentials
from flintmq.metadata.store import Put
from flintmq.storage.log_dir import LogDir

T = TypeVar("T")


def with_credentials(data_dir: str, work: Callable[[ScramCredentials], Awaitable[T]]) -> T:
    """Run `work` on the credentials in a data directory, which is created if need be.

    ConfigurationError if a broker has the directory.
    """
    return _with_metadata(data_dir, lambda metadata: work(ScramCredentials(metadata)))


def reset_broker_configs(data_dir: str, node_id: int, names: Sequence[str]) -> list[str]:
    """Remove dynamic settings of a broker; return those that it had. ConfigurationError if the broker runs."""

    async def reset(metadata: ClusterMetadata) -> list[str]:
        key, image = keys.broker_config(str(node_id)), metadata.image
        current = image.broker_configs.get(str(node_id), {})
        removed = [name for name in names if name in current]
        kept = {name: text for name, text in current.items() if name not in removed}
        if removed:
            put = Put(keys.encode(kept)) if kept else None
            await metadata.txn({key: image.config_revisions.get(key, 0)}, {key: put})
        return removed

    return _with_metadata(data_dir, reset)


def _with_metadata(data_dir: str, work: Callable[[ClusterMetadata], Awaitable[T]]) -> T:
    path = os.path.abspath(data_dir)
    lock = lock_directory(path)
    try:
        return asyncio.run(_run(path, work))
    finally:
        os.close(lock)


async def _run(path: str, work: Callable[[ClusterMetadata], Awaitable[T]]) -> T:
    loop = asyncio.get_running_loop()
    disk, clock, executor = RealDisk(), SystemClock(), LoopExecutor(loop, 1)
    try:
        LogDir(path, disk=disk, clock=clock, executor=executor, descriptors=1).check_format()
        store = await LocalMetadataStore.open(
            f"{path}/metadata", disk=disk, clock=clock, timers=loop, executor=executor
        )
        metadata = ClusterMetadata(store)
        await metadata.start()
        try:
            return await work(metadata)
        finally:
            await metadata.close()
    finally:
        executor.close()
