"""How long an authentication holds (KIP-368), limits before it, and what a restart keeps."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AlterUserScramCredentialsRequest, MetadataRequest
from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerFailed, BrokerProcess
from support.broker.secured import USERS, SaslWire, plain, secured_broker
from support.wire.wire import Wire, fetch_request

SESSION = "listener.name.sasl_plaintext.connections.max.reauth.ms=1500"
AFTER_SESSION_S = 1.8
PASSWORD = USERS["alice"]


def test_a_session_has_an_end(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        assert wire.authenticate("alice", PASSWORD).session_lifetime_ms == 1500
        assert wire.metadata().brokers
        time.sleep(AFTER_SESSION_S)
        wire.send(MetadataRequest(topics=None), 12)
        assert wire.is_closed_by_the_broker()


def test_the_end_of_a_mechanism_wins(tmp_path: Path) -> None:
    other = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms=90000"
    with secured_broker(tmp_path / "data", SESSION, other) as broker, SaslWire(broker.address) as wire:
        assert wire.authenticate("alice", PASSWORD).session_lifetime_ms == 90000


def test_a_session_goes_on_after_re_authentication_even_late(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        wire.authenticate("alice", PASSWORD)
        for _ in range(2):
            time.sleep(AFTER_SESSION_S)
            assert wire.authenticate("alice", PASSWORD).error_code == 0
            assert wire.metadata().brokers


def test_re_authentication_once_a_second(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        wire.authenticate("alice", PASSWORD)
        assert wire.authenticate("alice", PASSWORD).error_code == 0
        assert wire.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_re_authentication_as_somebody_else_is_refused(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        wire.authenticate("alice", PASSWORD)
        response = wire.authenticate("admin", USERS["admin"])
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (
            response.error_message
            == "Cannot change principals during re-authentication from User.alice: User.admin"
        )
        assert wire.is_closed_by_the_broker()


def test_re_authentication_with_another_mechanism_is_refused(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        wire.authenticate("alice", PASSWORD)
        wire.handshake("SCRAM-SHA-256")
        assert wire.token(b"n,,n=alice,r=x").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_the_broker()


def test_a_failed_re_authentication_ends_the_connection(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        wire.authenticate("alice", PASSWORD)
        wire.handshake("PLAIN")
        assert wire.token(plain("alice", "wrong")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_the_broker()


def test_no_other_request_during_re_authentication(tmp_path: Path) -> None:
    with secured_broker(tmp_path / "data", SESSION) as broker, SaslWire(broker.address) as wire:
        wire.authenticate("alice", PASSWORD)
        wire.handshake("PLAIN")
        wire.send(fetch_request("t", {0: 0}), 12)
        wire.receive()
        assert wire.is_closed_by_the_broker()


def test_a_deleted_credential_holds_until_the_session_ends(tmp_path: Path) -> None:
    mechanism = ScramMechanism.SHA_512
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="bob", mechanism=mechanism.type)
    with (
        secured_broker(tmp_path / "data", SESSION) as broker,
        SaslWire(broker.address) as admin,
        SaslWire(broker.address) as bob,
    ):
        admin.authenticate("admin", USERS["admin"])
        admin.add_scram_user("bob", "secret", mechanism)
        assert bob.authenticate("bob", "secret", mechanism.value).error_code == 0
        admin.ask(AlterUserScramCredentialsRequest(deletions=[deletion]), 0)
        assert bob.metadata().brokers
        with SaslWire(broker.address) as new:
            failed = new.authenticate("bob", "secret", mechanism.value)
            assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        failed = bob.authenticate("bob", "secret", mechanism.value)
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert bob.is_closed_by_the_broker()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_restart_keeps_credentials_and_invented_salts(tmp_path: Path, crashes: bool) -> None:
    broker = secured_broker(tmp_path / "data")
    first = b"n,,n=nobody,r=nonce"
    salts = []
    with broker:
        with SaslWire(broker.address) as wire:
            wire.authenticate("admin", USERS["admin"])
            wire.add_scram_user("bob", "secret", *ScramMechanism)
        with SaslWire(broker.address) as wire:
            wire.handshake("SCRAM-SHA-256")
            salts.append(bytes(wire.token(first).auth_bytes).split(b",")[1])
        if crashes:
            broker.kill()
    with broker:
        for mechanism in ScramMechanism:
            with SaslWire(broker.address) as wire:
                assert wire.authenticate("bob", "secret", mechanism.value).error_code == 0
        with SaslWire(broker.address) as wire:
            wire.handshake("SCRAM-SHA-256")
            salts.append(bytes(wire.token(first).auth_bytes).split(b",")[1])
    assert salts[0] == salts[1]


# ---- limits before authentication


def test_authentication_has_a_time_limit(tmp_path: Path) -> None:
    with (
        secured_broker(tmp_path / "data", "flint.authentication.timeout.ms=500") as broker,
        Wire(broker.address) as silent,
        SaslWire(broker.address) as slow,
        SaslWire(broker.address) as known,
    ):
        known.authenticate("alice", PASSWORD)
        slow.handshake("SCRAM-SHA-256")
        assert silent.is_closed_by_the_broker()
        assert slow.is_closed_by_the_broker()
        assert known.metadata().brokers


def test_connections_that_are_not_authenticated_have_a_bound(tmp_path: Path) -> None:
    with (
        secured_broker(tmp_path / "data", "flint.max.unauthenticated.connections.per.ip=3") as broker,
        SaslWire(broker.address) as known,
        Wire(broker.address),
    ):
        known.authenticate("alice", PASSWORD)
        with Wire(broker.address), Wire(broker.address):
            with Wire(broker.address) as refused:
                assert refused.is_closed_by_the_broker()
            assert known.metadata().brokers
        deadline = time.monotonic() + 10
        while not _can_authenticate(broker.address):
            assert time.monotonic() < deadline, "those that left are still counted"


def _can_authenticate(address: str) -> bool:
    try:
        with SaslWire(address) as wire:
            return wire.authenticate("alice", PASSWORD).error_code == 0
    except (EOFError, OSError):
        return False


def test_a_listener_without_users_does_not_start(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=PLAIN"],
    )
    with pytest.raises(BrokerFailed, match="no users for PLAIN"):
        broker.start()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "CRAM-MD5"])
def test_a_mechanism_that_is_not_available_does_not_start(tmp_path: Path, mechanism: str) -> None:
    broker = BrokerProcess(
        tmp_path / "data",
        ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "--set", f"sasl.enabled.mechanisms={mechanism}"],
    )
    with pytest.raises(BrokerFailed, match=f"{mechanism}, which is not known"):
        broker.start()
