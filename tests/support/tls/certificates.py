"""Certificates for tests: one CA for the whole run, and files in a directory of the test."""

from __future__ import annotations

import datetime
from functools import cache
from pathlib import Path

from flintmq.cli.cert.authority import CertificateAuthority, IssuedCertificate

HOSTS = ("localhost", "127.0.0.1", "::1")
DAY = datetime.timedelta(days=1)


@cache
def authority() -> CertificateAuthority:
    return CertificateAuthority("test CA")


@cache
def stranger() -> CertificateAuthority:
    """A CA that nobody trusts."""
    return CertificateAuthority("another CA")


@cache
def server_certificate(name: str = "localhost") -> IssuedCertificate:
    return authority().issue(name, hosts=HOSTS, server=True)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class CertificateFiles:
    """PEM files: `ca`, `keystore` of the broker, and those of clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = self._write("ca.pem", authority().certificate_pem)
        self.keystore = self._write("server.pem", server_certificate().keystore_pem)

    def _write(self, name: str, data: bytes) -> str:
        path = self.directory / name
        path.write_bytes(data)
        return str(path)

    def client(self, issued: IssuedCertificate, name: str = "client") -> tuple[str, str]:
        """The paths of certificate and key."""
        return (
            self._write(f"{name}.crt", issued.certificate_pem),
            self._write(f"{name}.key", issued.key_pem),
        )

    def replace_keystore(self, data: bytes) -> None:
        aside = self.directory / "server.pem.new"
        aside.write_bytes(data)
        aside.replace(self.keystore)

    @property
    def server_settings(self) -> dict[str, str]:
        return {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": self.keystore}

    @property
    def mutual_settings(self) -> dict[str, str]:
        return self.server_settings | {"ssl.client.auth": "required", "ssl.truststore.location": self.ca}
