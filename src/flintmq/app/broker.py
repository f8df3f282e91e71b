"""A whole broker in one process: from settings to listening sockets, and back to a clean stop."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import resource
import time
from dataclasses import dataclass

from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.services import Services
from flintmq.cluster import keys
from flintmq.cluster.configs import Configs
from flintmq.cluster.image import Delta
from flintmq.cluster.local_store import LocalStore
from flintmq.cluster.metadata import Metadata
from flintmq.cluster.metadata_store import Put
from flintmq.cluster.partitions import Partitions
from flintmq.cluster.producer_ids import ProducerIds
from flintmq.cluster.topics import Topics
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock, SystemRandom
from flintmq.errors import ConfigurationError
from flintmq.model.uuids import encode_uuid
from flintmq.server.listening import Server
from flintmq.settings import Listener, Loaded
from flintmq.storage.folder import LogFolder
from flintmq.storage.log import Log
from flintmq.storage.recovery import Recovery

logger = logging.getLogger(__name__)

DRAIN_S = 5.0
_TICK_S = 1.0
_DESCRIPTORS_RESERVED = 256


@dataclass(frozen=True, slots=True)
class Started:
    """What there is to say once clients may connect."""

    listeners: list[Listener]
    cluster_id: str
    partitions: int
    recovered: list[tuple[Log, Recovery]]
    took_ms: float


class Broker:
    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._config = loaded.broker
        self._path = os.path.abspath(loaded.broker.log_dirs[0])
        self._lock: int | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._checkpointed_at = 0.0
        self._checkpointing = False
        self.failed: asyncio.Event = asyncio.Event()

    async def start(self) -> Started:
        began = time.monotonic()
        config = self._config
        self._loop = loop = asyncio.get_running_loop()
        clock, random, disk = SystemClock(), SystemRandom(), RealDisk()
        self._executor = executor = LoopExecutor(loop, config.background_threads)
        path = self._path
        self._lock = lock_folder(path)
        self._folder = LogFolder(
            path,
            disk=disk,
            clock=clock,
            executor=executor,
            descriptors=min(
                config.flint_segment_descriptors, raise_descriptor_limit() - _DESCRIPTORS_RESERVED
            ),
            threads=config.num_recovery_threads_per_data_dir,
        )
        self._folder.check_format()
        store = await LocalStore.open(
            f"{path}/metadata", disk=disk, clock=clock, timers=loop, executor=executor, on_fatal=self._fatal
        )
        self._metadata = metadata = Metadata(store, on_fatal=self._fatal)
        await metadata.start()
        await _ensure_cluster_id(metadata, random.bytes(16))
        configs = Configs(metadata.image, self._loaded.static, config.node_id)
        self._partitions = Partitions(
            node_id=config.node_id,
            metadata=metadata,
            configs=configs,
            folder=self._folder,
            clock=clock,
            timers=loop,
            executor=executor,
        )
        recovered = await self._partitions.load()
        services = Services(
            node_id=config.node_id,
            metadata=metadata,
            topics=Topics(metadata, configs, random, config.node_id),
            partitions=self._partitions,
            configs=configs,
            producer_ids=ProducerIds(metadata),
            sessions=FetchSessions(
                clock=clock, random=random, slots=config.max_incremental_fetch_session_cache_slots
            ),
            endpoints=Endpoints(
                node_id=config.node_id, rack=config.broker_rack, advertised=config.advertised_listeners
            ),
            clock=clock,
            timers=loop,
            executor=executor,
            disk=disk,
        )
        self._configs = configs
        metadata.subscribe(self._follow_log_level)
        self._dispatcher = Dispatcher(services)
        self._server = Server(
            loop=loop, dispatcher=self._dispatcher, executor=executor, config=lambda: configs.broker
        )
        await self._server.start()
        self._schedule()
        # What lives until now lives as long as the broker: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        return Started(
            self._server.bound,
            metadata.image.cluster_id,
            len(self._partitions),
            recovered,
            (time.monotonic() - began) * 1000,
        )

    async def stop(self) -> None:
        """Drain, flush, and leave the promise of a clean stop."""
        if self._tick is not None:
            self._tick.cancel()
        await self._server.stop(DRAIN_S)
        await self._dispatcher.drain()
        await self._partitions.close()
        await self._metadata.close()
        self._executor.close()
        if self._lock is not None:
            os.close(self._lock)

    def _follow_log_level(self, delta: Delta) -> None:
        """ORDER: after the partitions' subscription, which brings the configuration up to date."""
        if delta.broker_configs:
            logging.getLogger().setLevel(self._configs.broker.flint_log_level)

    def _fatal(self, error: BaseException) -> None:
        logger.critical("the metadata journal cannot be written, stopping: %s", error)
        self.failed.set()

    # ---- housekeeping

    def _schedule(self) -> None:
        self._tick = self._loop.call_later(_TICK_S, self._housekeeping)

    def _housekeeping(self) -> None:
        self._schedule()  # first: whatever fails below is tried again
        self._partitions.tick()
        now = self._loop.time()
        due_s = self._configs.broker.log_flush_offset_checkpoint_interval_ms / 1000
        if not self._checkpointing and now - self._checkpointed_at >= due_s:
            self._checkpointed_at, self._checkpointing = now, True
            self._executor.submit(self._folder.checkpoint, self._checkpoint_written)

    def _checkpoint_written(self, _: None, error: BaseException | None) -> None:
        self._checkpointing = False
        if error is not None:
            # An older checkpoint only means a longer scan after a crash.
            logger.error("the checkpoints could not be written: %s", error)


async def _ensure_cluster_id(metadata: Metadata, random: bytes) -> None:
    if not metadata.image.cluster_id:
        value = keys.ClusterValue(id=encode_uuid(random))
        await metadata.txn({keys.CLUSTER: 0}, {keys.CLUSTER: Put(keys.encode(value))})


def lock_folder(path: str) -> int:
    """Hold the folder for as long as the descriptor is open: two brokers on one folder would ruin it."""
    os.makedirs(path, exist_ok=True)
    fd = os.open(f"{path}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise ConfigurationError(
            f"{path} is in use by another broker. Stop it, or choose another folder with --data-dir."
        ) from None
    return fd


def raise_descriptor_limit() -> int:
    """As many descriptors as the system allows; how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass
    return soft
