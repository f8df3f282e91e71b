"""A whole broker in one process: from settings to listening sockets, and back to a clean stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from flintmq.app.audit_file import AuditFile, open_audit_log
from flintmq.app.authentication import BrokerAuthentication
from flintmq.app.authorization import AuthorizationSource
from flintmq.app.cluster_identity import ensure_cluster_id
from flintmq.app.compaction_process import CompactionProcess
from flintmq.app.http_access import HttpAccess
from flintmq.app.listener_changes import BrokerListeners, overridden_listeners
from flintmq.app.observability.health import Phase
from flintmq.app.observability.metrics_collector import MetricsSources
from flintmq.app.observability.telemetry import Telemetry
from flintmq.app.process import lock_directory, raise_descriptor_limit
from flintmq.app.quotas import BrokerQuotas
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.endpoints import Endpoints
from flintmq.broker.fetch_sessions import FetchSessions
from flintmq.broker.request import ClientSession
from flintmq.broker.services import Services
from flintmq.coordinator.groups.coordinator import GroupCoordinator
from flintmq.coordinator.transactions.coordinator import TransactionCoordinator
from flintmq.coordinator.transactions.marker_writer import MarkerWriter
from flintmq.effects import Clock, Disk
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock, SystemRandom
from flintmq.metadata.client_quotas import ClientQuotas
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.configs import Configs
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metadata.producer_ids import ProducerIds
from flintmq.metadata.scram_credentials import ScramCredentials
from flintmq.metadata.topics import Topics
from flintmq.metrics import Counters
from flintmq.partitions.local_partitions import LocalPartitions
from flintmq.partitions.maintenance.scheduler import MaintenanceScheduler
from flintmq.security.audit import AuditLog
from flintmq.server.context import RequestDispatcher
from flintmq.server.listeners import Server
from flintmq.settings import Listener, LoadedSettings
from flintmq.settings.listeners import SecurityProtocol, protocols_of
from flintmq.settings.references import has_file_reference, resolve_all
from flintmq.settings.rest import rest_has_tls
from flintmq.storage.log import Log
from flintmq.storage.log_dir import LogDir
from flintmq.storage.recovery.log_loader import RecoveryReport

logger = logging.getLogger(__name__)

DRAIN_S = 5.0
_TICK_S = 1.0
_CERTIFICATE_S = 5.0
_DESCRIPTORS_RESERVED = 256


@dataclass(frozen=True, slots=True)
class StartupReport:
    """What is reported once clients may connect."""

    listeners: list[Listener]
    cluster_id: str
    partitions: int
    recovered: list[tuple[Log, RecoveryReport]]
    took_ms: float
    http: str | None = None
    """Where metrics and health are served, if they are."""


class Broker:
    def __init__(
        self,
        loaded: LoadedSettings,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        around: Callable[[Dispatcher, Services], RequestDispatcher] | None = None,
        owns_process: bool = True,
    ) -> None:
        """`around` may put something between the server and the dispatcher.

        A broker that does not own its process leaves the process's limits, collector and log level alone.
        """
        self._clock = clock or SystemClock()
        self._random = SystemRandom()
        self._counters = Counters()
        self._disk = disk or RealDisk()
        self._around = around
        self._owns_process = owns_process
        self._loaded = loaded
        self._config = loaded.broker
        self._path = os.path.abspath(loaded.broker.log_dirs[0])
        self._level = loaded.broker.flint_log_level
        self._telemetry: Telemetry | None = None
        self._audit: AuditLog | None = None
        self._audit_file: AuditFile | None = None
        self._log_dir: LogDir | None = None
        self._lock: int | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._checkpointed_at = 0.0
        self._certificate_due = 0.0
        self._checkpointing = False
        self.failed: asyncio.Event = asyncio.Event()
        self.on_listeners_changed: Callable[[], object] = lambda: None
        """Called when listeners were opened or closed while the broker runs."""

    async def start(self) -> StartupReport:
        self._loop = asyncio.get_running_loop()
        self._executor = LoopExecutor(self._loop, self._config.background_threads)
        try:
            return await self._start()
        except BaseException:
            if self._telemetry is not None:
                await self._telemetry.stop()
            self._release()
            raise

    async def _start(self) -> StartupReport:
        began = time.monotonic()
        self._lock = lock_directory(self._path)
        # ORDER: before anything that may take long, so that health checks see why it does.
        telemetry = await self._start_telemetry()
        self._open_audit_log()
        self._open_log_dir()
        await self._open_metadata()
        with overridden_listeners(self._configs.values, self._path):
            await self._create_authentication()
            recovered = await self._open_partitions()
            self._create_maintenance()
            self._start_groups()
            # ORDER: after the groups, some of whose offsets may wait for the ends of transactions.
            self._start_transactions()
            services = self._create_services()
            self._follow_settings()
            await self._start_server(services)
        self._schedule_housekeeping()
        if self._owns_process:
            # What lives until now lives as long as the broker: the collector need not look at it again.
            gc.freeze()
        return StartupReport(
            self._server.bound,
            self._metadata.image.cluster_id,
            len(self._partitions),
            recovered,
            (time.monotonic() - began) * 1000,
            telemetry.url,
        )

    # ---- the steps of a start, in their order

    async def _start_telemetry(self) -> Telemetry:
        self._telemetry = telemetry = Telemetry(
            self._loaded,
            self._path,
            counters=self._counters,
            clock=self._clock,
            disk=self._disk,
            executor=self._executor,
            loop=self._loop,
        )
        await telemetry.start(optional=not self._owns_process)
        return telemetry

    def _open_audit_log(self) -> None:
        opened = open_audit_log(self._config, self._clock)
        if opened is not None:
            self._audit, self._audit_file = self._sources.audit = opened

    def _open_log_dir(self) -> None:
        self._log_dir = LogDir(
            self._path,
            disk=self._disk,
            clock=self._clock,
            executor=self._executor,
            descriptors=self._segment_descriptors(),
            threads=self._config.num_recovery_threads_per_data_dir,
            counters=self._counters.logs,
        )
        self._log_dir.check_format()

    async def _open_metadata(self) -> None:
        store = await LocalMetadataStore.open(
            f"{self._path}/metadata",
            disk=self._disk,
            clock=self._clock,
            timers=self._loop,
            executor=self._executor,
            on_fatal=self._fatal,
        )
        self._metadata = metadata = ClusterMetadata(store, on_fatal=self._fatal)
        await metadata.start()
        await ensure_cluster_id(metadata, self._random.bytes(16))
        self._configs = Configs(metadata.image, self._loaded.static, self._config.node_id)
        self._topics = Topics(metadata, self._configs, self._random, self._config.node_id)
        self._producer_ids = ProducerIds(metadata)
        self._quotas = BrokerQuotas(
            lambda: self._configs.broker, metadata, self._clock, self._counters.quotas
        )

    async def _create_authentication(self) -> None:
        """ORDER: before anything that may take long, so that a wrong setting is reported at once."""
        self._authentication = await BrokerAuthentication.create(
            lambda: self._configs.broker,
            self._metadata,
            clock=self._clock,
            random=self._random,
            executor=self._executor,
            counters=self._counters.authentications,
        )

    async def _open_partitions(self) -> list[tuple[Log, RecoveryReport]]:
        assert self._log_dir is not None
        parts = self._sources
        self._partitions = parts.partitions = LocalPartitions(
            node_id=self._config.node_id,
            metadata=self._metadata,
            configs=self._configs,
            log_dir=self._log_dir,
            clock=self._clock,
            timers=self._loop,
            executor=self._executor,
        )
        parts.metadata, parts.phase = self._metadata, Phase.RECOVERING
        began = time.monotonic()
        recovered = await self._partitions.load()
        parts.recovered([report for _, report in recovered], time.monotonic() - began)
        return recovered

    def _create_maintenance(self) -> None:
        self._maintenance = self._sources.maintenance = MaintenanceScheduler(
            self._partitions,
            CompactionProcess(),
            clock=self._clock,
            executor=self._executor,
            config=lambda: self._configs.broker,
            table_offsets=lambda: self._groups.table_offsets(),
        )

    def _start_groups(self) -> None:
        self._groups = GroupCoordinator(
            lambda: self._configs.broker,
            metadata=self._metadata,
            topics=self._topics,
            partitions=self._partitions,
            clock=self._clock,
            timers=self._loop,
            executor=self._executor,
        )
        self._groups.start()

    def _start_transactions(self) -> None:
        self._markers = MarkerWriter(self._partitions, self._groups, self._clock, self._counters.transactions)
        self._transactions = self._sources.transactions = TransactionCoordinator(
            lambda: self._configs.broker,
            markers=self._markers,
            producer_ids=self._producer_ids,
            metadata=self._metadata,
            topics=self._topics,
            partitions=self._partitions,
            clock=self._clock,
            timers=self._loop,
            executor=self._executor,
        )
        self._transactions.start()

    def _create_services(self) -> Services:
        config = self._config
        self._endpoints = Endpoints(
            node_id=config.node_id,
            rack=config.broker_rack,
            advertised=self._configs.broker.advertised_listeners,
        )
        self._authorization = AuthorizationSource(self._executor)
        authorizer = self._authorization.create(
            config,
            resolve_all(self._loaded.static),
            self._metadata,
            self._counters.denials,
            self._audit,
        )
        self._sources.authorizer = self._authorization.standard
        assert self._telemetry is not None
        self._telemetry.access = HttpAccess(
            lambda: self._configs.broker,
            sasl=self._authentication.sasl,
            authorization=authorizer,
            mapping=self._telemetry.principal_mapping,
            audit=self._audit,
        )
        return Services(
            node_id=config.node_id,
            metadata=self._metadata,
            topics=self._topics,
            partitions=self._partitions,
            maintenance=self._maintenance,
            groups=self._groups,
            transactions=self._transactions,
            markers=self._markers,
            configs=self._configs,
            producer_ids=self._producer_ids,
            sessions=FetchSessions(
                clock=self._clock,
                random=self._random,
                slots=config.max_incremental_fetch_session_cache_slots,
            ),
            endpoints=self._endpoints,
            sasl=self._authentication.sasl,
            scram_credentials=ScramCredentials(self._metadata),
            client_quotas=ClientQuotas(self._metadata),
            limited_clients=self._quotas.clients,
            tokens=self._authentication.tokens,
            clock=self._clock,
            timers=self._loop,
            random=self._random,
            executor=self._executor,
            disk=self._disk,
            authorizer=authorizer,
            audit=self._audit,
            counters=self._counters,
        )

    def _follow_settings(self) -> None:
        """ORDER: after the partitions' subscription, which brings the configuration up to date."""
        self._metadata.subscribe(self._settings_changed)
        self._apply_settings()

    async def _start_server(self, services: Services) -> None:
        self._dispatcher = dispatcher = Dispatcher(services)
        self._server = Server(
            loop=self._loop,
            dispatcher=dispatcher if self._around is None else self._around(dispatcher, services),
            executor=self._executor,
            config=lambda: self._configs.broker,
            counters=self._counters.connections,
            turned_away_s=self._quotas.turned_away_s,
            on_handshake=self._handshaken,
        )
        await self._server.start()
        assert self._telemetry is not None
        self._configs.prepare = BrokerListeners(
            self._server, self._authentication, self._telemetry, lambda: self.on_listeners_changed()
        ).prepare
        sources = self._sources
        sources.server, sources.sessions, sources.phase = self._server, services.sessions, Phase.RUNNING

    # ---- running

    @property
    def _sources(self) -> MetricsSources:
        assert self._telemetry is not None
        return self._telemetry.parts

    def progress(self) -> tuple[int, int]:
        """Return how many logs are open, and of how many. May be called from any thread."""
        return (len(self._log_dir.logs), self._log_dir.assigned) if self._log_dir is not None else (0, 0)

    @property
    def has_files(self) -> bool:
        """Whether settings name files that `reload` reads again."""
        config = self._configs.broker
        return (
            bool(config.flint_acl_file)
            or any(one.has_tls for one in protocols_of(config).values())
            or rest_has_tls(config)
            or any(has_file_reference(text) for text in self._loaded.static.values())
        )

    def reload(self) -> None:
        """Read certificates, an ACL file and the files that settings refer to again."""
        self._authorization.reload()
        self._configs.refresh()
        self._apply_settings()
        self._refresh_certificates()

    async def stop(self) -> None:
        """Drain, flush, and write the clean-shutdown marker."""
        if self._tick is not None:
            self._tick.cancel()
        assert self._telemetry is not None
        self._sources.phase = Phase.STOPPING
        await self._server.stop(DRAIN_S)
        await self._dispatcher.drain()
        self._transactions.close()
        self._groups.close()
        # ORDER: nobody renames or removes files of a log any more BEFORE the logs are closed.
        await self._maintenance.close()
        await self._partitions.close()
        await self._authentication.tokens.close()
        await self._metadata.close()
        # ORDER: after all else, so that until then health checks see that the broker stops.
        await self._telemetry.stop()
        self._release()

    def _release(self) -> None:
        """Release what another broker on this directory, or the end of the process, would wait for."""
        self._executor.close()
        if self._audit_file is not None:
            self._audit_file.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _segment_descriptors(self) -> int:
        """Return how many the logs may use: as configured, as far as the process may have them beside all others."""
        wanted = self._config.flint_segment_descriptors
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = raise_descriptor_limit() if self._owns_process else soft
        if limit == resource.RLIM_INFINITY:
            return wanted
        return min(wanted, limit - min(_DESCRIPTORS_RESERVED, limit // 2))

    def _refresh_certificates(self) -> None:
        assert self._telemetry is not None
        self._telemetry.refresh_certificate()
        self._server.refresh_certificates()

    def _settings_changed(self, delta: ImageDelta) -> None:
        if delta.broker_configs:
            self._apply_settings()
            self._refresh_certificates()
        if delta.scram:
            self._authentication.users.changed()
        if delta.quotas:
            self._quotas.changed()
            self._server.unthrottle(self._quotas.is_limited)

    def _apply_settings(self) -> None:
        config = self._sources.config = self._configs.broker
        self._endpoints.advertise(config.advertised_listeners)
        # Only when it changes: the root logger's level may have been set by other means meanwhile.
        if self._owns_process and config.flint_log_level != self._level:
            self._level = config.flint_log_level
            logging.getLogger().setLevel(self._level)

    def _handshaken(self, session: ClientSession, failure: str | None) -> None:
        """A client has shown its certificate, or its TLS handshake failed."""
        is_authentication = session.security_protocol == SecurityProtocol.SSL.value
        if is_authentication:
            counted = self._counters.authentications
            (counted.succeeded if failure is None else counted.failed)["SSL"] += 1
        if self._audit is not None and (is_authentication or failure is not None):
            self._audit.authentication(session, api="TLS", mechanism="SSL", failure=failure)

    def _fatal(self, error: BaseException) -> None:
        if self._telemetry is not None:
            self._sources.metadata_failure = str(error) or type(error).__name__
        logger.critical("the metadata journal cannot be written, stopping: %s", error)
        self.failed.set()

    # ---- housekeeping

    def _schedule_housekeeping(self) -> None:
        self._tick = self._loop.call_later(_TICK_S, self._housekeeping)

    def _housekeeping(self) -> None:
        self._schedule_housekeeping()  # first: whatever fails below is tried again
        self.housekeep()

    def housekeep(self) -> None:
        """Begin everything that is due. Called once a second, and whenever a test has moved the clock."""
        self._partitions.tick()
        self._maintenance.tick()
        self._groups.tick()
        self._quotas.tick()
        self._authorization.tick()
        self._authentication.tick()
        if self._audit is not None:
            self._audit.tick()
        now = self._loop.time()
        if self._telemetry is not None and now >= self._certificate_due:
            self._certificate_due = now + _CERTIFICATE_S
            self._telemetry.refresh_certificate()
        due_s = self._configs.broker.log_flush_offset_checkpoint_interval_ms / 1000
        if not self._checkpointing and now - self._checkpointed_at >= due_s:
            self._checkpointed_at, self._checkpointing = now, True
            self._executor.submit(self._partitions.log_dir.checkpoint, self._checkpoint_written)

    def _checkpoint_written(self, _: None, error: BaseException | None) -> None:
        self._checkpointing = False
        if error is not None:
            # An older checkpoint only means a longer scan after a crash.
            logger.error("the checkpoints could not be written: %s", error)
