"""What a broker shows of itself over HTTP, from before its logs are open until after they are closed.

Invariant: it only looks. The broker sets what there is to be seen in `parts`; nothing here is needed for the
broker to work, and if the default port is taken the broker does without.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flintmq import KAFKA_VERSION, __version__
from flintmq.app.http_access import OPEN_PAGES, HttpAccess
from flintmq.app.observability.health import Condition, HealthReason, is_ready, reasons_against, status_of
from flintmq.app.observability.loop_delay import LoopDelay
from flintmq.app.observability.metrics_collector import MetricsCollector, MetricsSources
from flintmq.effects import Clock, Disk, Executor
from flintmq.http.request import HttpRequest, Page, plain_page
from flintmq.http.server import HttpPeer, HttpServer, PortTaken, json_page
from flintmq.metrics import CONTENT_TYPE, Counters
from flintmq.security.principal_mapping import PrincipalMapping
from flintmq.settings import BrokerConfig, LoadedSettings
from flintmq.settings.broker.rest import BASIC
from flintmq.settings.rest import REST_LISTENER, is_loopback, rest_has_tls, rest_is_restricted

if TYPE_CHECKING:
    from flintmq.server.tls.certificates import Certificates

logger = logging.getLogger(__name__)

OFF = -1


class Telemetry:
    def __init__(
        self,
        loaded: LoadedSettings,
        path: str,
        *,
        counters: Counters,
        clock: Clock,
        disk: Disk,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.parts = MetricsSources(config=loaded.broker, path=path, began=clock.monotonic())
        self._loaded = loaded
        self._clock = clock
        self._disk = disk
        self._executor = executor
        self._loop_delay = LoopDelay(timers=loop, clock=clock)
        self._collector = MetricsCollector(
            self.parts, counters, clock=clock, disk=disk, executor=executor, loop_delay=self._loop_delay
        )
        self._server: HttpServer | None = None
        self._certificates: Certificates | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._loop = loop
        self.access: HttpAccess | None = None
        """Decides about requests, as soon as users and ACLs are known."""

    @property
    def url(self) -> str | None:
        """Where it listens, or None if it does not."""
        return self._server.url if self._server is not None else None

    async def start(self, *, optional: bool = False) -> None:
        """Listen. ConfigurationError if that cannot be where it was asked for; `optional` only if it was."""
        config = self._loaded.broker
        asked_for = "flint.rest.port" in self._loaded.static
        if config.flint_rest_port == OFF or (optional and not asked_for):
            return
        server = HttpServer(
            {
                "/": self._overview,
                "/metrics": self._metrics,
                "/prometheus": self._metrics,
                "/health": self._ready,
                "/health/ready": self._ready,
                "/health/live": self._live,
                "/version": self._version,
            },
            guard=self._guard,
            tls=await self._load_certificate(),
        )
        try:
            await server.start(config.flint_rest_host, config.flint_rest_port)
        except PortTaken as error:
            if asked_for:
                raise
            logger.warning("no metrics and no health over HTTP: %s", error)
            return
        self._server = server
        self._loop_delay.start()
        if BASIC in config.flint_rest_authentication and not (
            rest_has_tls(config) or is_loopback(config.flint_rest_host)
        ):
            logger.warning(
                "the HTTP port receives passwords unencrypted; set flint.rest.security.protocol=SSL"
            )

    # ---- access

    async def _guard(self, request: HttpRequest, peer: HttpPeer) -> Page | None:
        if request.path in OPEN_PAGES or not rest_is_restricted(self.parts.config):
            return None
        if self.access is None:
            return plain_page(503, "the broker starts and does not know its users yet", ("Retry-After", "1"))
        return await self.access.admit(request, peer)

    async def _load_certificate(self) -> Callable[[], ssl.SSLContext] | None:
        if not rest_has_tls(self._loaded.broker):
            return None
        # Only here: a broker without TLS starts sooner.
        from flintmq.server.tls.certificates import Certificates

        self._certificates = certificates = self.parts.rest_certificates = Certificates(
            lambda: self.parts.config, self._executor.run, lambda _: [REST_LISTENER]
        )
        await certificates.load()
        return lambda: certificates.listeners[REST_LISTENER].context.ssl

    def principal_mapping(self) -> PrincipalMapping | None:
        """The rules for the names of client certificates; None without TLS."""
        if self._certificates is None:
            return None
        return self._certificates.listeners[REST_LISTENER].context.mapping

    async def check_settings(self, config: BrokerConfig) -> None:
        """Raise ConfigurationError if the HTTP port cannot be served with these settings."""
        if self._certificates is not None:
            await self._certificates.check(config)

    def refresh_certificate(self) -> None:
        """Load the key and certificate of the HTTP port again if its settings or files changed."""
        if self._certificates is None:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._loop.create_task(self._certificates.refresh())
        else:
            self._certificates.look_again()

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._loop_delay.stop()
        if self._server is not None:
            await self._server.stop()

    # ---- pages

    async def _metrics(self) -> Page:
        ready = is_ready(await self._reasons())
        return Page(await self._collector.collect(ready=ready), CONTENT_TYPE)

    async def _live(self) -> Page:
        """To have come here is to be alive: the loop turns."""
        return json_page({"status": "live"})

    async def _ready(self) -> Page:
        reasons = await self._reasons()
        body: dict[str, object] = {"status": status_of(reasons)}
        if not rest_is_restricted(self.parts.config):
            # Reasons name topics, which is for those who may describe the cluster.
            body["reasons"] = [{"reason": reason.name, "detail": reason.detail} for reason in reasons]
        return json_page(body, 200 if is_ready(reasons) else 503)

    async def _reasons(self) -> list[HealthReason]:
        parts = self.parts
        total, free = await self._executor.run(self._disk.usage, parts.path)
        metadata, partitions = parts.metadata, parts.partitions
        return reasons_against(
            Condition(
                phase=parts.phase,
                logs_opened=len(partitions.log_dir.logs) if partitions is not None else 0,
                logs_assigned=sum(len(topic.partitions) for topic in metadata.image.topics.values())
                if metadata is not None
                else 0,
                logs_offline=parts.offline,
                disk_free_bytes=free,
                disk_total_bytes=total,
                metadata_failure=parts.metadata_failure,
            )
        )

    async def _version(self) -> Page:
        return json_page(
            {"version": __version__, "kafka_protocol": KAFKA_VERSION, "python": platform.python_version()}
        )

    async def _overview(self) -> Page:
        parts = self.parts
        reasons = await self._reasons()
        metadata, partitions, server = parts.metadata, parts.partitions, parts.server
        overview: dict[str, Any] = {
            "name": "FlintMQ",
            "version": __version__,
            "status": status_of(reasons),
            "reasons": [reason.name for reason in reasons],
            "node_id": parts.config.node_id,
            "cluster_id": metadata.image.cluster_id if metadata is not None else None,
            "uptime_s": round(self._clock.monotonic() - parts.began, 1),
            "data_folder": parts.path,
            "listeners": [str(listener) for listener in server.bound] if server is not None else [],
            "connections": len(server.connections) if server is not None else 0,
            "topics": len(metadata.image.topics) if metadata is not None else 0,
            "partitions": len(partitions) if partitions is not None else 0,
            "pages": ["/metrics", "/prometheus", "/health/live", "/health/ready", "/version"],
        }
        return json_page(overview)
