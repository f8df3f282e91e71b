"""A broker with SASL, and connections to it that speak SASL step by step."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from pathlib import Path

from flintmq.client.sasl import SaslClient, sasl_client
from flintmq.protocol import scram
from flintmq.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerProcess
from support.wire.wire import Wire

USERS = {"admin": "admin-secret", "alice": "alice-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = 4096


def jaas(users: Mapping[str, str]) -> str:
    options = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


def secured_broker(data_dir: Path, *settings: str, users: Mapping[str, str] = USERS) -> BrokerProcess:
    """Not started. PLAIN knows `users`; SCRAM knows nobody yet."""
    args = [
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas(users)}",
        "flint.rest.port=-1",
        *settings,
    ]
    return BrokerProcess(data_dir, [word for text in args for word in ("--set", text)])


def sasl_ssl_broker(directory: Path, *settings: str, users: Mapping[str, str] = USERS) -> BrokerProcess:
    """Not started. SASL_SSL on localhost; PLAIN knows `users`; the CA is in `directory`/ca.pem."""
    from support.tls.certificates import CertificateFiles

    args = [
        "listeners=SASL_SSL://localhost:0",
        f"ssl.keystore.location={CertificateFiles(directory).keystore}",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config=${env:USERS_OF_PLAIN}",
        "flint.rest.port=-1",
        *settings,
    ]
    # Passwords are not on the command line, which everybody can see.
    return BrokerProcess(
        directory / "data",
        [word for text in args for word in ("--set", text)],
        env={"USERS_OF_PLAIN": jaas(users)},
    )


def sasl_ssl_settings(directory: Path, user: str, password: str) -> dict[str, str]:
    """Client settings for `sasl_ssl_broker`."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


class SaslWire(Wire):
    """One step at a time, so that a test may do something else in between."""

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        response = self.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        assert isinstance(response, SaslHandshakeResponse)
        return response

    def token(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        response = self.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        assert isinstance(response, SaslAuthenticateResponse)
        return response

    def send_bare(self, token: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(token)) + token)

    def authenticate(
        self,
        user: str,
        password: str,
        mechanism: str = "PLAIN",
        version: int = 2,
        *,
        is_delegation_token: bool = False,
    ) -> SaslAuthenticateResponse:
        """Return the last response, whether it succeeded or not."""
        assert self.handshake(mechanism).error_code == 0
        client = client_of(mechanism, user, password, is_delegation_token=is_delegation_token)
        token: bytes | None = client.first()
        while token is not None:
            response = self.token(token, version)
            if response.error_code:
                return response
            token = client.next(bytes(response.auth_bytes))
        return response

    def add_scram_user(self, user: str, password: str, *mechanisms: ScramMechanism) -> None:
        upsertions = [
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.type,
                iterations=ITERATIONS,
                salt=b"a salt of " + user.encode(),
                salted_password=scram.salted_password(
                    mechanism, password, b"a salt of " + user.encode(), ITERATIONS
                ),
            )
            for mechanism in mechanisms
        ]
        for upsertion in upsertions:
            response = self.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
            assert isinstance(response, AlterUserScramCredentialsResponse)
            assert [one.error_code for one in response.results] == [0]


def client_of(mechanism: str, user: str, password: str, *, is_delegation_token: bool = False) -> SaslClient:
    return sasl_client(
        mechanism, user, password, b"a nonce of a test!", is_delegation_token=is_delegation_token
    )


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
