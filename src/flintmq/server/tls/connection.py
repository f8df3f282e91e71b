"""A connection with TLS: what arrives is decrypted into the buffers of `Connection`, what leaves is encrypted.

The engine is OpenSSL on two buffers in memory (`SSLObject`). It is created when the first bytes arrive: a client that
connects and stays silent costs a socket. Invariant: nothing is dispatched before the handshake is complete, and
nothing is decrypted while `Connection` does not want to read.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, cast

from flintmq.security.certificate import read_certificate
from flintmq.security.principal import Principal
from flintmq.server.closed_connections import CloseReason
from flintmq.server.connection import Connection, ServerContext
from flintmq.server.inbound import SHARED_BYTES
from flintmq.server.outbound import Outbound
from flintmq.server.tls.certificates import ListenerTls
from flintmq.server.tls.outbound import GATHERED_BYTES, TlsOutbound

_HANDSHAKE_RECORD: Final = 0x16
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth=required",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that ssl.enabled.protocols leaves out",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with ssl.cipher.suites and the broker's key",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority that signed the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the broker's certificate, perhaps because of its host name",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it finds that the broker's certificate has expired",
}


class TlsBuffers:
    """Buffers that all connections with TLS share: each is filled and emptied in one step of the loop."""

    __slots__ = ("gathered", "received")

    def __init__(self) -> None:
        self.received = memoryview(bytearray(SHARED_BYTES))
        self.gathered = memoryview(bytearray(GATHERED_BYTES))


class TlsConnection(Connection):
    __slots__ = ("_buffers", "_incoming", "_is_established", "_listener_tls", "_outgoing", "_secured", "_tls")

    def __init__(
        self,
        shared: ServerContext,
        listener: str,
        security_protocol: str,
        listener_tls: ListenerTls,
        buffers: TlsBuffers,
    ) -> None:
        super().__init__(shared, listener, security_protocol)
        self._listener_tls = listener_tls
        self._buffers = buffers
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_established = False

    def _create_outbound(self, fd: int) -> Outbound:
        shared = self._shared
        self._secured = TlsOutbound(
            fd,
            gathered=self._buffers.gathered,
            watcher=shared.loop,
            executor=shared.executor,
            abort=self.transport.abort,
            drained=self._drained,
        )
        return self._secured

    # ---- bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffers.received

    def buffer_updated(self, nbytes: int) -> None:
        received = self._buffers.received[:nbytes]
        if self._tls is None and not self._begin(received):
            return
        self._incoming.write(received)
        if self._is_established or self._continue_handshake():
            self._decrypt()

    def _begin(self, received: memoryview) -> bool:
        """Create the engine, unless the first byte shows that the client does not speak TLS."""
        if received[0] != _HANDSHAKE_RECORD:
            self._reject("this is not TLS, and the listener requires it; set security.protocol of the client")
            return False
        self._tls = tls = self._listener_tls.context.ssl.wrap_bio(
            self._incoming, self._outgoing, server_side=True
        )
        self._secured.attach(tls, self._outgoing)
        return True

    def _continue_handshake(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._secured.flush()
            return False
        except ssl.SSLError as error:
            self._reject(f"{_words(error)}; the TLS handshake failed")
            return False
        self._secured.flush()
        return self._establish(self._tls)

    def _establish(self, tls: ssl.SSLObject) -> bool:
        """The handshake is complete: take the principal from the client's certificate."""
        session = self.session
        certificate = tls.getpeercert(binary_form=True)
        if certificate is not None:
            try:
                session.ssl_peer = read_certificate(certificate).subject
            except ValueError as error:
                self._reject(f"its certificate cannot be read: {error}")
                return False
            if session.security_protocol == "SSL":
                name = self._listener_tls.context.mapping.name_of(session.ssl_peer)
                if name is None:
                    self._reject(f"no rule of ssl.principal.mapping.rules matches {session.ssl_peer!r}")
                    return False
                session.principal = Principal("User", name)
        self._is_established = True
        if session.is_authenticated:
            self._shared.unauthenticated.leave(self)
        return True

    def _decrypt(self) -> None:
        """Decrypt what has arrived, as far as `Connection` wants to read it."""
        # With a buffer to fill, `read` returns a count, and not bytes as its annotation claims.
        tls = cast(Any, self._tls)
        is_empty = has_ended = False
        while not (is_empty or has_ended or self._paused or self.transport.is_closing()):
            buffer = super().get_buffer(-1)
            filled, room = 0, len(buffer)
            try:
                while filled < room:
                    count: int = tls.read(room - filled, buffer[filled:])
                    if not count:
                        has_ended = True
                        break
                    filled += count
                    if not self._incoming.pending and filled < room:
                        # The record was read to its end. To ask for the next one would cost an exception.
                        is_empty = True
                        break
            except ssl.SSLWantReadError:
                is_empty = True
            except ssl.SSLError as error:
                self.refuse(f"its TLS records are damaged: {error.reason or error}", CloseReason.HANDSHAKE)
                return
            if filled:
                super().buffer_updated(filled)
        if has_ended:
            self.close()
            return
        self._secured.flush()
        if self._blocked():
            # Key updates that it does not read the answers of.
            self._pause()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        if not self._paused and self._incoming.pending:
            # Not at once: the caller may be in the middle of another connection's frames.
            self._shared.loop.call_soon(self._decrypt_held)

    def _decrypt_held(self) -> None:
        if self._is_established and not self._paused and not self.transport.is_closing():
            self._decrypt()

    # ---- the end

    def _reject(self, reason: str) -> None:
        self.refuse(reason, CloseReason.HANDSHAKE)

    def close(self) -> None:
        if not self.transport.is_closing():
            if self._is_established and self._tls is not None:
                try:
                    self._tls.unwrap()
                except (ssl.SSLError, ValueError):
                    # It waits for the other side's close_notify, which is not needed: frames have lengths.
                    pass
            self._secured.send_last()
        super().close()


def _words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        # The reason first: the log counts closed connections by the first words.
        return f"{error.verify_message}: its certificate is not accepted"
    reason = error.reason or str(error)
    return _REASONS.get(reason, reason)
