"""Tokens for OAUTHBEARER: from the settings, a file, or a token endpoint (OIDC client credentials).

A token of an endpoint is used again until most of its life is over; all others are read each time, so that a file may
be replaced. Invariant: requests have a time limit, responses a size limit, redirects are not followed, and the secret
goes over https or stays on this machine.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from flintmq.client.security import BearerSettings
from flintmq.effects import Clock
from flintmq.errors import ConfigurationError
from flintmq.settings.references import resolve_references

RESPONSE_BYTES_MAX: Final = 1024 * 1024
TOKEN_BYTES_MAX: Final = 64 * 1024
TIMEOUT_S: Final = 10.0
_USED_FOR: Final = 0.8
"""Of a token's life."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_PREFIX: Final = "sasl.oauthbearer."
_URL: Final = f"{_PREFIX}token.endpoint.url"


class TokenError(Exception):
    """There is no token now."""

    def __init__(self, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final
        """Whether another attempt with the same settings would not help."""


class BearerTokens:
    def __init__(self, settings: BearerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._token = ""
        self._used_until_s = float("-inf")

    def token(self) -> str:
        """Return a token that is valid now. Raise TokenError, or ConfigurationError for settings that are wrong."""
        settings = self._settings
        if settings.token:
            return resolve_references(settings.token, f"{_PREFIX}token").strip()
        url = resolve_references(settings.endpoint_url, _URL)
        if url.startswith("file:"):
            return _read(unquote(urlsplit(url).path))
        if self._clock.monotonic() < self._used_until_s:
            return self._token
        self._token, lifetime_s = self._fetch(url)
        self._used_until_s = self._clock.monotonic() + lifetime_s * _USED_FOR
        return self._token

    def _fetch(self, url: str) -> tuple[str, float]:
        settings = self._settings
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigurationError(f"{_URL}={url}: expected https://HOST/PATH, or file:///PATH")
        if parts.scheme == "http" and host not in _LOOPBACK:
            raise ConfigurationError(f"{_URL}={url} would send the client's secret unencrypted; use https")
        client_id = resolve_references(settings.client_id, f"{_PREFIX}client.id")
        secret = resolve_references(settings.client_secret, f"{_PREFIX}client.secret")
        form = {"grant_type": "client_credentials"}
        if settings.scope:
            form["scope"] = resolve_references(settings.scope, f"{_PREFIX}scope")
        login = base64.b64encode(f"{quote(client_id, safe='')}:{quote(secret, safe='')}".encode()).decode()
        headers = {
            "Authorization": f"Basic {login}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = self._connection(parts.scheme, host, parts.port)
        try:
            connection.request("POST", path, urlencode(form), headers)
            response = connection.getresponse()
            data = response.read(RESPONSE_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise TokenError(f"{url} gives no token: {error}; check {_URL}", is_final=False) from None
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise TokenError(
                f"{url} gives no token: HTTP {response.status} {response.reason}; "
                f"check {_PREFIX}client.id and {_PREFIX}client.secret",
                is_final=response.status < http.client.INTERNAL_SERVER_ERROR,
            )
        return _token_of(data, url)

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        location = resolve_references(self._settings.ca_location, "https.ca.location") or None
        try:
            context = ssl.create_default_context(cafile=location)
        except OSError as error:
            raise ConfigurationError(
                f"https.ca.location={location} cannot be read: {error.strerror or error}"
            ) from None
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)


def _token_of(data: bytes, url: str) -> tuple[str, float]:
    found: Any = None
    if len(data) <= RESPONSE_BYTES_MAX:
        try:
            found = json.loads(data)
        except ValueError:
            pass
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise TokenError(f"{url} gives no token: its response has no access_token; check {_URL}")
    lifetime = found.get("expires_in")
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    return token, float(lifetime) if is_number else 0.0


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(TOKEN_BYTES_MAX + 1)
    except OSError as error:
        raise TokenError(f"{path} gives no token: {error.strerror}; check {_URL}") from None
    if len(data) > TOKEN_BYTES_MAX:
        raise TokenError(f"{path} gives no token: it has more than {TOKEN_BYTES_MAX} bytes; check {_URL}")
    return data.decode("ascii", errors="replace").strip()
