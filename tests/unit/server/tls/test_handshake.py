"""Before a client is known: certificates, old versions, plaintext, and clients that are slow on purpose."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import struct
from asyncio.subprocess import PIPE, STDOUT

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from flintmq.cli.cert.authority import IssuedCertificate
from support.broker.loopback import Client, LoopFactory, framed, run_on
from support.tls.certificates import DAY, CertificateFiles, authority, now, stranger
from support.tls.tls_client import TlsClient, client_context
from support.tls.tls_server import TlsServer, tls_serving


async def is_rejected(server: TlsServer, context: ssl.SSLContext) -> bool:
    """Whether the client is not served; in TLS 1.3 it learns so only after its own part of the handshake."""
    client = TlsClient(server.loop, await server.socket(), context)
    try:
        await client.handshake()
        await client.ask(b"E-rejected?")
    except (ssl.SSLError, EOFError, ConnectionError):
        return True
    return False


# ---- certificates of clients


def test_the_principal_is_the_name_in_the_certificate(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
            x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
        ]
    )
    certificate = files.client(authority().issue(subject))

    async def scenario() -> None:
        async with tls_serving(files.mutual_settings) as server:
            client = await server.connect(client_context(certificate))
            await client.ask(b"E")
            session = server.connection.session
            assert str(session.principal) == "User:CN=alice,O=Example"
            assert session.ssl_peer == "CN=alice,O=Example"

    run_on(loop_factory, scenario())


def test_mapping_rules_shorten_the_name(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    alice, bob = (files.client(authority().issue(name), name) for name in ("Alice", "Bob"))

    async def scenario() -> None:
        rules = {"ssl.principal.mapping.rules": "RULE:^CN=(A.*)$/$1/L"}
        async with tls_serving(files.mutual_settings | rules) as server:
            await (await server.connect(client_context(alice))).ask(b"E")
            assert str(server.connection.session.principal) == "User:alice"
            assert await is_rejected(server, client_context(bob))

    run_on(loop_factory, scenario())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_without_a_certificate_the_handshake_fails_where_one_is_required(
    loop_factory: LoopFactory,
    files: CertificateFiles,
    version: ssl.TLSVersion,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.mutual_settings) as server:
            assert await is_rejected(server, client_context(version=version))
            assert server.dispatcher.frames == []

    run_on(loop_factory, scenario())
    assert "it shows no certificate" in caplog.text


def test_without_a_certificate_a_client_is_anonymous_where_one_is_requested(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.mutual_settings | {"ssl.client.auth": "requested"}) as server:
            await (await server.connect()).ask(b"E")
            assert str(server.connection.session.principal) == "User:ANONYMOUS"
            unknown = files.client(stranger().issue("mallory"), "mallory")
            assert await is_rejected(server, client_context(unknown))

    run_on(loop_factory, scenario())


def test_certificates_that_are_not_valid_are_rejected_with_the_reason(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    issued = {
        "expired": authority().issue("old", not_before=now() - 2 * DAY, not_after=now() - DAY),
        "not yet valid": authority().issue("young", not_before=now() + DAY),
        "unable to get local issuer": stranger().issue("mallory"),
        "unsuitable certificate purpose": authority().issue("server", server=True),
        "self-signed": IssuedCertificate(stranger().certificate, stranger().key),
    }

    async def scenario() -> None:
        async with tls_serving(files.mutual_settings) as server:
            for at, certificate in enumerate(issued.values()):
                context = client_context(files.client(certificate, f"client-{at}"))
                assert await is_rejected(server, context)
            assert server.dispatcher.frames == []

    run_on(loop_factory, scenario())
    assert "expired" in caplog.text
    assert "not yet valid" in caplog.text
    assert "issuer" in caplog.text
    assert "self-signed" in caplog.text or "self signed" in caplog.text


def test_what_is_in_the_trust_store_is_trusted_also_if_it_is_no_root(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    """As in Java: a single self-signed client certificate may be trusted by itself."""
    alone = stranger().issue("alone")
    settings = files.mutual_settings | {"ssl.truststore.certificates": alone.certificate_pem.decode()}
    del settings["ssl.truststore.location"]

    async def scenario() -> None:
        async with tls_serving(settings) as server:
            await (await server.connect(client_context(files.client(alone)))).ask(b"E")
            assert str(server.connection.session.principal) == "User:CN=alone"

    run_on(loop_factory, scenario())


# ---- the certificate of the broker


def test_a_client_that_expects_another_host_name_turns_away(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            with pytest.raises(ssl.SSLCertVerificationError):
                await server.connect(host="elsewhere.example")
            await server.dispatcher.until(lambda: True)
            other = await server.connect()
            await other.ask(b"E")

    run_on(loop_factory, scenario())
    assert "it does not accept the broker's certificate" in caplog.text


# ---- old versions, other protocols


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_of_tls_are_refused(
    loop_factory: LoopFactory,
    files: CertificateFiles,
    version: ssl.TLSVersion,
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version

    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            assert await is_rejected(server, context)

    run_on(loop_factory, scenario())
    assert "it speaks only versions of TLS" in caplog.text


def test_sslv3_is_refused(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    body = b"\x03\x00" + bytes(32) + b"\x00" + b"\x00\x02\x00\x2f" + b"\x01\x00"
    hello = b"\x01" + len(body).to_bytes(3, "big") + body
    record = b"\x16\x03\x00" + struct.pack(">H", len(hello)) + hello

    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            client = await server.raw()
            await client.send(record)
            answer = await client.closed()
            assert answer[:1] in (b"", b"\x15")  # nothing, or an alert

    run_on(loop_factory, scenario())


def test_plaintext_to_a_tls_port_is_named_in_the_log(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            for data in (framed(b"\0\x12\0\0ApiVersions"), b"GET / HTTP/1.1\r\n\r\n"):
                client = await server.raw()
                await client.send(data)
                await client.closed()

    run_on(loop_factory, scenario())
    assert caplog.text.count("this is not TLS, and the listener requires it") == 2


def test_tls_to_a_plaintext_port_is_named_in_the_log(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_serving({"listeners": "PLAINTEXT://127.0.0.1:0"}) as server:
            with pytest.raises((EOFError, ssl.SSLError, ConnectionError)):
                await server.connect()

    run_on(loop_factory, scenario())
    assert "this is TLS, and the listener is plaintext" in caplog.text


def test_renegotiation_is_refused(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("toolchain: openssl")

    async def scenario() -> str:
        async with tls_serving(files.server_settings) as server:
            port = server.server.bound[0].port
            process = await asyncio.create_subprocess_exec(
                "openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{port}",
                stdin=PIPE, stdout=PIPE, stderr=STDOUT,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            seen = await process.stdout.readuntil(b"---\nSSL handshake has read")
            process.stdin.write(b"R\n")
            await process.stdin.drain()
            seen += await process.stdout.readuntil(b"RENEGOTIATING")
            seen += await process.stdout.read()
            await process.wait()
            return seen.decode()

    assert "no renegotiation" in run_on(loop_factory, scenario())


def test_key_updates_are_answered(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("toolchain: openssl")

    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            port = server.server.bound[0].port
            process = await asyncio.create_subprocess_exec(
                "openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{port}",
                stdin=PIPE, stdout=PIPE, stderr=STDOUT,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdout.readuntil(b"---\nSSL handshake has read")
            for number in range(3):
                # K asks for new keys on both sides; what follows is encrypted with them.
                process.stdin.write(b"K\n")
                await process.stdin.drain()
                await process.stdout.readuntil(b"KEYUPDATE")
                process.stdin.write(framed(b"E%d\n" % number))
                await process.stdin.drain()
                await process.stdout.readuntil(b"E%d\n" % number)
            process.kill()
            await process.wait()

    run_on(loop_factory, scenario())


# ---- slow and many


def test_a_handshake_that_takes_too_long_is_closed(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that is silent, and one that sends a byte from time to time."""

    async def scenario() -> None:
        async with tls_serving(files.server_settings | {"flint.authentication.timeout.ms": "300"}) as server:
            silent, slow = await server.raw(), await server.raw()
            hello = TlsClient(server.loop, slow.sock, client_context())
            with pytest.raises(ssl.SSLWantReadError):
                hello.tls.do_handshake()
            data = hello.outgoing.read()
            closed = asyncio.ensure_future(slow.closed())
            began = server.loop.time()
            for byte in data:
                if closed.done():
                    break
                try:
                    await slow.send(bytes((byte,)))
                except ConnectionError:
                    break
                await asyncio.wait([closed], timeout=0.02)
            await silent.closed()
            await closed
            assert 0.2 < server.loop.time() - began < 10
            assert server.server.unauthenticated == 0

    run_on(loop_factory, scenario())
    assert "it was not authenticated within 0.3 s" in caplog.text


