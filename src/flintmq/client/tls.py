"""TLS to a broker: a context from the settings, and transports that encrypt.

The context is made for the first connection and used for all of one client. Invariant: a certificate that cannot be
verified ends the attempt with a TlsFailed that says what to do; nothing is sent to a broker before it is verified.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flintmq.client.addresses import Address
from flintmq.client.errors import NoBrokerReached, TlsFailed
from flintmq.client.security import ClientSecurity, TlsTrust
from flintmq.client.transport import Connect, SocketTransport, connect, open_socket
from flintmq.effects import Buffer, Clock
from flintmq.effects.memory_file import in_memory
from flintmq.errors import ConfigurationError
from flintmq.settings.references import resolve_references

_HOST_MISMATCH: Final = (62, 64)
"""OpenSSL's codes: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH."""
_CLIENT_CERTIFICATE: Final = (
    "set ssl.certificate.location and ssl.key.location to a certificate that the broker trusts"
)
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": f"the broker requires a client certificate; {_CLIENT_CERTIFICATE}",
    "UNKNOWN_CA": f"the broker does not trust the client's certificate; {_CLIENT_CERTIFICATE}",
    "BAD_CERTIFICATE": f"the broker rejects the client's certificate; {_CLIENT_CERTIFICATE}",
    "CERTIFICATE_EXPIRED": "the client's certificate has expired; replace the file of ssl.certificate.location",
    "CERTIFICATE_UNKNOWN": f"the broker rejects the client's certificate; {_CLIENT_CERTIFICATE}",
    "HANDSHAKE_FAILURE": f"the handshake failed; if the broker requires a client certificate, {_CLIENT_CERTIFICATE}",
    "PROTOCOL_VERSION": "broker and client have no version of TLS in common",
}


def connector(security: ClientSecurity, clock: Clock) -> Connect:
    """Return what opens transports for these settings."""
    return TlsConnector(security, clock) if security.has_tls else connect


class TlsConnector:
    def __init__(self, security: ClientSecurity, clock: Clock) -> None:
        self._security = security
        self._clock = clock
        self._context: ssl.SSLContext | None = None

    def __call__(self, address: Address, timeout_s: float) -> SocketTransport:
        if self._context is None:
            self._context = client_context(self._security.tls)
        deadline = self._clock.monotonic() + timeout_s
        sock = open_socket(address, timeout_s)
        try:
            encrypted = self._context.wrap_socket(
                sock, server_hostname=address.host, do_handshake_on_connect=False
            )
        except BaseException:
            sock.close()
            raise
        try:
            self._handshake(encrypted, address, deadline)
        except BaseException:
            encrypted.close()
            raise
        return TlsTransport(encrypted, address)

    def _handshake(self, sock: ssl.SSLSocket, address: Address, deadline: float) -> None:
        """Raise TimeoutError at the deadline, however slowly the other side sends."""
        sock.setblocking(False)
        while True:
            try:
                sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except ssl.SSLError as error:
                raise self._failed(error, address) from None
            except OSError:
                raise self._closed(address) from None
            left_s = deadline - self._clock.monotonic()
            poller = select.poll()
            poller.register(sock, event)
            if left_s <= 0 or not poller.poll(left_s * 1000):
                raise TimeoutError

    def _failed(self, error: ssl.SSLError, address: Address) -> Exception:
        if isinstance(error, ssl.SSLEOFError):
            return self._closed(address)
        if isinstance(error, ssl.SSLCertVerificationError):
            return TlsFailed(address, _unverified(error, address, self._security.tls))
        reason = error.reason or str(error)
        if reason in (
            "WRONG_VERSION_NUMBER",
            "HTTP_REQUEST",
            "PACKET_LENGTH_TOO_LONG",
            "UNSUPPORTED_PROTOCOL",
        ):
            return TlsFailed(address, f"the listener does not answer in TLS; {self._without_tls}")
        return TlsFailed(address, _alert(reason) or f"the handshake failed ({reason})")

    def _closed(self, address: Address) -> NoBrokerReached:
        reason = "it closed the connection during the TLS handshake; if the listener has no TLS, "
        return NoBrokerReached([(address, reason + self._without_tls)])

    @property
    def _without_tls(self) -> str:
        return f"set security.protocol={'SASL_PLAINTEXT' if self._security.has_sasl else 'PLAINTEXT'}"


