"""Attacks on TLS listeners, and on passwords, while a healthy client works beside them."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from flintmq.protocol.messages import MetadataRequest, SaslAuthenticateRequest
from flintmq.security.authentication.password_hash import hash_password
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.broker.secured import SaslWire, plain
from support.tls.certificates import CertificateFiles
from support.wire.wire import Wire

PLACES = 100
"""For connections of one address that are not authenticated."""
GUESSES = 300
PATIENCE_S = 8.0
"""Less than the fifteen seconds after which half-open connections are closed anyway."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(tmp_path: Path, files: CertificateFiles) -> Iterator[BrokerProcess]:
    """With a listener for the healthy client, one with TLS, and one with passwords."""
    users = tmp_path / "users"
    users.write_text(f"alice:{hash_password('secret', b'salt' * 4)}\n")
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        f"ssl.keystore.location={files.keystore}",
        "sasl.enabled.mechanisms=PLAIN",
        f"flint.users.file={users}",
        f"flint.max.unauthenticated.connections.per.ip={PLACES + GUESSES}",
        "flint.rest.port=-1",
    )
    with BrokerProcess(tmp_path / "data", [word for one in settings for word in ("--set", one)]) as started:
        yield started


def hello_of(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def tls_wire(address: str, context: ssl.SSLContext) -> Wire:
    wire = Wire(address)
    try:
        wire.sock = context.wrap_socket(wire.sock, server_hostname="localhost")
    except OSError:
        wire.sock.close()
        raise
    return wire


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [800, pytest.param(10_000, marks=pytest.mark.long)])
def test_half_open_handshakes_disturb_nobody(
    broker: BrokerProcess, files: CertificateFiles, count: int
) -> None:
    """All from one address, as behind a load balancer; still another client of that address gets in."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count + 200:
        pytest.skip(f"toolchain: a descriptor limit above {count + 200}; here it is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    context = ssl.create_default_context(cafile=files.ca)
    half = hello_of(context)[:200]
    with watched(broker), ExitStack() as open_connections:
        for number in range(count):
            wire = open_connections.enter_context(Wire(broker.addresses[1]))
            try:
                wire.sock.sendall((half, b"", half[:1], b"GET / HTTP/1.1\r\n\r\n")[number % 4])
            except ConnectionError:
                pass  # turned away
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with tls_wire(broker.addresses[1], context) as good:
                    assert good.metadata().brokers
                    break
            except OSError:
                assert time.monotonic() < deadline, broker.errors


def test_handshakes_one_byte_at_a_time_disturb_nobody(broker: BrokerProcess, files: CertificateFiles) -> None:
    context = ssl.create_default_context(cafile=files.ca)
    with watched(broker), ExitStack() as open_connections:
        sockets = [open_connections.enter_context(Wire(broker.addresses[1])).sock for _ in range(50)]
        hello = hello_of(context)
        for at in range(len(hello)):
            for sock in sockets:
                sock.sendall(hello[at : at + 1])
        for sock in sockets:
            assert sock.recv(1) == b"\x16", "the server's part of the handshake"


def test_guessed_passwords_do_not_keep_another_address_out(broker: BrokerProcess) -> None:
    """More of them than the queue of passwords to hash can hold, each of which takes milliseconds."""
    address = broker.addresses[2]
    with watched(broker), ExitStack() as open_connections:
        for number in range(GUESSES):
            wire = open_connections.enter_context(SaslWire(address))
            wire.handshake("PLAIN")
            token = wire.frame(SaslAuthenticateRequest(auth_bytes=plain("alice", f"guess {number}")), 2, 2)
            try:
                wire.sock.sendall(token)
            except ConnectionError:
                pass  # turned away
        with SaslWire(address) as good:
            good.sock.close()
            host, port = address.split(":")
            good.sock = socket.create_connection((host, int(port)), 30, source_address=("127.0.0.2", 0))
            began = time.monotonic()
            assert good.authenticate("alice", "secret").error_code == 0
            assert time.monotonic() - began < 2.0
            assert good.ask(MetadataRequest(topics=[]), 12)
