"""The `flintmq` command and the Python client over SASL_SSL and mutual TLS, and their errors."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.topics import create_topic
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import AuthenticationFailed, NoBrokerReached, TlsFailed
from flintmq.client.security import parse_security
from flintmq.errors import ConfigurationError
from support.broker.broker_process import BrokerProcess
from support.broker.secured import USERS, sasl_ssl_broker, sasl_ssl_settings
from support.cli.command import run
from support.security.tokens import key_set, signed
from support.tls.certificates import CertificateFiles, authority, stranger

PASSWORD = USERS["alice"]
QUICKLY_S = 15.0
"""For a command that is to fail at once, on a busy machine."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[BrokerProcess]:
    with sasl_ssl_broker(directory) as started:
        yield started


def _address(broker: BrokerProcess) -> str:
    return f"localhost:{broker.port}"


def _properties(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def _client(address: str, settings: Mapping[str, str]) -> ClusterClient:
    return ClusterClient(parse_addresses(address), security=parse_security(settings))


def test_commands_with_a_properties_file(broker: BrokerProcess, directory: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    settings = sasl_ssl_settings(directory, "alice", f"${{file:{tmp_path}/password}}")
    where = ("-b", _address(broker), "--command-config", _properties(tmp_path / "c.properties", settings))
    run("topic", "create", "orders", *where)
    run("produce", "orders", *where, stdin=b"one\ntwo\n")
    assert run("consume", "orders", "--until-end", *where).out.split() == ["one", "two"]
    assert "orders" in run("topic", "list", *where).out
    run("group", "list", *where)
    run("transaction", "list", *where)
    run("ping", *where)
    run("bench", "--records", "1000", *where)


def test_commands_with_the_environment(broker: BrokerProcess, directory: Path) -> None:
    environment = {
        "FLINTMQ_SECURITY_PROTOCOL": "SASL_SSL",
        "FLINTMQ_SSL_CA_LOCATION": str(directory / "ca.pem"),
        "FLINTMQ_SASL_MECHANISM": "PLAIN",
        "FLINTMQ_SASL_USERNAME": "alice",
        "FLINTMQ_SASL_PASSWORD": "${env:THE_PASSWORD}",
        "THE_PASSWORD": PASSWORD,
    }
    run("topic", "list", "-b", _address(broker), env=environment)
    del environment["THE_PASSWORD"]
    failed = run("topic", "list", "-b", _address(broker), env=environment, code=2)
    assert "sasl.password refers to ${env:THE_PASSWORD}, but the environment variable" in failed.error


def test_the_python_client(broker: BrokerProcess, directory: Path) -> None:
    settings = sasl_ssl_settings(directory, "alice", PASSWORD)
    del settings["ssl.ca.location"]
    java = {
        **settings,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (directory / "ca.pem").read_text(),
    }
    with _client(_address(broker), java) as client:
        create_topic(client, "from-python", partitions=1)
        assert "from-python" in client.all_topics()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"sasl.password": "wrong-hunter2"}, "rejected the authentication"),
        ({"ssl.ca.location": "{other}"}, "certificate is not trusted.*set ssl.ca.location"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "may expect TLS"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "set sasl.mechanism to one of PLAIN"),
        ({"security.protocol": "SSL"}, "if the listener has SASL, set security.protocol"),
    ],
)
def test_wrong_settings_fail_quickly_and_say_what_to_do(
    broker: BrokerProcess, directory: Path, tmp_path: Path, changed: dict[str, str], words: str
) -> None:
    (tmp_path / "other.pem").write_bytes(stranger().certificate_pem)
    changed = {name: value.format(other=tmp_path / "other.pem") for name, value in changed.items()}
    settings = {**sasl_ssl_settings(directory, "alice", PASSWORD), **changed}
    begun = time.monotonic()
    config = _properties(tmp_path / "c.properties", settings)
    code = 3 if changed != {"security.protocol": "SSL"} else 1
    failed = run("topic", "list", "-b", _address(broker), "--command-config", config, code=code)
    assert time.monotonic() - begun < QUICKLY_S
    assert re.search(words, failed.error), failed
    assert PASSWORD not in failed.error
    assert "hunter2" not in failed.error


