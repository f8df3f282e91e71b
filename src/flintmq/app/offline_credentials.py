"""SCRAM credentials of a broker that does not run: the first user of a new data directory, or a lost password."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flintmq.app.process import lock_directory
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.scram_credentials import ScramCredentials
from flintmq.storage.log_dir import LogDir

T = TypeVar("T")


def with_credentials(data_dir: str, work: Callable[[ScramCredentials], Awaitable[T]]) -> T:
    """Open the metadata in a data directory, which is created if need be, and run `work` on its credentials.

    ConfigurationError if a broker has the directory.
    """
    path = os.path.abspath(data_dir)
    lock = lock_directory(path)
    try:
        return asyncio.run(_run(path, work))
    finally:
        os.close(lock)


async def _run(path: str, work: Callable[[ScramCredentials], Awaitable[T]]) -> T:
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
            return await work(ScramCredentials(metadata))
        finally:
            await metadata.close()
    finally:
        executor.close()
