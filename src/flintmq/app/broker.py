"""A whole broker in one process: from settings to listening sockets, and back to a clean stop."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from flintmq.app.compaction_process import CompactionProcess
from flintmq.app.observability.health import Phase
from flintmq.app.observability.telemetry import Telemetry
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.services import Services
from flintmq.coordinator.groups.coordinator import GroupCoordinator
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.effects import Clock, Disk
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock, SystemRandom
from flintmq.errors import ConfigurationError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.store import Put
from flintmq.metadata.topics import Topics
from flintmq.metrics import Counters
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.scheduler import MaintenanceScheduler
from flintmq.records.uuids import encode_uuid
from flintmq.server.connection import Dispatch
from flintmq.server.listeners import Server
from flintmq.settings import Listener, LoadedSettings
from flintmq.storage.log import Log
from flintmq.storage.log_dir import LogDir
from flintmq.storage.recovery.log_loader import RecoveryReport

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
    recovered: list[tuple[Log, RecoveryReport]]
    took_ms: float
    http: str | None = None
    """Where metrics and health are told, if they are."""


class Broker:
    def __init__(
        self,
        loaded: LoadedSettings,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        around: Callable[[Dispatcher, Services], Dispatch] | None = None,
        owns_process: bool = True,
    ) -> None:
        """`around` may put something between the server and the dispatcher.

        A broker that does not own its process leaves the process's limits, collector and log level alone.
        """
        self._clock = clock or SystemClock()
        self._disk = disk or RealDisk()
        self._around = around
        self._owns_process = owns_process
        self._loaded = loaded
        self._config = loaded.broker
        self._path = os.path.abspath(loaded.broker.log_dirs[0])
        self._level = loaded.broker.flint_log_level
        self._telemetry: Telemetry | None = None
        self._folder: LogDir | None = None
        self._lock: int | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._checkpointed_at = 0.0
        self._checkpointing = False
        self.failed: asyncio.Event = asyncio.Event()

    async def start(self) -> Started:
        self._loop = asyncio.get_running_loop()
        self._executor = LoopExecutor(self._loop, self._config.background_threads)
        try:
            return await self._start()
        except BaseException:
            if self._telemetry is not None:
                await self._telemetry.stop()
            self._release()
            raise

    async def _start(self) -> Started:
        began = time.monotonic()
        config, loop, executor, path = self._config, self._loop, self._executor, self._path
        clock, random, disk = self._clock, SystemRandom(), self._disk
        self._lock = lock_folder(path)
        counters = Counters()
        self._telemetry = telemetry = Telemetry(
            self._loaded, path, counters=counters, clock=clock, disk=disk, executor=executor, loop=loop
        )
        parts = telemetry.parts
        # ORDER: before anything that may take long, so that whoever asks is told why it does.
        await telemetry.start(optional=not self._owns_process)
        folder = self._folder = LogDir(
            path,
            disk=disk,
            clock=clock,
            executor=executor,
            descriptors=self._segment_descriptors(),
            threads=config.num_recovery_threads_per_data_dir,
            counters=counters.logs,
        )
        folder.check_format()
        store = await LocalMetadataStore.open(
            f"{path}/metadata", disk=disk, clock=clock, timers=loop, executor=executor, on_fatal=self._fatal
        )
        self._metadata = metadata = ClusterMetadata(store, on_fatal=self._fatal)
        await metadata.start()
        await _ensure_cluster_id(metadata, random.bytes(16))
        configs = Configs(metadata.image, self._loaded.static, config.node_id)
        self._partitions = parts.partitions = LocalPartitions(
            node_id=config.node_id,
            metadata=metadata,
            configs=configs,
            folder=folder,
            clock=clock,
            timers=loop,
            executor=executor,
        )
        parts.metadata, parts.phase = metadata, Phase.RECOVERING
        recovering = time.monotonic()
        recovered = await self._partitions.load()
        parts.recovered([report for _, report in recovered], time.monotonic() - recovering)
        self._upkeep = parts.upkeep = MaintenanceScheduler(
            self._partitions,
            CompactionProcess(),
            clock=clock,
            executor=executor,
            config=lambda: configs.broker,
        )
        topics = Topics(metadata, configs, random, config.node_id)
        self._groups = GroupCoordinator(
            lambda: configs.broker,
            metadata=metadata,
            topics=topics,
            partitions=self._partitions,
            clock=clock,
            timers=loop,
            executor=executor,
        )
        self._groups.start()
        producer_ids = ProducerIds(metadata)
        markers = MarkerWriter(self._partitions, self._groups, clock, counters.transactions)
        self._transactions = parts.transactions = TransactionCoordinator(
            lambda: configs.broker,
            markers=markers,
            producer_ids=producer_ids,
            metadata=metadata,
            topics=topics,
            partitions=self._partitions,
            clock=clock,
            timers=loop,
            executor=executor,
        )
        # ORDER: after the groups, some of whose offsets may wait for the ends of transactions.
        self._transactions.start()
        services = Services(
            node_id=config.node_id,
            metadata=metadata,
            topics=topics,
            partitions=self._partitions,
            maintenance=self._upkeep,
            groups=self._groups,
            transactions=self._transactions,
            markers=markers,
            configs=configs,
            producer_ids=producer_ids,
            sessions=FetchSessions(
                clock=clock, random=random, slots=config.max_incremental_fetch_session_cache_slots
            ),
            endpoints=Endpoints(
                node_id=config.node_id, rack=config.broker_rack, advertised=config.advertised_listeners
            ),
            clock=clock,
            timers=loop,
            random=random,
            executor=executor,
            disk=disk,
            counters=counters,
        )
        self._configs = configs
        metadata.subscribe(self._follow_settings)
        self._apply_settings()
        self._dispatcher = dispatcher = Dispatcher(services)
        outer = dispatcher if self._around is None else self._around(dispatcher, services)
        self._server = Server(
            loop=loop,
            dispatcher=outer,
            executor=executor,
            config=lambda: configs.broker,
            counters=counters.connections,
        )
        await self._server.start()
        parts.server, parts.sessions, parts.phase = self._server, services.sessions, Phase.RUNNING
        self._schedule()
        if self._owns_process:
            # What lives until now lives as long as the broker: the collector need not look at it again.
            gc.freeze()
        return Started(
            self._server.bound,
            metadata.image.cluster_id,
            len(self._partitions),
            recovered,
            (time.monotonic() - began) * 1000,
            telemetry.url,
        )

    def progress(self) -> tuple[int, int]:
        """How many logs are open, and of how many. From any thread."""
        return (len(self._folder.logs), self._folder.assigned) if self._folder is not None else (0, 0)

    async def stop(self) -> None:
        """Drain, flush, and leave the promise of a clean stop."""
        if self._tick is not None:
            self._tick.cancel()
        assert self._telemetry is not None
        self._telemetry.parts.phase = Phase.STOPPING
        await self._server.stop(DRAIN_S)
        await self._dispatcher.drain()
        self._transactions.close()
        self._groups.close()
        # ORDER: nobody renames or removes files of a log any more BEFORE the logs are closed.
        await self._upkeep.close()
        await self._partitions.close()
        await self._metadata.close()
        # ORDER: after all else, so that it can tell until then that the broker stops.
        await self._telemetry.stop()
        self._release()

    def _release(self) -> None:
        """What another broker on this folder, or the end of the process, would wait for."""
        self._executor.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _segment_descriptors(self) -> int:
        """As many as configured, as far as the process may have them beside those for all else."""
        wanted = self._config.flint_segment_descriptors
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = raise_descriptor_limit() if self._owns_process else soft
        if limit == resource.RLIM_INFINITY:
            return wanted
        return min(wanted, limit - min(_DESCRIPTORS_RESERVED, limit // 2))

    def _follow_settings(self, delta: ImageDelta) -> None:
        """ORDER: after the partitions' subscription, which brings the configuration up to date."""
        if delta.broker_configs:
            self._apply_settings()

    def _apply_settings(self) -> None:
        assert self._telemetry is not None
        config = self._telemetry.parts.config = self._configs.broker
        # Only when it changes: the root logger's level may have been set by other means meanwhile.
        if self._owns_process and config.flint_log_level != self._level:
            self._level = config.flint_log_level
            logging.getLogger().setLevel(self._level)

    def _fatal(self, error: BaseException) -> None:
        if self._telemetry is not None:
            self._telemetry.parts.metadata_failure = str(error) or type(error).__name__
        logger.critical("the metadata journal cannot be written, stopping: %s", error)
        self.failed.set()

    # ---- housekeeping

    def _schedule(self) -> None:
        self._tick = self._loop.call_later(_TICK_S, self._housekeeping)

    def _housekeeping(self) -> None:
        self._schedule()  # first: whatever fails below is tried again
        self.housekeep()

    def housekeep(self) -> None:
        """Everything whose time has come. Once a second, and whenever somebody has moved the clock."""
        self._partitions.tick()
        self._upkeep.tick()
        self._groups.tick()
        now = self._loop.time()
        due_s = self._configs.broker.log_flush_offset_checkpoint_interval_ms / 1000
        if not self._checkpointing and now - self._checkpointed_at >= due_s:
            self._checkpointed_at, self._checkpointing = now, True
            self._executor.submit(self._partitions.folder.checkpoint, self._checkpoint_written)

    def _checkpoint_written(self, _: None, error: BaseException | None) -> None:
        self._checkpointing = False
        if error is not None:
            # An older checkpoint only means a longer scan after a crash.
            logger.error("the checkpoints could not be written: %s", error)


async def _ensure_cluster_id(metadata: ClusterMetadata, random: bytes) -> None:
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
