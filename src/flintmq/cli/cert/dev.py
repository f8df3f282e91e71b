"""`flintmq cert dev`: a private CA, a server certificate and a client certificate, as PEM files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES, CommandFailure

_LOCAL = ("localhost", "127.0.0.1", "::1")


@click.command(
    "dev",
    cls=Command,
    examples=(
        "flintmq cert dev ./certs",
        "flintmq cert dev ./certs --host broker-1.example --host 10.0.0.7",
        "flintmq cert dev ./certs --client alice",
    ),
    exit_codes=LOCAL_CODES,
)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name or address by which clients reach the broker; may be repeated. This machine's are always in.",
)
@click.option(
    "--client", default="client", show_default=True, help="The name (CN) in the client certificate."
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def command(directory: Path, hosts: tuple[str, ...], client: str, force: bool) -> None:
    """Make a private CA and certificates for trying TLS and mutual TLS.

    DIRECTORY gets five files. The key of the CA is not kept, so that no more certificates can be signed with it;
    to add a host, run the command again. Not for production: use the certificates of your organisation there.

    \b
      ca.pem          the CA; clients trust it          ssl.ca.location, ssl.truststore.location
      server.pem      key and certificate of the broker ssl.keystore.location
      client.pem      key and certificate of a client   ssl.keystore.location of Java clients
      client.crt, client.key   the same apart           ssl.certificate.location, ssl.key.location

    \b
    TLS: the broker shows its certificate.
      flintmq serve --set listeners=SSL://localhost:9093 --set ssl.keystore.location=DIRECTORY/server.pem
      kcat -b localhost:9093 -X security.protocol=SSL -X ssl.ca.location=DIRECTORY/ca.pem -L

    \b
    Mutual TLS: clients show one too, and are known as User:CN=client.
      flintmq serve … --set ssl.client.auth=required --set ssl.truststore.location=DIRECTORY/ca.pem
      kcat … -X ssl.certificate.location=DIRECTORY/client.crt -X ssl.key.location=DIRECTORY/client.key -L
    """
    try:
        from flintmq.cli.cert.authority import CertificateAuthority
    except ImportError:
        raise CommandFailure(
            "Making certificates needs the extra `security`; install it: pip install 'flintmq[security]'"
        ) from None
    authority = CertificateAuthority()
    names = list(dict.fromkeys((*_LOCAL, socket.gethostname(), *hosts)))
    server = authority.issue(hosts[0] if hosts else "localhost", hosts=names, server=True)
    one = authority.issue(client)
    files = {
        "ca.pem": authority.certificate_pem,
        "server.pem": server.keystore_pem,
        "client.pem": one.keystore_pem,
        "client.crt": one.certificate_pem,
        "client.key": one.key_pem,
    }
    there = [name for name in files if (directory / name).exists()]
    if there and not force:
        raise CommandFailure(
            f"{directory} already has {', '.join(there)}; use --force to replace them, or another directory."
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            _write(directory / name, data)
    except OSError as error:
        raise CommandFailure(f"{error.filename or directory} cannot be written: {error.strerror}.") from error
    click.echo(
        f"{directory} has a CA, a server certificate for {', '.join(names)}, and one for client {client}."
    )
    click.echo("Start a broker with TLS:")
    click.echo(
        f"  flintmq serve --set listeners=SSL://localhost:9093 --set ssl.keystore.location={directory}/server.pem"
    )


def _write(path: Path, data: bytes) -> None:
    """Replace a file as a whole; only the owner may read it. A running broker sees the old one or the new one."""
    aside = path.with_name(path.name + ".tmp")
    aside.unlink(missing_ok=True)
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(aside, path)