class TlsTransport(SocketTransport):
    """With TLS 1.3 a broker rejects a client certificate after the handshake: the first response is the alert."""

    def __init__(self, sock: ssl.SSLSocket, address: Address) -> None:
        super().__init__(sock)
        self._address = address

    def send(self, data: Buffer, timeout_s: float) -> None:
        with self._explained():
            super().send(data, timeout_s)

    def receive(self, room: memoryview, timeout_s: float) -> int:
        with self._explained():
            return super().receive(room, timeout_s)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLError as error:
            if (reason := _alert(error.reason or "")) is not None:
                raise TlsFailed(self._address, reason) from None
            raise


def client_context(tls: TlsTrust) -> ssl.SSLContext:
    """Raise ConfigurationError that names the setting that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_host
    # As in Java, whatever is in the trust store is trusted, also if it is not the root of a chain.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.ca_location:
        path = resolve_references(tls.ca_location, "ssl.ca.location")
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError:
            raise ConfigurationError(
                f"ssl.ca.location={path} holds no certificate (-----BEGIN CERTIFICATE-----)"
            ) from None
        except OSError as error:
            raise ConfigurationError(f"ssl.ca.location={path} cannot be read: {error.strerror}") from None
    if tls.ca_pem:
        try:
            context.load_verify_locations(cadata=_pem(tls.ca_pem, "ssl.truststore.certificates"))
        except ssl.SSLError as error:
            raise ConfigurationError(f"ssl.truststore.certificates: {error.reason or error}") from None
    if not tls.ca_location and not tls.ca_pem:
        context.load_default_certs()
    _load_certificate(context, tls)
    return context


def _load_certificate(context: ssl.SSLContext, tls: TlsTrust) -> None:
    if tls.key_pem:
        key = _pem(tls.key_pem, "ssl.keystore.key")
        chain = _pem(tls.certificate_pem, "ssl.keystore.certificate.chain")
        with in_memory(f"{key}\n{chain}\n".encode()) as path:
            _load(context, path, None, tls, "ssl.keystore.key and ssl.keystore.certificate.chain")
    elif tls.certificate_location:
        path = resolve_references(tls.certificate_location, "ssl.certificate.location")
        key_path = resolve_references(tls.key_location, "ssl.key.location") or None
        what = f"ssl.certificate.location={path}"
        _load(
            context, path, key_path, tls, what if key_path is None else f"{what}, ssl.key.location={key_path}"
        )


def _load(context: ssl.SSLContext, path: str, key_path: str | None, tls: TlsTrust, what: str) -> None:
    def password() -> str:
        # Without a function OpenSSL would ask at the terminal.
        if not tls.key_password:
            raise ConfigurationError("the private key is encrypted; set ssl.key.password")
        return resolve_references(tls.key_password, "ssl.key.password")

    try:
        context.load_cert_chain(path, key_path, password=password)
    except ssl.SSLError as error:
        reason = error.reason or "it holds no certificate and key in PEM form"
        words = {
            "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
            "BAD_DECRYPT": "ssl.key.password is wrong",
        }
        raise ConfigurationError(f"{what}: {words.get(reason, reason)}") from None
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be read: {error.strerror}") from None


def _pem(value: str, what: str) -> str:
    # A properties file or an environment variable often has the two characters in place of a line end.
    return resolve_references(value, what).replace("\\n", "\n")


def _unverified(error: ssl.SSLCertVerificationError, address: Address, tls: TlsTrust) -> str:
    if error.verify_code in _HOST_MISMATCH:
        return (
            f"the broker's certificate is not for {address.host}; connect by a name that the certificate has, or, "
            "where that cannot be, set ssl.endpoint.identification.algorithm=none"
        )
    message = error.verify_message.rstrip(".")
    if error.verify_code in (9, 10):
        return f"the broker's certificate cannot be used: {message}; check the broker's certificate and the clocks"
    what = "ssl.ca.location" if tls.ca_location or not tls.ca_pem else "ssl.truststore.certificates"
    return f"the broker's certificate is not trusted: {message}; set {what} to the CA that issued it"


def _alert(reason: str) -> str | None:
    """Return what an alert of the broker means, and what to do; None if it is none of these."""
    return next((words for name, words in _ALERTS.items() if reason.endswith(f"ALERT_{name}")), None)
