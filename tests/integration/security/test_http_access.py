"""The HTTP port with users, certificates and ACLs."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from flintmq.cli.main import main
from flintmq.metrics import parse
from flintmq.protocol.messages import CreateAclsRequest, CreateAclsResponse
from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerFailed, BrokerProcess
from support.broker.secured import USERS, SaslWire, secured_broker
from support.security.tokens import key_set, signed
from support.tls.certificates import CertificateFiles, authority, server_certificate

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PATIENCE_S = 30.0


class Answer(NamedTuple):
    status: int
    text: str
    challenges: list[str]
    elapsed_s: float


def address_of(broker: BrokerProcess) -> tuple[str, int]:
    found = re.findall(r"https?://(\S+):(\d+) ", broker.errors)
    assert found, broker.errors
    host, port = found[-1]
    return host, int(port)


def get(
    broker: BrokerProcess, path: str, authorization: str | None = None, tls: ssl.SSLContext | None = None
) -> Answer:
    host, port = address_of(broker)
    connection = (
        http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
        if tls is None
        else http.client.HTTPSConnection(host, port, timeout=PATIENCE_S, context=tls)
    )
    began = time.monotonic()
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        challenges = answer.msg.get_all("WWW-Authenticate") or []
        return Answer(answer.status, text, challenges, time.monotonic() - began)
    finally:
        connection.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def bearer(**claims: object) -> str:
    now = time.time()
    return "Bearer " + signed({"sub": "carol", "aud": "flintmq", "exp": now + 600, "iat": now, **claims})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_text(key_set())
    return path


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[BrokerProcess]:
    """`admin` is a super user, `alice` has no rights, `sally` is a SCRAM user that may describe the cluster."""
    directory = tmp_path_factory.mktemp("http")
    with secured_broker(
        directory / "data",
        "flint.rest.port=0",
        "flint.rest.authentication=basic,bearer",
        "listener.name.rest.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"listener.name.rest.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}",
        "listener.name.rest.sasl.oauthbearer.expected.audience=flintmq",
        f"sasl.jaas.config={_jaas()}",
        f"authorizer.class.name={STANDARD}",
        "super.users=User:admin;User:carol",
        "connection.failed.authentication.delay.ms=200",
        f"flint.audit.log.file={directory / 'audit.log'}",
    ) as broker:
        with SaslWire(broker.address) as wire:
            wire.authenticate("admin", USERS["admin"])
            wire.add_scram_user("sally", "sallys-secret", ScramMechanism.SHA_512)
            creation = CreateAclsRequest.AclCreation(
                resource_type=4,
                resource_name="kafka-cluster",
                resource_pattern_type=3,
                principal="User:sally",
                host="*",
                operation=8,
                permission_type=3,
            )
            created = wire.ask(CreateAclsRequest(creations=[creation]), 3)
            assert isinstance(created, CreateAclsResponse)
            assert [one.error_code for one in created.results] == [0]
        yield broker


def _jaas() -> str:
    options = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


@pytest.mark.parametrize("path", ["/", "/metrics", "/prometheus", "/version"])
@pytest.mark.parametrize(
    "authorization", [basic("admin", USERS["admin"]), basic("sally", "sallys-secret"), "bearer of carol"]
)
def test_pages_are_for_those_who_may_describe_the_cluster(
    broker: BrokerProcess, path: str, authorization: str
) -> None:
    given = bearer() if authorization == "bearer of carol" else authorization
    assert get(broker, path, given).status == 200


def test_a_client_without_the_right_is_named(broker: BrokerProcess) -> None:
    answer = get(broker, "/metrics", basic("alice", USERS["alice"]))
    assert answer.status == 403
    assert answer.text == "User:alice needs an ACL that allows DESCRIBE on the cluster\n"


@pytest.mark.parametrize("path", ["/", "/metrics", "/version", "/nothing"])
def test_nothing_is_shown_without_credentials(broker: BrokerProcess, path: str) -> None:
    answer = get(broker, path)
    assert answer.status == 401
    assert answer.challenges == ['Basic realm="FlintMQ", charset="UTF-8"', 'Bearer realm="FlintMQ"']
    assert "/metrics" not in answer.text


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/health/live"])
def test_health_is_open_and_says_nothing_but_its_state(broker: BrokerProcess, path: str) -> None:
    answer = get(broker, path)
    assert answer.status == 200
    assert list(json.loads(answer.text)) == ["status"]


@pytest.mark.parametrize(
    "authorization",
    [
        basic("admin", "wrong"),
        basic("nobody", "wrong"),
        basic("sally", "wrong"),
        basic("admin", ""),
        basic("ad\0min", "x"),
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Digest username=admin",
        "Bearer ",
        "Bearer not.a.token",
        "Bearer \xe9",
    ],
)
def test_failures_are_alike(broker: BrokerProcess, authorization: str) -> None:
    missing = get(broker, "/metrics")
    failed = get(broker, "/metrics", authorization)
    assert (failed.status, failed.text, failed.challenges) == (401, missing.text, missing.challenges)
    assert failed.elapsed_s >= 0.2


def test_tokens_of_others_are_refused(broker: BrokerProcess) -> None:
    for token in (bearer(aud="another"), bearer(exp=time.time() - 600), bearer()[:-8] + "AAAAAAAA"):
        assert get(broker, "/metrics", token).status == 401


def test_a_connection_ends_with_a_failure(broker: BrokerProcess) -> None:
    with socket.create_connection(address_of(broker), timeout=PATIENCE_S) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
        received = b""
        while part := sock.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 401 ")
    assert received.count(b"HTTP/1.1") == 1


def test_a_field_that_is_given_twice_is_refused(broker: BrokerProcess) -> None:
    with socket.create_connection(address_of(broker), timeout=PATIENCE_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nAuthorization: a\r\nauthorization: b\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_requests_are_counted_and_audited(broker: BrokerProcess) -> None:
    get(broker, "/metrics", basic("admin", "wrong-again"))
    get(broker, "/metrics", basic("alice", USERS["alice"]))
    scrape = parse(get(broker, "/metrics", basic("admin", USERS["admin"])).text)
    for name in ("flintmq_authentications_total", "flintmq_authentication_failures_total"):
        assert scrape.by(name, "mechanism")["HTTP",] > 0
    path = broker.data_dir.with_name("audit.log")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        events = [json.loads(line) for line in path.read_text().splitlines()]
        denied = [one for one in events if one.get("principal") == "User:alice" and one["listener"] == "REST"]
        failed = [one for one in events if one["event"] == "authentication" and one["listener"] == "REST"]
        if denied and failed:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (denied[0]["api"], denied[0]["operation"], denied[0]["outcome"]) == (
        "GET /metrics",
        "DESCRIBE",
        "denied",
    )
    assert "wrong-again" not in path.read_text() + broker.errors


@pytest.mark.skipif(shutil.which("curl") is None, reason="toolchain: curl is not here")
def test_curl_takes_user_and_password(broker: BrokerProcess) -> None:
    host, port = address_of(broker)
    done = subprocess.run(
        ["curl", "-sf", "-K", "-", f"http://{host}:{port}/metrics"],
        input='user = "sally:sallys-secret"\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert "flintmq_ready 1" in done.stdout


# ---- the port and the network


def start(tmp_path: Path, *settings: str) -> BrokerProcess:
    words = [word for text in ("flint.rest.port=0", *settings) for word in ("--set", text)]
    return BrokerProcess(tmp_path / "data", words)


@pytest.mark.parametrize(
    ("user", "password", "words"),
    [
        ("admin", USERS["admin"], "requests/s"),
        ("alice", USERS["alice"], "403 Forbidden: the user needs an ACL"),
        ("alice", "wrong", "401 Unauthorized: it asks for credentials"),
    ],
)
def test_top_sends_the_credentials_of_the_command_config(
    broker: BrokerProcess, tmp_path: Path, user: str, password: str, words: str
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username={user}\nsasl.password={password}\n"
    )
    host, port = address_of(broker)
    arguments = ["--url", f"http://{host}:{port}", "--once", "--interval", "0.1"]
    done = CliRunner().invoke(main, ["top", *arguments, "--command-config", str(config)])
    assert words in done.output


def test_the_port_is_not_opened_to_the_network_without_authentication(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match=r"flint\.rest\.allow\.unauthenticated=true"):
        start(tmp_path, "flint.rest.host=0.0.0.0").start()
    with start(tmp_path, "flint.rest.host=0.0.0.0", "flint.rest.allow.unauthenticated=true") as broker:
        assert get(broker, "/metrics").status == 200


def test_an_authorizer_decides_about_anonymous_readers_too(tmp_path: Path) -> None:
    settings = (f"authorizer.class.name={STANDARD}", "super.users=User:admin")
    with start(tmp_path, *settings) as broker:
        assert get(broker, "/metrics").status == 403
        assert get(broker, "/health").status == 200
    with start(tmp_path, *settings, "flint.rest.allow.unauthenticated=true") as broker:
        assert get(broker, "/metrics").status == 200


# ---- TLS


def client_context(files: CertificateFiles, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


def test_client_certificates_over_https(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certs")
    alice = files.client(authority().issue("alice"), "alice")
    bob = files.client(authority().issue("bob"), "bob")
    settings = (
        "flint.rest.security.protocol=SSL",
        "flint.rest.authentication=certificate",
        f"listener.name.rest.ssl.keystore.location={files.keystore}",
        f"listener.name.rest.ssl.truststore.location={files.ca}",
        "listener.name.rest.ssl.client.auth=requested",
        "listener.name.rest.ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/",
        f"authorizer.class.name={STANDARD}",
        "super.users=User:alice",
    )
    with start(tmp_path, *settings) as broker:
        assert "https://" in broker.errors
        assert get(broker, "/metrics", tls=client_context(files, alice)).status == 200
        assert get(broker, "/metrics", tls=client_context(files, bob)).status == 403
        assert get(broker, "/metrics", tls=client_context(files)).status == 401
        assert get(broker, "/health", tls=client_context(files)).status == 200
        scrape = parse(get(broker, "/metrics", tls=client_context(files, alice)).text)
        assert scrape.by("flintmq_certificate_expiry_timestamp_seconds", "listener")["REST",] > time.time()
        with socket.create_connection(address_of(broker), timeout=PATIENCE_S) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b"HTTP" not in sock.recv(65536)


def test_a_certificate_is_replaced_while_running(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certs")
    settings = (
        "flint.rest.security.protocol=SSL",
        f"listener.name.rest.ssl.keystore.location={files.keystore}",
    )
    with start(tmp_path, *settings) as broker:
        context = client_context(files)

        def shown() -> bytes | None:
            with (
                socket.create_connection(address_of(broker), timeout=PATIENCE_S) as sock,
                context.wrap_socket(sock, server_hostname="localhost") as tls,
            ):
                return tls.getpeercert(binary_form=True)

        first = shown()
        files.replace_keystore(server_certificate("another").keystore_pem)
        os.kill(broker.pid, signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while shown() == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_secret_is_read_again_on_sighup(tmp_path: Path) -> None:
    """Users of the HTTP port from a JAAS text in a file."""
    secret = tmp_path / "alice"
    secret.write_text("first\n")
    settings = (
        "flint.rest.authentication=basic",
        "listener.name.rest.sasl.enabled.mechanisms=PLAIN",
        "listener.name.rest.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule "
        f'required user_alice="${{file:{secret}}}";',
        "connection.failed.authentication.delay.ms=0",
    )
    with start(tmp_path, *settings) as broker:
        assert get(broker, "/metrics", basic("alice", "first")).status == 200
        secret.write_text("second\n")
        os.kill(broker.pid, signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE_S
        while get(broker, "/metrics", basic("alice", "second")).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert get(broker, "/metrics", basic("alice", "first")).status == 401
        assert "second" not in get(broker, "/", basic("alice", "second")).text + broker.errors
