"""The core of a broker, from its effects and a metadata store to the dispatcher: everything but sockets.

    core = await assemble(loaded, effects, open_store, data_dir="data", descriptors=64)
    await core.start()
    …
    await core.stop()

The real broker and simulated ones are assembled by the same code. It must not touch the world but through `Effects`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from flintmq.app.authentication import BrokerAuthentication
from flintmq.app.authorization import AuthorizationSource
from flintmq.app.cluster_identity import ensure_cluster_id
from flintmq.app.compaction_process import CompactionProcess
from flintmq.app.quotas import BrokerQuotas
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.services import Services
from flintmq.coordinator.groups.coordinator import GroupCoordinator
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.marker_sender import MARKERS_PER_TURN
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.effects import Effects, Timer
from flintmq.metadata.client_quotas import ClientQuotas
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.image import STANDALONE_EPOCH, ImageDelta
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.scram_credentials import ScramCredentials
from flintmq.metadata.store import MetadataStore
from flintmq.metadata.topics import Topics
from flintmq.metrics import Counters
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.scheduler import MaintenanceScheduler, TaskLimits
from flintmq.security.audit import AuditLog
from flintmq.settings import LoadedSettings
from flintmq.settings.references import resolve_all
from flintmq.storage.log import Log
from flintmq.storage.log_dir import LogDir
from flintmq.storage.recovery.log_loader import RecoveryReport

if TYPE_CHECKING:
    from flintmq.app.broker_cluster import BrokerCluster

logger = logging.getLogger(__name__)

_TICK_S: Final = 1.0


async def assemble(
    loaded: LoadedSettings,
    effects: Effects,
    open_store: Callable[[], Awaitable[MetadataStore]],
    *,
    data_dir: str,
    descriptors: int,
    counters: Counters | None = None,
    audit: AuditLog | None = None,
    on_fatal: Callable[[BaseException], object] = lambda error: None,
    task_limits: TaskLimits | None = None,
    markers_per_turn: int = MARKERS_PER_TURN,
) -> BrokerCore:
    """Open the data directory and the metadata; `start` of what is returned opens the logs.

    `on_fatal` is called if the metadata can no longer be followed, or if the disk of a broker of a cluster fails: the
    broker must stop.
    """
    counters = counters or Counters()
    log_dir = LogDir(
        data_dir,
        disk=effects.disk,
        clock=effects.clock,
        executor=effects.executor,
        descriptors=descriptors,
        threads=loaded.broker.num_recovery_threads_per_data_dir,
        counters=counters.logs,
        replicated=effects.network is not None,
    )
    # ORDER: the format is checked BEFORE anything else in the directory is touched, a local store among it.
    log_dir.check_format()
    metadata = ClusterMetadata(await open_store(), on_fatal=on_fatal, is_standalone=effects.network is None)
    await metadata.start()
    await ensure_cluster_id(metadata, effects.random.bytes(16))
    return BrokerCore(
        loaded,
        effects,
        log_dir=log_dir,
        metadata=metadata,
        counters=counters,
        audit=audit,
        task_limits=task_limits,
        markers_per_turn=markers_per_turn,
        on_fatal=on_fatal,
    )


class BrokerCore:
    """A broker without sockets. Made by `assemble`; most of it exists from `start` on."""

    authentication: BrokerAuthentication
    partitions: LocalPartitions
    maintenance: MaintenanceScheduler
    groups: GroupCoordinator
    markers: MarkerWriter
    transactions: TransactionCoordinator
    endpoints: Endpoints
    services: Services
    dispatcher: Dispatcher

    def __init__(
        self,
        loaded: LoadedSettings,
        effects: Effects,
        *,
        log_dir: LogDir,
        metadata: ClusterMetadata,
        counters: Counters,
        audit: AuditLog | None,
        task_limits: TaskLimits | None,
        markers_per_turn: int,
        on_fatal: Callable[[BaseException], object],
    ) -> None:
        self._loaded = loaded
        self._config = config = loaded.broker
        self._effects = effects
        self._audit = audit
        self._task_limits = task_limits
        self._markers_per_turn = markers_per_turn
        self._tick: Timer | None = None
        self._checkpointed_at = 0.0
        self._checkpointing = False
        self.log_dir = log_dir
        self.metadata = metadata
        self.counters = counters
        self.configs = Configs(metadata.image, loaded.static, config.node_id)
        self.cluster: BrokerCluster | None = None
        """None on a standalone broker."""
        if effects.network is not None:
            # Only here: a single broker starts without the modules of a cluster.
            from flintmq.app.broker_cluster import BrokerCluster

            self.cluster = BrokerCluster(
                effects,
                metadata,
                self.configs,
                node_id=config.node_id,
                data_dir=log_dir.path,
                on_fatal=on_fatal,
            )
        self.topics = Topics(
            metadata,
            self.configs,
            effects.random,
            config.node_id,
            placement=None if self.cluster is None else self.cluster.placement,
            broker_epoch=self._broker_epoch,
        )
        self.producer_ids = ProducerIds(
            metadata, token="" if effects.network is None else effects.random.bytes(8).hex()
        )
        self.quotas = BrokerQuotas(lambda: self.configs.broker, metadata, effects.clock, counters.quotas)
        self.authorization = AuthorizationSource(effects.executor)
        self.on_tick: Callable[[], object] = lambda: None
        """Called after each round of housekeeping."""

    async def start(
        self, on_loading: Callable[[], object] = lambda: None
    ) -> list[tuple[Log, RecoveryReport]]:
        """Open all logs and start everything that serves them; `on_loading` is called before the first is opened.

        A broker of a cluster leads nothing before `cluster.join`.
        """
        await self._create_authentication()
        recovered = await self._open_partitions(on_loading)
        self._create_maintenance()
        self._start_groups()
        # ORDER: after the groups, some of whose offsets may wait for the ends of transactions.
        self._start_transactions()
        if self.cluster is not None:
            # ORDER: after the coordinators, which must be closed before a log is truncated.
            self.cluster.start(self.partitions, self.log_dir, self.maintenance.cleaner, recovered)
        self.services = self._create_services()
        # ORDER: after the partitions' subscription, which brings the configuration up to date.
        self.metadata.subscribe(self._settings_changed)
        self.dispatcher = Dispatcher(self.services)
        return recovered

    # ---- the steps of a start, in their order

    async def _create_authentication(self) -> None:
        """ORDER: before anything that may take long, so that a wrong setting is reported at once."""
        effects = self._effects
        self.authentication = await BrokerAuthentication.create(
            lambda: self.configs.broker,
            self.metadata,
            clock=effects.clock,
            random=effects.random,
            executor=effects.executor,
            counters=self.counters.authentications,
        )

    async def _open_partitions(self, on_loading: Callable[[], object]) -> list[tuple[Log, RecoveryReport]]:
        self.partitions = LocalPartitions(
            node_id=self._config.node_id,
            metadata=self.metadata,
            configs=self.configs,
            log_dir=self.log_dir,
            clock=self._effects.clock,
            timers=self._effects.timers,
            executor=self._effects.executor,
            broker_epoch=self._broker_epoch,
        )
        on_loading()
        return await self.partitions.load()

    def _broker_epoch(self) -> int:
        return STANDALONE_EPOCH if self.cluster is None else self.cluster.broker_epoch

    def _create_maintenance(self) -> None:
        self.maintenance = MaintenanceScheduler(
            self.partitions,
            CompactionProcess(self._effects.subprocess),
            clock=self._effects.clock,
            executor=self._effects.executor,
            config=lambda: self.configs.broker,
            limits=self._task_limits,
            table_offsets=lambda: self.groups.table_offsets(),
        )

    def _start_groups(self) -> None:
        self.groups = GroupCoordinator(
            lambda: self.configs.broker,
            metadata=self.metadata,
            topics=self.topics,
            partitions=self.partitions,
            clock=self._effects.clock,
            timers=self._effects.timers,
            executor=self._effects.executor,
        )
        self.groups.start()

    def _start_transactions(self) -> None:
        cluster = self.cluster
        self.markers = MarkerWriter(
            self.partitions,
            self.groups,
            self._effects.clock,
            self.counters.transactions,
            remote=None if cluster is None else cluster.markers,
        )
        self.transactions = TransactionCoordinator(
            lambda: self.configs.broker,
            markers=self.markers,
            producer_ids=self.producer_ids,
            metadata=self.metadata,
            topics=self.topics,
            partitions=self.partitions,
            clock=self._effects.clock,
            timers=self._effects.timers,
            executor=self._effects.executor,
            markers_per_turn=self._markers_per_turn,
            remote=None if cluster is None else cluster.coordinators,
        )
        self.transactions.start()

    def _create_services(self) -> Services:
        config, effects = self._config, self._effects
        self.endpoints = Endpoints(
            node_id=config.node_id,
            rack=config.broker_rack,
            advertised=self.configs.broker.advertised_listeners,
            brokers=lambda: self.metadata.image.brokers,
        )
        authorizer = self.authorization.create(
            config, resolve_all(self._loaded.static), self.metadata, self.counters.denials, self._audit
        )
        return Services(
            node_id=config.node_id,
            metadata=self.metadata,
            topics=self.topics,
            partitions=self.partitions,
            maintenance=self.maintenance,
            groups=self.groups,
            transactions=self.transactions,
            markers=self.markers,
            configs=self.configs,
            producer_ids=self.producer_ids,
            sessions=FetchSessions(
                clock=effects.clock,
                random=effects.random,
                slots=config.max_incremental_fetch_session_cache_slots,
            ),
            endpoints=self.endpoints,
            sasl=self.authentication.sasl,
            scram_credentials=ScramCredentials(self.metadata),
            client_quotas=ClientQuotas(self.metadata),
            limited_clients=self.quotas.clients,
            tokens=self.authentication.tokens,
            clock=effects.clock,
            timers=effects.timers,
            random=effects.random,
            executor=effects.executor,
            disk=effects.disk,
            authorizer=authorizer,
            replication=None if self.cluster is None else self.cluster.replication,
            audit=self._audit,
            counters=self.counters,
        )

    # ---- running

    def apply_settings(self) -> None:
        """Take over settings that changed, or what they refer to."""
        self.endpoints.advertise(self.configs.broker.advertised_listeners)

    def _settings_changed(self, delta: ImageDelta) -> None:
        if delta.broker_configs:
            self.apply_settings()
        if delta.scram:
            self.authentication.users.changed()
        if delta.quotas:
            self.quotas.changed()

    def start_housekeeping(self) -> None:
        """Call `housekeep` once a second, until `stop_housekeeping`."""
        self._tick = self._effects.timers.call_later(_TICK_S, self._housekeeping)

    def stop_housekeeping(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _housekeeping(self) -> None:
        self.start_housekeeping()  # first: whatever fails below is tried again
        self.housekeep()

    def housekeep(self) -> None:
        """Begin everything that is due. Called once a second, and whenever a test has moved the clock."""
        self.partitions.tick()
        self.maintenance.tick()
        self.groups.tick()
        self.quotas.tick()
        self.authorization.tick()
        self.authentication.tick()
        if self._audit is not None:
            self._audit.tick()
        now = self._effects.clock.monotonic()
        due_s = self.configs.broker.log_flush_offset_checkpoint_interval_ms / 1000
        if not self._checkpointing and now - self._checkpointed_at >= due_s:
            self._checkpointed_at, self._checkpointing = now, True
            self._effects.executor.submit(self.log_dir.checkpoint, self._checkpoint_written)
        self.on_tick()

    def _checkpoint_written(self, _: None, error: BaseException | None) -> None:
        self._checkpointing = False
        if error is not None:
            # An older checkpoint only means a longer scan after a crash.
            logger.error("the checkpoints could not be written: %s", error)

    async def stop(self) -> None:
        """Finish requests, flush, and write the clean-shutdown marker. Nothing must be dispatched any more.

        A broker of a cluster calls `cluster.drain` before, while it still serves.
        """
        self.stop_housekeeping()
        await self.dispatcher.drain()
        if self.cluster is not None:
            await self.cluster.close()
        self.transactions.close()
        self.groups.close()
        # ORDER: nobody renames or removes files of a log any more BEFORE the logs are closed.
        await self.maintenance.close()
        await self.partitions.close()
        await self.authentication.tokens.close()
        await self.metadata.close()
