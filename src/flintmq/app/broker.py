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

from flintmq.app.assembly import BrokerCore, assemble
from flintmq.app.audit_file import AuditFile, open_audit_log
from flintmq.app.http_access import HttpAccess
from flintmq.app.listener_changes import BrokerListeners, overridden_listeners
from flintmq.app.observability.health import Phase
from flintmq.app.observability.metrics_collector import MetricsSources
from flintmq.app.observability.telemetry import Telemetry
from flintmq.app.process import lock_directory, raise_descriptor_limit
from flintmq.broker.dispatch import Dispatcher
from flintmq.broker.request import ClientSession
from flintmq.broker.services import Services
from flintmq.effects import Clock, Disk, Effects
from flintmq.effects.real import LoopExecutor, RealDisk, SystemClock, SystemRandom
from flintmq.effects.subprocess import SystemSubprocess
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.local_store import LocalMetadataStore
from flintmq.metrics import Counters
from flintmq.security.audit import AuditLog
from flintmq.server.context import RequestDispatcher
from flintmq.server.listeners import Server
from flintmq.settings import Listener, LoadedSettings
from flintmq.settings.listeners import SecurityProtocol, protocols_of
from flintmq.settings.references import has_file_reference
from flintmq.settings.rest import rest_has_tls
from flintmq.storage.log import Log
from flintmq.storage.recovery.log_loader import RecoveryReport

logger = logging.getLogger(__name__)

DRAIN_S = 5.0
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
        self._core: BrokerCore | None = None
        self._lock: int | None = None
        self._certificate_due = 0.0
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
        self._core = core = await self._assemble()
        with overridden_listeners(core.configs.values, self._path):
            recovered = await self._start_core(core)
            self._grant_http_access(telemetry, core)
            self._follow_settings(core)
            await self._start_server(core)
        core.start_housekeeping()
        if self._owns_process:
            # What lives until now lives as long as the broker: the collector need not look at it again.
            gc.freeze()
        return StartupReport(
            self._server.bound,
            core.metadata.image.cluster_id,
            len(core.partitions),
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

    async def _assemble(self) -> BrokerCore:
        effects = Effects(
            clock=self._clock,
            timers=self._loop,
            random=SystemRandom(),
            disk=self._disk,
            executor=self._executor,
            subprocess=SystemSubprocess(),
        )
        return await assemble(
            self._loaded,
            effects,
            self._open_store,
            data_dir=self._path,
            descriptors=self._segment_descriptors(),
            counters=self._counters,
            audit=self._audit,
            on_fatal=self._fatal,
        )

    async def _open_store(self) -> LocalMetadataStore:
        return await LocalMetadataStore.open(
            f"{self._path}/metadata",
            disk=self._disk,
            clock=self._clock,
            timers=self._loop,
            executor=self._executor,
            on_fatal=self._fatal,
        )

    async def _start_core(self, core: BrokerCore) -> list[tuple[Log, RecoveryReport]]:
        sources, began = self._sources, time.monotonic()

        def loading() -> None:
            nonlocal began
            sources.partitions, sources.metadata = core.partitions, core.metadata
            sources.phase, began = Phase.RECOVERING, time.monotonic()

        recovered = await core.start(loading)
        sources.recovered([report for _, report in recovered], time.monotonic() - began)
        sources.maintenance, sources.transactions = core.maintenance, core.transactions
        sources.authorizer = core.authorization.standard
        return recovered

    def _grant_http_access(self, telemetry: Telemetry, core: BrokerCore) -> None:
        telemetry.access = HttpAccess(
            lambda: core.configs.broker,
            sasl=core.authentication.sasl,
            authorization=core.services.authorizer,
            mapping=telemetry.principal_mapping,
            audit=self._audit,
        )

    def _follow_settings(self, core: BrokerCore) -> None:
        """ORDER: after the core's subscription, which brings the configuration up to date."""
        core.metadata.subscribe(self._settings_changed)
        core.on_tick = self._refresh_due_certificate
        self._apply_settings()

    async def _start_server(self, core: BrokerCore) -> None:
        dispatcher, services = core.dispatcher, core.services
        self._server = Server(
            loop=self._loop,
            dispatcher=dispatcher if self._around is None else self._around(dispatcher, services),
            executor=self._executor,
            config=lambda: core.configs.broker,
            counters=self._counters.connections,
            turned_away_s=core.quotas.turned_away_s,
            on_handshake=self._handshaken,
        )
        await self._server.start()
        assert self._telemetry is not None
        core.configs.prepare = BrokerListeners(
            self._server, core.authentication, self._telemetry, lambda: self.on_listeners_changed()
        ).prepare
        sources = self._sources
        sources.server, sources.sessions, sources.phase = self._server, services.sessions, Phase.RUNNING

    # ---- running

    @property
    def _sources(self) -> MetricsSources:
        assert self._telemetry is not None
        return self._telemetry.parts

    @property
    def _running(self) -> BrokerCore:
        assert self._core is not None
        return self._core

    def progress(self) -> tuple[int, int]:
        """Return how many logs are open, and of how many. May be called from any thread."""
        core = self._core
        return (len(core.log_dir.logs), core.log_dir.assigned) if core is not None else (0, 0)

    @property
    def has_files(self) -> bool:
        """Whether settings name files that `reload` reads again."""
        config = self._running.configs.broker
        return (
            bool(config.flint_acl_file)
            or any(one.has_tls for one in protocols_of(config).values())
            or rest_has_tls(config)
            or any(has_file_reference(text) for text in self._loaded.static.values())
        )

    def reload(self) -> None:
        """Read certificates, an ACL file and the files that settings refer to again."""
        core = self._running
        core.authorization.reload()
        core.configs.refresh()
        core.apply_settings()
        self._apply_settings()
        self._refresh_certificates()

    async def stop(self) -> None:
        """Drain, flush, and write the clean-shutdown marker."""
        core = self._running
        core.stop_housekeeping()
        assert self._telemetry is not None
        self._sources.phase = Phase.STOPPING
        await self._server.stop(DRAIN_S)
        await core.stop()
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
        if delta.quotas:
            self._server.unthrottle(self._running.quotas.is_limited)

    def _apply_settings(self) -> None:
        config = self._sources.config = self._running.configs.broker
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

    def housekeep(self) -> None:
        """Begin everything that is due. Called whenever a test has moved the clock."""
        self._running.housekeep()

    def _refresh_due_certificate(self) -> None:
        now = self._loop.time()
        if self._telemetry is not None and now >= self._certificate_due:
            self._certificate_due = now + _CERTIFICATE_S
            self._telemetry.refresh_certificate()
