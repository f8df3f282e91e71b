"""The quotas of a running broker: built from its settings, and kept in step with what is set in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flintmq.broker.throttling import limits_of
from flintmq.effects import Clock
from flintmq.metadata.client_quotas import CONNECTION_CREATION_RATE
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metrics import QuotaCounters
from flintmq.security.quotas.client_quotas import LimitedClients
from flintmq.security.quotas.connection_rates import ConnectionRates
from flintmq.security.quotas.rate import QuotaWindows
from flintmq.server.connection import Connection
from flintmq.settings import BrokerConfig
from flintmq.settings.kinds import INT_MAX

_RATE: Final = "max.connection.creation.rate"
_FORGET_S: Final = 10.0


class BrokerQuotas:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        metadata: ClusterMetadata,
        clock: Clock,
        counters: QuotaCounters,
    ) -> None:
        settings = config()
        self._config = config
        self._clock = clock
        self._counters = counters
        self._forgotten_at = clock.monotonic()
        windows = QuotaWindows(settings.quota_window_num, float(settings.quota_window_size_seconds))
        self.clients = LimitedClients(
            lambda: metadata.image.quotas,
            clock.monotonic,
            windows=windows,
            mutation_windows=QuotaWindows(
                settings.controller_quota_window_num, float(settings.controller_quota_window_size_seconds)
            ),
            counters=counters,
        )
        self._connections = ConnectionRates(lambda: metadata.image.quotas, clock.monotonic, windows=windows)

    def changed(self) -> None:
        self.clients.changed()
        self._connections.changed()

    def tick(self) -> None:
        """Called once a second."""
        now = self._clock.monotonic()
        if now - self._forgotten_at >= _FORGET_S:
            self._forgotten_at = now
            self.clients.forget_unused()
            self._connections.forget_unused()

    def is_limited(self, connection: Connection) -> bool:
        session = connection.session
        return limits_of(session, session.limits_client_id, self.clients) is not None

    def turned_away_s(self, connection: Connection) -> float:
        """Return after how long a new connection is closed; 0 if it may stay."""
        config, session = self._config(), connection.session
        limits: dict[str, float] = {}
        if config.max_connection_creation_rate < INT_MAX:
            limits[""] = float(config.max_connection_creation_rate)
        own = config.listener_overrides.get((session.listener, _RATE))
        if own is not None:
            limits[session.listener] = float(own)
        delay_ms = self._connections.delay_ms(session.peer_host, limits)
        if delay_ms:
            self._counters.add(CONNECTION_CREATION_RATE, delay_ms)
        return delay_ms / 1000
