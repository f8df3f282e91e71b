"""The TLS contexts in force, one for each listener with TLS, replaced while the broker runs.

A new context is built when a setting or one of its files changed. New connections take the new one; open ones keep
theirs. A store that cannot be used leaves the old context in force and is logged once, until it changes again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from flintmq.errors import ConfigurationError
from flintmq.server.tls.context import TlsContext, build_context
from flintmq.server.tls.stores import file_state
from flintmq.settings import BrokerConfig
from flintmq.settings.tls import TlsSettings, tls_listeners, tls_settings

logger: Final = logging.getLogger(__name__)

_Fingerprint = tuple[TlsSettings, object, object]
_Run = Callable[[Callable[[], list["_Built"]]], Awaitable[list["_Built"]]]
_Built = tuple[str, _Fingerprint, TlsContext | ConfigurationError]


class ListenerTls:
    """The TLS of one listener: what a new connection looks at."""

    __slots__ = ("context", "listener", "loaded_from", "rejected")

    def __init__(self, listener: str, context: TlsContext, loaded_from: _Fingerprint) -> None:
        self.listener = listener
        self.context = context
        self.loaded_from = loaded_from
        self.rejected: _Fingerprint | None = None
        """What was tried last and could not be used."""


class Certificates:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        run: _Run,
        names: Callable[[BrokerConfig], list[str]] = tls_listeners,
    ) -> None:
        """`run` executes blocking work in a thread; `names` are the listeners to care for."""
        self._config = config
        self._names = names
        self._run = run
        self._again = False
        self.listeners: dict[str, ListenerTls] = {}

    async def load(self) -> None:
        """Build all contexts for the first time; raise ConfigurationError if one cannot be."""
        added = await self.check(self._config())
        self.take(added, set(added))

    async def check(self, config: BrokerConfig) -> dict[str, ListenerTls]:
        """Raise ConfigurationError if new settings cannot be used; nothing is replaced.

        Return the TLS of the listeners that are new, by their names.
        """
        added: dict[str, ListenerTls] = {}
        for listener, fingerprint, built in await self._build(config, again=True):
            if isinstance(built, ConfigurationError):
                raise ConfigurationError(f"Listener {listener}: {built}")
            if listener not in self.listeners:
                added[listener] = ListenerTls(listener, built, fingerprint)
        return added

    def take(self, added: Mapping[str, ListenerTls], names: Collection[str]) -> None:
        """Add the TLS of new listeners, and forget that of all that are not in `names`."""
        for listener in [one for one in self.listeners if one not in names]:
            del self.listeners[listener]
        for listener, tls in added.items():
            self.listeners[listener] = tls
            self._warn_of_expiry(listener, tls.context)

    async def refresh(self) -> None:
        """Replace the contexts whose settings or files changed; once more if `look_again` is called meanwhile."""
        while True:
            self._again = False
            for listener, fingerprint, built in await self._build(self._config()):
                self._replace(listener, fingerprint, built)
            if not self._again:
                return

    def look_again(self) -> None:
        self._again = True

    def _replace(
        self, listener: str, fingerprint: _Fingerprint, built: TlsContext | ConfigurationError
    ) -> None:
        current = self.listeners.get(listener)
        if current is None:
            return
        if isinstance(built, ConfigurationError):
            current.rejected = fingerprint
            logger.error(
                "the new certificate of listener %s cannot be used, the old one stays in force: %s",
                listener,
                built,
            )
            return
        current.context, current.loaded_from, current.rejected = built, fingerprint, None
        logger.info("listener %s has a new certificate or new TLS settings", listener)
        self._warn_of_expiry(listener, built)

    async def _build(self, config: BrokerConfig, *, again: bool = False) -> list[_Built]:
        """Build what changed; with `again` also what could not be used before."""
        wanted = [tls_settings(config, name) for name in self._names(config)]
        if not wanted:
            return []
        known = {
            one.listener: (one.loaded_from, None if again else one.rejected)
            for one in self.listeners.values()
        }

        def build() -> list[_Built]:
            found: list[_Built] = []
            for settings in wanted:
                # ORDER: the state of the files BEFORE they are read, so that a change meanwhile is seen next time.
                fingerprint = (settings, file_state(settings.keystore), file_state(settings.truststore))
                if fingerprint in known.get(settings.listener, ()):
                    continue
                try:
                    found.append((settings.listener, fingerprint, build_context(settings)))
                except ConfigurationError as error:
                    found.append((settings.listener, fingerprint, error))
                except OSError as error:
                    found.append((settings.listener, fingerprint, ConfigurationError(str(error))))
            return found

        return await self._run(build)

    @staticmethod
    def _warn_of_expiry(listener: str, built: TlsContext) -> None:
        if built.certificate.not_after < time.time():
            logger.warning(
                "the certificate of listener %s has expired; clients will reject it until it is replaced",
                listener,
            )
