"""Key and trust stores in every form, and their replacement while the server runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)

from flintmq.errors import ConfigurationError
from support.broker.loopback import LoopFactory, run_on
from support.tls.certificates import CertificateFiles, authority, server_certificate
from support.tls.tls_client import client_context, is_certificate
from support.tls.tls_server import tls_serving

OTHER = server_certificate("other")


def listening(**settings: str) -> dict[str, str]:
    return {"listeners": "SSL://127.0.0.1:0"} | {
        name.replace("__", "."): text for name, text in settings.items()
    }


def encrypted_key(password: str) -> str:
    key = server_certificate().key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    return key.decode()


def pkcs12_store(password: str) -> bytes:
    issued = server_certificate()
    encryption = BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(
        b"broker", issued.key, issued.certificate, [authority().certificate], encryption
    )


# ---- forms of stores

FORMS = ("in the settings", "on one line", "encrypted in the settings", "an encrypted file", "PKCS12")


def stores(directory: Path) -> dict[str, dict[str, str]]:
    issued = server_certificate()
    chain, key = issued.certificate_pem.decode(), issued.key_pem.decode()
    (directory / "key.p12").write_bytes(pkcs12_store("secret"))
    (directory / "encrypted.pem").write_text(encrypted_key("secret") + chain)
    return {
        "in the settings": {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key},
        "on one line": {
            "ssl.keystore.certificate.chain": chain.replace("\n", " "),
            "ssl.keystore.key": key.replace("\n", "\\n"),
        },
        "encrypted in the settings": {
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": encrypted_key("secret"),
            "ssl.key.password": "secret",
        },
        "an encrypted file": {
            "ssl.keystore.location": str(directory / "encrypted.pem"),
            "ssl.key.password": "secret",
        },
        "PKCS12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(directory / "key.p12"),
            "ssl.keystore.password": "secret",
        },
    }


@pytest.mark.parametrize("form", FORMS)
def test_a_key_store_is_loaded_in_every_form(loop_factory: LoopFactory, tmp_path: Path, form: str) -> None:
    settings = listening() | stores(tmp_path)[form]
    before = sorted(os.listdir(tmp_path))

    async def scenario() -> None:
        async with tls_serving(settings) as server:
            client = await server.connect()
            assert await client.ask(b"E") == b"E"
            assert is_certificate(client, server_certificate())

    run_on(loop_factory, scenario())
    assert sorted(os.listdir(tmp_path)) == before


def test_a_pkcs12_trust_store(loop_factory: LoopFactory, files: CertificateFiles, tmp_path: Path) -> None:
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(authority().certificate, b"ca")], BestAvailableEncryption(b"secret")
    )
    (tmp_path / "trust.p12").write_bytes(store)
    settings = files.mutual_settings | {
        "ssl.truststore.location": str(tmp_path / "trust.p12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": "secret",
    }

    async def scenario() -> None:
        async with tls_serving(settings) as server:
            certificate = files.client(authority().issue("alice"))
            assert await (await server.connect(client_context(certificate))).ask(b"E") == b"E"

    run_on(loop_factory, scenario())


def test_stores_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    import uvloop

    issued = server_certificate()
    contents = {
        "jks": b"\xfe\xed\xfe\xed" + bytes(20),
        "p12": pkcs12_store("secret"),
        "empty": b"",
        "no key": issued.certificate_pem,
        "other key": OTHER.key_pem + issued.certificate_pem,
        "encrypted": encrypted_key("secret").encode() + issued.certificate_pem,
        "damaged": issued.key_pem + issued.certificate_pem.replace(b"MII", b"MIJ", 1),
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    wanted = [
        ({"location": "jks"}, "keytool -importkeystore"),
        ({"location": "p12"}, "ssl.keystore.type=PKCS12"),
        ({"location": "p12", "type": "PKCS12", "password": "wrong"}, "check the password"),
        ({"location": "missing"}, "No such file"),
        ({"location": "empty"}, "holds no certificate"),
        ({"location": "no key"}, "must hold one private key, and holds 0"),
        ({"location": "other key"}, "does not belong to the first certificate"),
        ({"location": "encrypted"}, "set ssl.key.password"),
        ({"location": "damaged"}, "cannot be used"),
    ]

    async def fails(settings: dict[str, str], words: str) -> None:
        given = {f"ssl.keystore.{name}": text for name, text in settings.items()}
        given["ssl.keystore.location"] = str(tmp_path / settings["location"])
        with pytest.raises(ConfigurationError, match=words) as caught:
            async with tls_serving(listening() | given):
                pass
        assert "Listener SSL" in str(caught.value)

    for settings, words in wanted:
        run_on(uvloop.new_event_loop, fails(settings, words))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "ssl.principal.mapping.rules"),
        ({"ssl.cipher.suites": "ECDHE-RSA-AES999-GCM-SHA256"}, "is not available"),
        ({"ssl.client.auth": "required", "ssl.truststore.certificates": "none"}, "holds no certificate"),
    ],
)
def test_other_settings_that_only_openssl_can_judge(
    loop_factory: LoopFactory, files: CertificateFiles, settings: dict[str, str], words: str
) -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match=words):
            async with tls_serving(files.server_settings | settings):
                pass

    run_on(loop_factory, scenario())


# ---- replacement


def test_a_changed_file_is_shown_to_new_connections_and_old_ones_stay(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            old = await server.connect()
            await server.refreshed()
            assert is_certificate(await server.connect(), server_certificate())
            files.replace_keystore(OTHER.keystore_pem)
            await server.refreshed()
            new = await server.connect()
            assert is_certificate(new, OTHER)
            assert await old.ask(b"E-old") == b"E-old"
            assert await new.ask(b"E-new") == b"E-new"
            expiry = OTHER.certificate.not_valid_after_utc.timestamp()
            assert server.server.certificate_expiry() == {"SSL": expiry}

    run_on(loop_factory, scenario())


def test_a_bad_file_leaves_the_old_certificate_and_is_logged_once(
    loop_factory: LoopFactory, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            files.replace_keystore(b"not a certificate")
            await server.refreshed()
            await server.refreshed()
            assert is_certificate(await server.connect(), server_certificate())
            os.remove(files.keystore)
            await server.refreshed()
            assert is_certificate(await server.connect(), server_certificate())
            files.replace_keystore(OTHER.keystore_pem)
            await server.refreshed()
            assert is_certificate(await server.connect(), OTHER)

    run_on(loop_factory, scenario())
    assert caplog.text.count("holds no certificate") == 1
    assert caplog.text.count("the old one stays in force") == 2


def test_changed_settings_are_checked_and_then_in_force(
    loop_factory: LoopFactory, files: CertificateFiles
) -> None:
    async def scenario() -> None:
        async with tls_serving(files.server_settings) as server:
            server.configure(files.server_settings | {"listener.name.ssl.ssl.keystore.location": "/missing"})
            with pytest.raises(ConfigurationError, match="No such file"):
                (await server.server.prepare(server.config)).abandon()
            (files.directory / "other.pem").write_bytes(OTHER.keystore_pem)
            location = {"listener.name.ssl.ssl.keystore.location": str(files.directory / "other.pem")}
            server.configure(files.server_settings | location)
            (await server.server.prepare(server.config)).abandon()
            await server.refreshed()
            assert is_certificate(await server.connect(), OTHER)

    run_on(loop_factory, scenario())