def test_a_certificate_for_another_host(directory: Path, tmp_path: Path) -> None:
    keystore = tmp_path / "elsewhere.pem"
    keystore.write_bytes(
        authority().issue("elsewhere", hosts=("elsewhere.example",), server=True).keystore_pem
    )
    with sasl_ssl_broker(tmp_path, f"ssl.keystore.location={keystore}") as broker:
        settings = sasl_ssl_settings(tmp_path, "alice", PASSWORD)
        with (
            _client(_address(broker), settings) as client,
            pytest.raises(TlsFailed, match="not for localhost"),
        ):
            client.all_topics()
        with _client(
            _address(broker), {**settings, "ssl.endpoint.identification.algorithm": "none"}
        ) as client:
            client.all_topics()


def test_tls_to_a_listener_without_tls(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data") as broker,
        _client(broker.address, {"security.protocol": "SSL"}) as client,
        pytest.raises((TlsFailed, NoBrokerReached), match=r"set security\.protocol=PLAINTEXT"),
    ):
        client.all_topics()


@pytest.mark.parametrize("form", ["files", "pem", "encrypted"])
def test_mutual_tls(tmp_path: Path, form: str) -> None:
    files = CertificateFiles(tmp_path)
    issued = authority().issue("alice", hosts=(), server=False)
    certificate, key = files.client(issued)
    settings = {"security.protocol": "SSL", "ssl.ca.location": files.ca}
    with_certificate = {"ssl.certificate.location": certificate, "ssl.key.location": key}
    if form == "pem":
        with_certificate = {
            "ssl.keystore.certificate.chain": issued.certificate_pem.decode().replace("\n", "\\n"),
            "ssl.keystore.key": f"${{file:{key}}}",
        }
    if form == "encrypted":
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            load_pem_private_key,
        )

        loaded = load_pem_private_key(issued.key_pem, None)
        encrypted = loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw"))
        Path(key).write_bytes(encrypted)
        with pytest.raises(ConfigurationError, match=r"set ssl\.key\.password"):
            _client("localhost:1", {**settings, **with_certificate}).all_topics()
        with_certificate["ssl.key.password"] = "pw"
    args = [word for name, value in files.mutual_settings.items() for word in ("--set", f"{name}={value}")]
    with BrokerProcess(tmp_path / "data", args) as broker:
        address = f"127.0.0.1:{broker.port}"
        with _client(address, {**settings, **with_certificate}) as client:
            client.all_topics()
        with (
            _client(address, settings) as client,
            pytest.raises(TlsFailed, match=r"set ssl\.certificate\.location"),
        ):
            client.all_topics()


class _Issuer(http.server.BaseHTTPRequestHandler):
    """A token endpoint: client credentials in, a signed token out."""

    requests = 0
    status = 200

    def do_POST(self) -> None:
        type(self).requests += 1
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
        assert self.headers["Authorization"].startswith("Basic ")
        self.send_response(self.status)
        self.end_headers()
        body = {"access_token": _token(), "expires_in": 300, "token_type": "Bearer"}
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def _token() -> str:
    now_s = int(time.time())
    return signed({"sub": "alice", "aud": "flintmq", "iat": now_s, "exp": now_s + 300})


def test_oauthbearer_with_a_token_a_file_and_an_endpoint(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_set())
    (tmp_path / "token").write_text(_token())
    oauth = (
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/keys.json",
        "sasl.oauthbearer.expected.audience=flintmq",
    )
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Issuer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = {
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "secret-of-the-client",
        "sasl.oauthbearer.scope": "kafka",
    }
    try:
        with sasl_ssl_broker(tmp_path, *oauth) as broker:
            for more in (
                {"sasl.oauthbearer.token": f"${{file:{tmp_path}/token}}"},
                {"sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token"},
                endpoint,
            ):
                with _client(_address(broker), {**settings, **more}) as client:
                    client.all_topics()
            assert _Issuer.requests == 1
            bad = {"sasl.oauthbearer.token": "not.a.token"}
            with (
                _client(_address(broker), {**settings, **bad}) as client,
                pytest.raises(AuthenticationFailed),
            ):
                client.all_topics()
            _Issuer.status = 401
            with (
                _client(_address(broker), {**settings, **endpoint}) as client,
                pytest.raises(AuthenticationFailed, match="HTTP 401") as failed,
            ):
                client.all_topics()
            assert "secret-of-the-client" not in str(failed.value)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    with _client("localhost:1", {**settings, **endpoint}) as client, pytest.raises(NoBrokerReached):
        client.all_topics()
