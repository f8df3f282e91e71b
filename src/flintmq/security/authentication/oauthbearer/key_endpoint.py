"""The public keys of a token issuer that publishes them over HTTP: fetched at the start and at intervals.

    url  →  fetch (a thread)  →  keys  →  find (threads that verify tokens)

Invariants: verifying a token never waits for the network; keys stay in use while the endpoint cannot be reached; a
token with an unknown key has the keys fetched again, but not more often than EARLY_INTERVAL_S. There is one fetch at
a time, with a bound on its size and its duration.
"""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from flintmq.effects import Clock
from flintmq.errors import ConfigurationError
from flintmq.security.authentication.mechanism import SaslUnavailable
from flintmq.security.authentication.oauthbearer.keys import (
    VerificationKey,
    choose,
    parse_keys,
    require_package,
)

logger = logging.getLogger(__name__)

BYTES_MAX: Final = 1 << 20
TIMEOUT_S: Final = 10.0
EARLY_INTERVAL_S: Final = 10.0
"""Between fetches that tokens with unknown keys lead to."""
_READ_BYTES: Final = 64 << 10


class EndpointSettings(NamedTuple):
    url: str
    refresh_ms: int = 3_600_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    trusted_certificates: str | None = None
    """A PEM file; None for the certificates that the system trusts."""


class KeyEndpoint:
    def __init__(
        self, settings: EndpointSettings, clock: Clock, fetch: Callable[[], str] | None = None
    ) -> None:
        """ConfigurationError if the settings cannot be used. Nothing is fetched yet."""
        require_package()
        self._settings = settings
        self._clock = clock
        self._fetch = fetch or HttpFetch(settings.url, settings.trusted_certificates)
        self._keys: list[VerificationKey] | None = None
        self._due = clock.monotonic()
        self._failures = 0
        self._reason = ""
        self._early_at: float | None = None
        self._is_early = False
        """Whether a token has asked for keys that are not known."""
        self._is_fetching = False

    def find(self, key_id: str) -> VerificationKey | None:
        """Return the key of that id; SaslUnavailable if it may be known soon. May be called in any thread."""
        if self._keys is None:
            raise SaslUnavailable("the keys of the token's issuer could not be fetched yet")
        found = choose(self._keys, key_id)
        if found is None and key_id and self._wants_fetch():
            raise SaslUnavailable("the token's key is not known, and the keys are being fetched again")
        return found

    def _wants_fetch(self) -> bool:
        now = self._clock.monotonic()
        if not self._is_early and (self._early_at is None or now - self._early_at >= EARLY_INTERVAL_S):
            self._early_at = now
            self._is_early = True
        return self._is_early

    def tick(self) -> None:
        """Begin to fetch in a thread if it is time. To be called often, on the loop."""
        if not self._is_fetching and (self._is_early or self._clock.monotonic() >= self._due):
            # ORDER: before the thread starts, so that there is never a second one.
            self._is_fetching = True
            threading.Thread(target=self.refresh, name="flintmq-jwks", daemon=True).start()

    def refresh(self) -> None:
        """Fetch now. Blocks, up to TIMEOUT_S or little more."""
        self._is_fetching = True
        settings = self._settings
        try:
            self._keys = parse_keys(self._fetch())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._failed(error)
        else:
            if self._reason:
                logger.info("the keys at %s can be fetched again", settings.url)
            self._failures, self._reason = 0, ""
            self._due = self._clock.monotonic() + settings.refresh_ms / 1000
        finally:
            # ORDER: first what `find` looks at, then what lets the next fetch begin.
            self._is_early = False
            self._is_fetching = False

    def _failed(self, error: Exception) -> None:
        settings = self._settings
        backoff_ms = min(
            settings.retry_backoff_max_ms, settings.retry_backoff_ms * 2 ** min(self._failures, 30)
        )
        self._due = self._clock.monotonic() + backoff_ms / 1000
        self._failures += 1
        reason = f"{type(error).__name__}: {error}"[:300]
        if reason != self._reason:
            # Once for each reason: an endpoint may be away for days.
            self._reason = reason
            state = "nobody can authenticate yet" if self._keys is None else "the keys stay as they were"
            logger.error(
                "the keys at %s (sasl.oauthbearer.jwks.endpoint.url) cannot be fetched; %s: %s",
                settings.url,
                state,
                reason,
            )


class HttpFetch:
    """GET of one URL. Redirects and proxies are not followed: the keys decide who may do what."""

    def __init__(
        self, url: str, trusted_certificates: str | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        parts = urlsplit(url)
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_tls else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout_s = timeout_s
        self._context: ssl.SSLContext | None = None
        if self._is_tls:
            try:
                self._context = ssl.create_default_context(cafile=trusted_certificates)
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError(
                    f"the certificates in {trusted_certificates} (ssl.truststore.location in the sasl.jaas.config of "
                    f"OAUTHBEARER) cannot be read as PEM: {error}"
                ) from None

    def __call__(self) -> str:
        connected = socket.create_connection((self._host, self._port), timeout=self._timeout_s)
        if self._context is not None:
            # ORDER: the handshake comes when the watchdog runs.
            connected = self._context.wrap_socket(
                connected, server_hostname=self._host, do_handshake_on_connect=False
            )
        # A server that sends a byte now and then would otherwise hold the thread for ever.
        watchdog = threading.Timer(self._timeout_s, _shut, [connected])
        watchdog.daemon = True
        watchdog.start()
        try:
            if isinstance(connected, ssl.SSLSocket):
                connected.do_handshake()
            return self._get(connected)
        finally:
            watchdog.cancel()
            connected.close()

    def _get(self, connected: socket.socket) -> str:
        kind = http.client.HTTPSConnection if self._is_tls else http.client.HTTPConnection
        connection = kind(self._host, self._port)
        connection.sock = connected
        connection.request("GET", self._target, headers={"Accept": "application/json", "Connection": "close"})
        response = connection.getresponse()
        if 300 <= response.status < 400:
            raise ValueError(f"the response is a redirect ({response.status}): set the URL that it leads to")
        if response.status != 200:
            raise ValueError(f"the response has status {response.status}, not 200")
        body = bytearray()
        while some := response.read1(_READ_BYTES):
            body += some
            if len(body) > BYTES_MAX:
                raise ValueError(f"the response is larger than {BYTES_MAX} bytes")
        if response.length:
            raise ValueError("the response is cut short")
        return body.decode()


def _shut(connected: socket.socket) -> None:
    """End a connection that another thread reads from."""
    try:
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        pass
