"""Mutated TLS handshakes and SASL tokens: nobody is let in by one, and nothing but a refusal comes of it.

Tokens are given to the mechanisms themselves, which takes microseconds; handshakes and whole exchanges go to a broker
over its listeners with TLS and SASL, beside a healthy client.
"""

from __future__ import annotations

import base64
import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from flintmq.effects.real import SystemClock
from flintmq.protocol import scram
from flintmq.protocol.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from flintmq.protocol.scram import ScramCredential, ScramMechanism
from flintmq.security.authentication.mechanism import Identity, SaslFailure, SaslStep
from flintmq.security.authentication.oauthbearer.keys import KeyFile
from flintmq.security.authentication.oauthbearer.server import OAuthBearerServer
from flintmq.security.authentication.oauthbearer.token import TokenRules
from flintmq.security.authentication.plain import PlainServer
from flintmq.security.authentication.scram import ScramServer
from flintmq.security.certificate import read_certificate
from hostile.mutations import mutated
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.broker.secured import MECHANISMS, USERS, jaas
from support.security.tokens import key_set, signed
from support.tls.certificates import CertificateFiles, authority, server_certificate
from support.wire.wire import Wire

SEED = int(os.environ.get("FLINT_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
TOKENS, TOKENS_LONG = 20_000, 800_000
HANDSHAKES, HANDSHAKES_LONG = 2_000, 200_000
PASSWORD = USERS["alice"]
SERVER_NONCE = "serverNonce0123456789"
PATIENCE_S = 30.0

Attempt = Callable[[random.Random], SaslStep | None]
"""One exchange in which something was changed; returns the last step, None if nothing was changed after all."""


class _Credentials:
    """One user."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.salt = bytes(range(16))
        self.salted = scram.salted_password(mechanism, PASSWORD, self.salt, scram.ITERATIONS_MIN)
        self._credential = scram.credential_of(
            mechanism, self.salted, salt=self.salt, iterations=scram.ITERATIONS_MIN
        )

    def find(self, mechanism: ScramMechanism, username: str) -> tuple[ScramCredential, bool]:
        return self._credential, username == "alice"


class _Tokens:
    """None that is valid, with the credential of the user."""

    def __init__(self, credentials: _Credentials) -> None:
        self._credentials = credentials

    def find(self, mechanism: ScramMechanism, token_id: str) -> tuple[ScramCredential, Identity | None]:
        return self._credentials.find(mechanism, token_id)[0], None


class _Passwords:
    def verify(self, username: str, password: str) -> bool:
        return USERS.get(username) == password


def scram_attempt(mechanism: ScramMechanism) -> Attempt:
    """The first or the last message is changed; the client is another's, who knows the password of nobody."""
    credentials = _Credentials(mechanism)
    first = b"n,,n=alice,r=clientNonce"

    def attempt(chance: random.Random) -> SaslStep | None:
        server = ScramServer(mechanism, credentials, _Tokens(credentials), SERVER_NONCE)
        sent = mutated(first, chance) if chance.random() < 0.5 else first
        answer = server.evaluate(sent).token.decode()
        nonce = scram.parse_server_first(answer.encode()).nonce
        bare = scram.parse_client_first(sent).bare
        header = base64.b64encode(sent[: len(sent) - len(bare.encode())]).decode()
        without_proof = f"c={header},r={nonce}"
        message = scram.auth_message(bare, answer, without_proof)
        proof = scram.client_proof(mechanism, credentials.salted, message)
        final = f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
        changed = mutated(final, chance)
        step = server.evaluate(changed)
        # The same message in another notation is the same message: only its bits of padding can differ.
        return None if _proof_of(changed) == proof else step

    return attempt


def _proof_of(final: bytes) -> bytes | None:
    with suppress(scram.ScramError):
        return scram.parse_client_final(final).proof
    return None


def plain_attempt(chance: random.Random) -> SaslStep | None:
    sound = f"\0alice\0{PASSWORD}".encode()
    token = mutated(sound, chance)
    evaluation = PlainServer(_Passwords()).evaluate(token)
    assert isinstance(evaluation, SaslStep)
    return None if token in (sound, f"alice\0alice\0{PASSWORD}".encode()) else evaluation


def bearer_attempt(keys: KeyFile) -> Attempt:
    claims = {"sub": "alice", "aud": "flintmq", "iss": "issuer", "exp": int(time.time()) + 3600}
    bearer = signed(claims, algorithm="ES256")
    rules = TokenRules(audiences=("flintmq",), issuer="issuer")

    def attempt(chance: random.Random) -> SaslStep | None:
        changed = mutated(bearer.encode(), chance) if chance.random() < 0.5 else bearer.encode()
        whole = b"n,,\x01auth=Bearer " + changed + b"\x01\x01"
        if changed == bearer.encode():
            whole = mutated(whole, chance)
        server = OAuthBearerServer(keys, rules, SystemClock())
        evaluation = server.evaluate(whole)
        step = evaluation if isinstance(evaluation, SaslStep) else evaluation()
        return None if _carries(whole, bearer) else step

    return attempt


def _carries(message: bytes, bearer: str) -> bool:
    """Whether the token in a message is the one that was signed, whatever is written around it."""
    head, payload, signature = bearer.encode().split(b".")
    # The last character of base64 has bits that mean nothing.
    return head + b"." + payload + b"." + signature[:-1] in message


def attempts(directory: Path) -> list[Attempt]:
    path = directory / "keys.json"
    path.write_text(key_set())
    return [*map(scram_attempt, ScramMechanism), plain_attempt, bearer_attempt(KeyFile(str(path)))]


def give_tokens(directory: Path, count: int) -> None:
    print(f"FLINT_SEED={SEED}")
    chance = random.Random(SEED)
    ways = attempts(directory)
    certificate = server_certificate().certificate.public_bytes(Encoding.DER)
    refused = 0
    for number in range(count):
        try:
            step = ways[number % len(ways)](chance)
            assert step is None or step.identity is None, f"attempt {number}"
        except (SaslFailure, scram.ScramError):
            refused += 1
        with suppress(ValueError):
            read_certificate(mutated(certificate, chance))
    assert refused > count / 2, "the mutations leave too much as it was: the test tests nothing"


def test_mutated_tokens_let_nobody_in(tmp_path: Path) -> None:
    give_tokens(tmp_path, TOKENS)


def test_a_mechanism_that_believes_everything_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scram, "proves", lambda *_: True)
    with pytest.raises(AssertionError, match="attempt"):
        give_tokens(tmp_path, TOKENS)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_mutated_tokens_let_nobody_in(tmp_path: Path) -> None:
    give_tokens(tmp_path, TOKENS_LONG)


# ---- over sockets


SENTINEL = 1 << 30
WRONG = "not-the-password"
"""No mutation makes the right one of it, so whoever is let in has found a hole."""


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A listener in plain text for the healthy client, then SSL and SASL_PLAINTEXT."""
    files = CertificateFiles(tmp_path / "certificates")
    settings = (
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        f"ssl.keystore.location={files.keystore}",
        f"ssl.truststore.location={files.ca}",
        "ssl.client.auth=requested",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={jaas(USERS)}",
        "connection.failed.authentication.delay.ms=0",
        "auto.create.topics.enable=false",
        # The records of the healthy client are old, and the long test outlasts the first look of retention.
        "log.retention.ms=-1",
        "flint.rest.port=-1",
    )
    arguments = [word for text in settings for word in ("--set", text)]
    with BrokerProcess(tmp_path / "data", arguments) as broker:
        yield broker


def tls_flights(address: str, chance: random.Random) -> bytes | None:
    """A TLS handshake in which the first or the second flight of the client is changed; the last that came back."""
    context = ssl.create_default_context(cadata=authority().certificate_pem.decode())
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    changes_first = chance.random() < 0.5
    with Wire(address, timeout_s=PATIENCE_S) as wire:
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        if changes_first:
            wire.sock.sendall(mutated(hello, chance))
            return _rest_of(wire)
        wire.sock.sendall(hello)
        incoming.write(wire.sock.recv(1 << 16))
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
            client.write(wire.frame(MetadataRequest(topics=[]), 8, SENTINEL))
        wire.sock.sendall(mutated(outgoing.read(), chance))
        return _rest_of(wire)


def sasl_frames(address: str, chance: random.Random) -> bytes | None:
    """Send a whole exchange and a Metadata request at once; return what the broker sent."""
    mechanism = chance.choice(MECHANISMS)
    version = chance.choice((0, 1))
    first = f"\0alice\0{WRONG}" if mechanism == "PLAIN" else "n,,n=alice,r=nonce"
    final = f"c=biws,r=nonce{SERVER_NONCE},p={base64.b64encode(bytes(32)).decode()}"
    with Wire(address, timeout_s=PATIENCE_S) as wire:
        data = wire.frame(SaslHandshakeRequest(mechanism=mechanism), version, 1)
        for number, token in enumerate((first.encode(), final.encode())):
            changed = mutated(token, chance)
            if version == 0:
                data += struct.pack(">i", len(changed)) + changed
            else:
                data += wire.frame(
                    SaslAuthenticateRequest(auth_bytes=changed), chance.choice((0, 1, 2)), 2 + number
                )
        data += wire.frame(MetadataRequest(topics=[]), 8, SENTINEL)
        if chance.random() < 0.5:
            data = mutated(data, chance)
        wire.sock.sendall(data)
        return _rest_of(wire)


def _rest_of(wire: Wire) -> bytes | None:
    """Everything up to the end of the connection, which the client announces; None if it was reset."""
    received = bytearray()
    try:
        wire.sock.shutdown(socket.SHUT_WR)
        while data := wire.sock.recv(1 << 16):
            received += data
    except (ConnectionResetError, BrokenPipeError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        return None
    return bytes(received)


def bombard(broker: BrokerProcess, count: int) -> None:
    print(f"FLINT_SEED={SEED}")
    chance = random.Random(SEED)
    with watched(broker):
        for number in range(count):
            if number % 2:
                with suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
                    tls_flights(broker.addresses[1], chance)
            else:
                with suppress(ConnectionResetError, BrokenPipeError):
                    answer = sasl_frames(broker.addresses[2], chance) or b""
                    # Only a client that is authenticated gets the address of the broker.
                    assert b"127.0.0.1" not in answer, f"attempt {number}"
    assert "Traceback" not in broker.error_log.read_text()


@pytest.mark.timeout(300)
def test_mutated_handshakes_let_nobody_in_and_disturb_nobody(secured: BrokerProcess) -> None:
    bombard(secured, HANDSHAKES)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_mutated_handshakes_let_nobody_in_and_disturb_nobody(secured: BrokerProcess) -> None:
    bombard(secured, HANDSHAKES_LONG)
