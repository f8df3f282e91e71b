"""OAUTHBEARER with keys over HTTPS: real clients, rotated keys, an endpoint that is away, and tokens of attackers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import SaslAuthenticateResponse
from support.broker.broker_process import BrokerProcess
from support.broker.secured import SaslWire
from support.clients.java_program import java_command
from support.security.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider
from support.security.tokens import OTHER_KEY, base64url, key_set, rsa_entry, signed
from support.tls.certificates import CertificateFiles

TIMEOUT_S = 30.0
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "certificates")


@pytest.fixture
def provider(files: CertificateFiles) -> Iterator[IdentityProvider]:
    with IdentityProvider(files.keystore) as running:
        yield running


def broker_of(tmp_path: Path, url: str, ca: str, *settings: str) -> BrokerProcess:
    listener = "listener.name.sasl_plaintext."
    options = f'{MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{ca}";'
    args = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"{listener}oauthbearer.sasl.jaas.config={options}",
        f"{listener}sasl.oauthbearer.jwks.endpoint.url={url}",
        f"{listener}sasl.oauthbearer.expected.audience=flintmq",
        "flint.rest.port=-1",
        *settings,
    )
    return BrokerProcess(tmp_path / "data", [word for text in args for word in ("--set", text)])


@pytest.fixture
def broker(tmp_path: Path, provider: IdentityProvider, files: CertificateFiles) -> Iterator[BrokerProcess]:
    with broker_of(tmp_path, provider.keys_url, files.ca) as started:
        yield started


def login(broker: BrokerProcess, token: str, authorization_id: str = "") -> SaslAuthenticateResponse | None:
    """The last response of the broker; None if it closes the connection without one."""
    authzid = f"a={authorization_id}" if authorization_id else ""
    with SaslWire(broker.address) as wire:
        wire.handshake("OAUTHBEARER")
        try:
            response = wire.token(f"n,{authzid},\x01auth=Bearer {token}\x01\x01".encode())
            if bytes(response.auth_bytes):
                response = wire.token(b"\x01")
        except (ConnectionError, EOFError, AssertionError):
            return None
        return response


def is_accepted(broker: BrokerProcess, token: str) -> bool:
    response = login(broker, token)
    return response is not None and response.error_code == 0


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_new_keys_are_found_and_old_ones_end(broker: BrokerProcess, provider: IdentityProvider) -> None:
    assert is_accepted(broker, provider.token())
    claims = {"sub": "alice", "aud": "flintmq", "exp": time.time() + 600}
    rotated = signed(claims, key=OTHER_KEY, header={"kid": "new"})
    provider.keys = key_set(rsa_entry(OTHER_KEY, "new"))
    # The connection is closed without a failed authentication: clients connect again.
    assert login(broker, rotated) is None
    wait_for(lambda: is_accepted(broker, rotated))
    assert not is_accepted(broker, provider.token())


def test_keys_stay_while_the_endpoint_is_away(tmp_path: Path, files: CertificateFiles) -> None:
    refresh = "sasl.oauthbearer.jwks.endpoint.refresh.ms=1000"
    with IdentityProvider(files.keystore) as provider:
        broker = broker_of(tmp_path, provider.keys_url, files.ca, refresh)
        with broker:
            provider.status = 503
            provider.fetched.clear()
            assert provider.fetched.wait(TIMEOUT_S)
            assert is_accepted(broker, provider.token())


def test_a_broker_starts_without_keys_and_gets_them(tmp_path: Path, provider: IdentityProvider,
                                                    files: CertificateFiles) -> None:  # fmt: skip
    provider.status = 503
    with broker_of(tmp_path, provider.keys_url, files.ca) as broker:
        assert login(broker, provider.token()) is None
        provider.status = 200
        wait_for(lambda: is_accepted(broker, provider.token()))


def test_tokens_of_attackers(broker: BrokerProcess, provider: IdentityProvider) -> None:
    now = time.time()
    good = provider.token()
    head, body, signature = good.split(".")
    unsigned = base64url(b'{"alg":"none","kid":"rsa"}')
    other_body = base64url(b'{"sub":"admin","aud":"flintmq","exp":99999999999}')
    tokens = [
        f"{unsigned}.{body}.",
        f"{unsigned}.{body}.{signature}",
        signed({"sub": "alice", "aud": "flintmq", "exp": now + 60}, key=OTHER_KEY),
        provider.token(aud="elsewhere"),
        provider.token(exp=now - 60),
        provider.token(nbf=now + 60),
        provider.token(iat=now + 60),
        provider.token(exp="never"),
        provider.token(sub=""),
        f"{head}.{other_body}.{signature}",
        "x.y.z",
    ]
    for token in tokens:
        response = login(broker, token)
        assert response is not None
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert response.error_message == '{"status":"invalid_token"}'
    huge = login(broker, provider.token(padding="x" * 80_000))
    assert huge is None
    other = login(broker, good, authorization_id="admin")
    assert other is not None
    assert other.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_accepted(broker, good)


# ---- clients


def test_librdkafka_with_client_credentials(tmp_path: Path, files: CertificateFiles) -> None:
    with IdentityProvider() as provider, broker_of(tmp_path, provider.keys_url, files.ca) as broker:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": CLIENT_ID,
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
                "sasl.oauthbearer.token.endpoint.url": provider.token_url,
                "sasl.oauthbearer.scope": "flintmq",
                "log_level": 0,
            }
        )
        delivered: list[Any] = []
        producer.produce("t", b"x", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert delivered == [None]
        assert provider.issued >= 1


def test_librdkafka_with_tokens_of_its_own(broker: BrokerProcess, provider: IdentityProvider) -> None:
    admin = confluent_kafka.admin.AdminClient(
        {
            "bootstrap.servers": broker.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (provider.token(), time.time() + 600),
        }
    )
    admin.poll(1)
    assert admin.list_topics(timeout=TIMEOUT_S).brokers


def test_java_with_client_credentials(tmp_path: Path, files: CertificateFiles) -> None:
    with IdentityProvider() as provider, broker_of(tmp_path, provider.keys_url, files.ca) as broker:
        config = tmp_path / "client.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            "sasl.login.callback.handler.class="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={provider.token_url}\n"
            f'sasl.jaas.config={MODULE} required clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}";\n'
        )
        arguments = ("--bootstrap-server", broker.address, "--command-config", str(config))
        name = "org.apache.kafka.tools.TopicCommand"
        command = java_command(name, ["--create", "--topic", "t", *arguments], tmp_path, jars=["kafka-tools"])
        command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.token_url}")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
        assert provider.issued == 1
