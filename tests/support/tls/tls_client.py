"""A TLS client of which every step is in the hands of the test."""

from __future__ import annotations

import asyncio
import socket
import ssl

from flintmq.cli.cert.authority import IssuedCertificate
from support.broker.loopback import Client
from support.tls.certificates import authority


def client_context(
    certificate: tuple[str, str] | None = None, *, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority().certificate_pem.decode())
    if certificate is not None:
        context.load_cert_chain(*certificate)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


class TlsClient(Client):
    """`Client` with TLS between it and its socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        host: str | None = "localhost",
    ) -> None:
        super().__init__(loop, sock)
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)

    async def flush(self) -> None:
        if self.outgoing.pending:
            await self._loop.sock_sendall(self.sock, self.outgoing.read())

    async def _receive(self) -> None:
        data = await self._loop.sock_recv(self.sock, 1 << 20)
        if not data:
            raise EOFError
        self.incoming.write(data)

    async def handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                await self._receive()
            except ssl.SSLError:
                await self.flush()
                raise
            else:
                await self.flush()
                return

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await self.flush()

    async def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                data = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                await self._receive()
                continue
            if not data:
                raise EOFError
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def notified_of_the_end(self) -> bool:
        """Whether the other side says close_notify before it closes."""
        try:
            await self.read(1)
        except EOFError:
            try:
                return self.tls.read(1) == b""
            except ssl.SSLWantReadError:
                return False
        raise AssertionError("more data came")

    @property
    def server_certificate(self) -> bytes:
        found = self.tls.getpeercert(binary_form=True)
        assert found is not None
        return found


def is_certificate(client: TlsClient, issued: IssuedCertificate) -> bool:
    return (
        ssl.DER_cert_to_PEM_cert(client.server_certificate).strip() == issued.certificate_pem.decode().strip()
    )
