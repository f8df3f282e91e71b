"""Keys over HTTP: fetched in time, never too often, and kept while the endpoint is away."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from flintmq.errors import ConfigurationError
from flintmq.security.authentication.mechanism import SaslUnavailable
from flintmq.security.authentication.oauthbearer.key_endpoint import (
    BYTES_MAX,
    EARLY_INTERVAL_S,
    EndpointSettings,
    HttpFetch,
    KeyEndpoint,
)
from flintmq.testing.simulation import SimulatedClock
from support.security.identity_provider import IdentityProvider
from support.security.tokens import OTHER_KEY, ec_entry, key_set, rsa_entry
from support.tls.certificates import CertificateFiles, authority, stranger

SETTINGS = EndpointSettings(
    "http://localhost/keys", refresh_ms=60_000, retry_backoff_ms=100, retry_backoff_max_ms=10_000
)


class Source:
    """What the endpoint has: a key set, or an error."""

    def __init__(self) -> None:
        self.text = key_set(rsa_entry())
        self.error: Exception | None = None
        self.fetches = 0
        self.done = threading.Event()

    def __call__(self) -> str:
        self.fetches += 1
        try:
            if self.error is not None:
                raise self.error
            return self.text
        finally:
            self.done.set()


class Endpoint(KeyEndpoint):
    def __init__(self, source: Source, clock: SimulatedClock) -> None:
        super().__init__(SETTINGS, clock, source)
        self._source = source

    def settle(self) -> int:
        """One tick, and what it begins; how often the keys have been fetched until then."""
        self.tick()
        deadline = time.monotonic() + 10
        while self._is_fetching and time.monotonic() < deadline:
            time.sleep(0.001)
        assert not self._is_fetching
        return self._source.fetches


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def endpoint(source: Source, clock: SimulatedClock) -> Endpoint:
    return Endpoint(source, clock)


def test_there_are_no_keys_before_the_first_fetch(endpoint: Endpoint) -> None:
    with pytest.raises(SaslUnavailable):
        endpoint.find("rsa")
    endpoint.refresh()
    assert endpoint.find("rsa") is not None
    assert endpoint.find("") is not None


def test_keys_are_fetched_again_at_the_interval(
    endpoint: Endpoint, source: Source, clock: SimulatedClock
) -> None:
    assert endpoint.settle() == 1
    clock.advance(59)
    assert endpoint.settle() == 1
    source.text = key_set(ec_entry())
    clock.advance(2)
    assert endpoint.settle() == 2
    assert endpoint.find("ec") is not None


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"keys": 5}', '{"keys": {}}', '{"keys": []}', "[" * 100_000, '{"keys": [{"kty": "RSA"}]}'],
)
def test_keys_stay_while_the_endpoint_sends_nonsense(
    endpoint: Endpoint, source: Source, clock: SimulatedClock, text: str
) -> None:
    endpoint.refresh()
    source.text = text
    clock.advance(61)
    assert endpoint.settle() == 2
    assert endpoint.find("rsa") is not None


def test_failures_are_retried_with_a_backoff_and_logged_once(
    endpoint: Endpoint, source: Source, clock: SimulatedClock, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.refresh()
    source.error = ConnectionRefusedError("away")
    clock.advance(61)
    for _ in range(200):
        endpoint.settle()
        clock.advance(1)
    # Seven attempts until the backoff has reached ten seconds, then one in ten seconds.
    assert 20 <= source.fetches <= 30
    assert endpoint.find("rsa") is not None
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1
    source.error = None
    clock.advance(11)
    endpoint.settle()
    before = source.fetches
    clock.advance(30)
    assert endpoint.settle() == before


def test_an_unknown_key_has_the_keys_fetched_early_and_not_too_often(
    endpoint: Endpoint, source: Source, clock: SimulatedClock
) -> None:
    endpoint.refresh()
    source.text = key_set(rsa_entry(), rsa_entry(OTHER_KEY, "new"))
    with pytest.raises(SaslUnavailable):
        endpoint.find("new")
    assert endpoint.settle() == 2
    assert endpoint.find("new") is not None
    for number in range(100):
        assert endpoint.find(f"unknown {number}") is None
    assert endpoint.settle() == 2
    clock.advance(EARLY_INTERVAL_S)
    with pytest.raises(SaslUnavailable):
        endpoint.find("unknown")
    assert endpoint.settle() == 3
    assert endpoint.find("unknown") is None


def test_a_token_without_a_key_id_fetches_nothing(endpoint: Endpoint, source: Source) -> None:
    source.text = key_set(rsa_entry(), ec_entry())
    endpoint.refresh()
    assert endpoint.find("") is None
    assert endpoint.settle() == 1


# ---- HTTP


def test_keys_over_https_with_a_trusted_certificate(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path)
    with IdentityProvider(files.keystore) as provider:
        assert HttpFetch(provider.keys_url, files.ca)() == provider.keys
        with pytest.raises(ssl.SSLCertVerificationError):
            HttpFetch(provider.keys_url)()
        other = tmp_path / "other.pem"
        other.write_bytes(stranger().certificate_pem)
        with pytest.raises(ssl.SSLCertVerificationError):
            HttpFetch(provider.keys_url, str(other))()
    elsewhere = tmp_path / "elsewhere.pem"
    elsewhere.write_bytes(authority().issue("x", hosts=("elsewhere",), server=True).keystore_pem)
    with IdentityProvider(str(elsewhere)) as provider, pytest.raises(ssl.SSLCertVerificationError):
        HttpFetch(provider.keys_url, files.ca)()


def test_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for path in (str(wrong), str(tmp_path / "missing.pem")):
        with pytest.raises(ConfigurationError, match=r"ssl\.truststore\.location"):
            HttpFetch("https://localhost/", path)


def test_redirects_errors_and_large_responses_are_refused() -> None:
    with IdentityProvider() as provider:
        fetch = HttpFetch(provider.keys_url)
        provider.status, provider.location = 302, "file:///etc/passwd"
        with pytest.raises(ValueError, match="redirect"):
            fetch()
        provider.status, provider.location = 500, ""
        with pytest.raises(ValueError, match="status 500"):
            fetch()
        provider.status, provider.keys = 200, " " * (BYTES_MAX + 1)
        with pytest.raises(ValueError, match="larger"):
            fetch()


@pytest.mark.parametrize("trickle", [b"", b"H", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_slow_server_cannot_hold_the_thread(trickle: bytes, scheme: str) -> None:
    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(trickle)
                    while not stopping.wait(0.05):
                        connection.sendall(b" ")
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        began = time.monotonic()
        fetch = HttpFetch(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.5)
        with pytest.raises((OSError, ValueError, http.client.HTTPException)):
            fetch()
        assert time.monotonic() - began < 5
        stopping.set()
        thread.join()
