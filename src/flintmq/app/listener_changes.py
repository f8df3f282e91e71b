"""Listeners of a running broker that change: what is checked, in which order things happen, and what is logged.

The settings are stored before anything is opened or closed, and are in force after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flintmq.app.authentication import BrokerAuthentication
from flintmq.app.observability.telemetry import Telemetry
from flintmq.errors import ConfigurationError
from flintmq.server.listeners import Server
from flintmq.server.open_listeners import ListenerChange
from flintmq.settings import BrokerConfig, BrokerValues
from flintmq.settings.listener_changes import LISTENER_SETTINGS

logger = logging.getLogger(__name__)


class BrokerListeners:
    """Prepares a broker for other settings (`Configs.prepare`)."""

    def __init__(
        self,
        server: Server,
        authentication: BrokerAuthentication,
        telemetry: Telemetry,
        on_changed: Callable[[], object],
    ) -> None:
        self._server = server
        self._authentication = authentication
        self._telemetry = telemetry
        self._on_changed = on_changed

    async def prepare(self, config: BrokerConfig) -> BrokerListenerChange:
        """Raise ConfigurationError for settings that listeners cannot be served with, and change nothing then."""
        self._authentication.sasl.check(config)
        await self._telemetry.check_settings(config)
        change = await self._server.prepare(config)
        return BrokerListenerChange(config, change, self._authentication, self._on_changed)


class BrokerListenerChange:
    def __init__(
        self,
        config: BrokerConfig,
        change: ListenerChange,
        authentication: BrokerAuthentication,
        on_changed: Callable[[], object],
    ) -> None:
        self._config = config
        self._change = change
        self._authentication = authentication
        self._on_changed = on_changed

    async def commit(self) -> None:
        # ORDER: what clients authenticate with BEFORE the first of them can connect.
        await self._authentication.listeners_changed(self._config)
        await self._change.commit()
        self._on_changed()

    def abandon(self) -> None:
        self._change.abandon()


@contextmanager
def overridden_listeners(values: BrokerValues, data_dir: str) -> Iterator[None]:
    """Log which settings of listeners override those of the start; an error of the start names how to remove them."""
    names = [name for name in LISTENER_SETTINGS if name in values.dynamic]
    for name in names:
        _log_overridden(name, values.dynamic[name], values.static.get(name))
    try:
        if names:
            # The listeners of the start are no substitute for those that cannot be had: they may be open to
            # clients that are not authenticated.
            values.config()
        yield
    except ConfigurationError as error:
        if not names:
            raise
        resets = " ".join(f"--reset {name}" for name in names)
        raise ConfigurationError(
            f"{str(error).rstrip('.')}. Settings that were changed while the broker ran are in force: "
            f"{', '.join(names)}. To remove them: flintmq config {resets} --offline --data-dir {data_dir}"
        ) from error


def _log_overridden(name: str, text: str, given: str | None) -> None:
    if text != given:
        logger.warning(
            "%s=%s is in force, which was set while the broker ran%s; `flintmq config --reset %s` removes it",
            name,
            text,
            f", and not {given}, with which it is started" if given is not None else "",
            name,
        )