def test_a_client_that_is_known_is_not_closed(loop_factory: LoopFactory, files: CertificateFiles) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings | {"flint.authentication.timeout.ms": "100"}) as server:
            client, silent = await server.connect(), await server.raw()
            await silent.closed()
            assert await client.ask(b"E") == b"E"

    run_on(loop_factory, scenario())


def test_connections_of_one_address_that_are_not_known_are_few(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        settings = {"flint.max.unauthenticated.connections.per.ip": "5"}
        async with tls_serving(files.server_settings | settings) as server:
            known = await server.connect()
            await known.ask(b"E")
            silent = [await server.raw() for _ in range(5)]
            assert await (await server.raw()).closed() == b""
            assert server.server.unauthenticated == 5
            silent[0].close()
            # The place is free once the server has seen it.
            while server.server.unauthenticated == 5:
                await known.ask(b"E")
            assert await (await server.connect()).ask(b"E") == b"E"

    run_on(loop_factory, scenario())


def test_the_oldest_gives_way_once_it_had_its_time(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        settings = {"flint.max.unauthenticated.connections": "3"}
        async with tls_serving(files.server_settings | settings) as server:
            silent: list[Client] = [await server.raw() for _ in range(3)]
            # All of them are recent: the new one goes.
            assert await (await server.raw()).closed() == b""
            pending = server.server._shared.unauthenticated
            for connection in pending._since:
                pending._since[connection] -= 2.0
            client = await server.connect()
            assert await client.ask(b"E") == b"E"
            assert await silent[0].closed() == b""
            assert server.server.unauthenticated == 2

    run_on(loop_factory, scenario())


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_half_open_handshakes_keep_nobody_out(files: CertificateFiles, count: int) -> None:
    """Each sends the beginning of a handshake and goes no further."""
    import resource

    import uvloop

    needed = count + 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < needed:
        pytest.skip(f"toolchain: {needed} descriptors are needed, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))

    async def scenario() -> None:
        settings = {
            "flint.max.unauthenticated.connections": "100",
            "flint.max.unauthenticated.connections.per.ip": "100",
            "flint.authentication.timeout.ms": "1000",
        }
        async with tls_serving(files.server_settings | settings) as server:
            hello = TlsClient(server.loop, await server.socket(), client_context())
            with pytest.raises(ssl.SSLWantReadError):
                hello.tls.do_handshake()
            half = hello.outgoing.read()[:200]
            attackers = []
            for _ in range(count):
                attackers.append(await server.raw())
                try:
                    await attackers[-1].send(half)
                except ConnectionError:
                    pass
                assert server.server.unauthenticated <= 100
            # At the latest after their time is over there is room.
            for one in attackers:
                await one.closed()
                one.close()
            assert await (await server.connect()).ask(b"E") == b"E"

    run_on(uvloop.new_event_loop, scenario())
