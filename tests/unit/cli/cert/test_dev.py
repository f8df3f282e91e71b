"""`flintmq cert dev`: files that work, and are not overwritten by accident."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from click.testing import CliRunner
from cryptography import x509

from flintmq.cli.main import main

NAMES = ["ca.pem", "client.crt", "client.key", "client.pem", "server.pem"]


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["cert", "dev", *args])
    return result.exit_code, result.output


def test_the_files_are_there_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    code, output = run(str(tmp_path / "certs"), "--host", "broker-1.example", "--host", "10.0.0.7")
    assert code == 0, output
    found = sorted((tmp_path / "certs").iterdir())
    assert [path.name for path in found] == NAMES
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    server = x509.load_pem_x509_certificate((tmp_path / "certs" / "server.pem").read_bytes())
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"broker-1.example", "localhost"} <= set(hosts.get_values_for_type(x509.DNSName))
    assert {"10.0.0.7", "127.0.0.1", "::1"} <= {
        str(address) for address in hosts.get_values_for_type(x509.IPAddress)
    }


def test_both_sides_accept_each_other(tmp_path: Path) -> None:
    run(str(tmp_path), "--client", "alice")
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    server_side.verify_mode = ssl.CERT_REQUIRED
    server_side.load_cert_chain(str(tmp_path / "server.pem"))
    client_side = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client_side.load_cert_chain(str(tmp_path / "client.crt"), str(tmp_path / "client.key"))
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(one, two, server_hostname="localhost")
    server = server_side.wrap_bio(two, one, server_side=True)
    for engine in (client, server, client, server):
        try:
            engine.do_handshake()
        except ssl.SSLWantReadError:
            pass
    peer = server.getpeercert()
    assert peer is not None
    assert peer["subject"] == ((("commonName", "alice"),),)


def test_files_are_replaced_only_when_asked(tmp_path: Path) -> None:
    run(str(tmp_path))
    before = (tmp_path / "ca.pem").read_bytes()
    code, output = run(str(tmp_path))
    assert code == 1
    assert "--force" in output
    assert (tmp_path / "ca.pem").read_bytes() == before
    assert run(str(tmp_path), "--force")[0] == 0
    assert (tmp_path / "ca.pem").read_bytes() != before


def test_a_directory_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, output = run(str(tmp_path / "file" / "certs"))
    assert code == 1
    assert "cannot be written" in output


def test_help_teaches() -> None:
    code, output = run("--help")
    assert code == 0
    for word in ("ssl.keystore.location", "ssl.client.auth=required", "Examples", "Exit codes"):
        assert word in output
