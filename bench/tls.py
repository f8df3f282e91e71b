"""Certificates for the brokers' TLS listeners, and the TLS of the client's side.

Both brokers get the same key and certificate. The client offers TLS 1.3 alone, with OpenSSL's order of cipher suites,
whose first is `CIPHER`; a broker that chooses another one is not compared.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Final

CIPHER: Final = "TLS_AES_256_GCM_SHA384"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    server: str
    """The key and the certificate of the brokers, in PEM."""
    authority: str


def is_available() -> bool:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        return False
    return True


def make_certificates(folder: str) -> TlsFiles:
    from flintmq.cli.cert.authority import CertificateAuthority

    os.makedirs(folder, exist_ok=True)
    files = TlsFiles(os.path.join(folder, "server.pem"), os.path.join(folder, "ca.pem"))
    authority = CertificateAuthority()
    server = authority.issue("localhost", hosts=["127.0.0.1", "localhost"], server=True)
    for path, data in ((files.server, server.keystore_pem), (files.authority, authority.certificate_pem)):
        with open(path, "wb") as file:
            file.write(data)
    return files


def client_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
