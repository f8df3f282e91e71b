"""The metrics of a broker, over HTTP or HTTPS, with the credentials of `--command-config` where it asks for some."""

from __future__ import annotations

import base64
import http.client
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from flintmq.cli.common.exit_codes import CommandFailure, NoBrokerFailure, UsageFailure
from flintmq.client.credentials.bearer_tokens import BearerTokens
from flintmq.client.sasl import OAUTHBEARER
from flintmq.client.security import ClientSecurity
from flintmq.client.tls import client_context
from flintmq.effects.real import SystemClock
from flintmq.metrics import Scrape, parse
from flintmq.settings.references import resolve_references

DEFAULT_URL: Final = "http://127.0.0.1:30004"
_TIMEOUT_S: Final = 10.0
_BYTES_MAX: Final = 256 << 20
_DENIED: Final = {
    HTTPStatus.UNAUTHORIZED: "it asks for credentials; give them with --command-config",
    HTTPStatus.FORBIDDEN: "the user needs an ACL that allows Describe on the cluster",
}


def scrape(url: str, security: ClientSecurity) -> Scrape:
    connection, path = _connection(url, security)
    try:
        connection.request("GET", f"{path}/metrics", headers=_credentials(security))
        response = connection.getresponse()
        text = response.read(_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NoBrokerFailure(
            f"nothing answers at {url}: {reason}\nIs the broker's HTTP listener on (flint.rest.port)? Say where "
            "it is with --url."
        ) from error
    finally:
        connection.close()
    if response.status != HTTPStatus.OK:
        advice = _DENIED.get(HTTPStatus(response.status))
        raise CommandFailure(
            f"{url}/metrics answers {response.status} {response.reason}" + (f": {advice}" if advice else "")
        )
    try:
        found = parse(text)
    except ValueError as error:
        raise CommandFailure(f"{url}/metrics has no metrics: {error}") from error
    if "flintmq_build_info" not in found.samples:
        raise CommandFailure(f"what answers at {url} is not FlintMQ")
    return found


def _connection(url: str, security: ClientSecurity) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageFailure(f"{url} is not an address such as {DEFAULT_URL}")
    path = parts.path.rstrip("/")
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_TIMEOUT_S), path
    context = client_context(security.tls)
    return (
        http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=_TIMEOUT_S, context=context),
        path,
    )


def _credentials(security: ClientSecurity) -> dict[str, str]:
    if not security.has_sasl:
        return {}
    if security.mechanism == OAUTHBEARER:
        return {"Authorization": f"Bearer {BearerTokens(security.bearer, SystemClock()).token()}"}
    username = resolve_references(security.username, "sasl.username")
    password = resolve_references(security.password, "sasl.password")
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    return {"Authorization": f"Basic {token}"}
