"""SASL step by step: what a broker answers before, between and behind the steps, as Kafka's does."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerProcess
from support.broker.secured import MECHANISMS, USERS, SaslWire, client_of, plain, secured_broker

PASSWORD = USERS["alice"]
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
DELAY_S = 0.1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with secured_broker(tmp_path_factory.mktemp("states") / "data") as started:
        with SaslWire(started.address) as wire:
            assert wire.authenticate("admin", USERS["admin"]).error_code == 0
            wire.add_scram_user("alice", PASSWORD, *ScramMechanism)
        yield started


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[SaslWire]:
    with SaslWire(broker.address) as connected:
        yield connected


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_mechanism_in_every_version(wire: SaslWire, mechanism: str, version: int) -> None:
    versions = wire.ask(VERSIONS, 4)
    assert isinstance(versions, ApiVersionsResponse)
    assert {17, 36, 50, 51} <= {one.api_key for one in versions.api_keys}
    response = wire.authenticate("alice", PASSWORD, mechanism, version)
    assert (response.error_code, response.session_lifetime_ms) == (0, 0)
    assert wire.metadata().brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bare_tokens_after_a_handshake_of_version_0(wire: SaslWire, mechanism: str) -> None:
    assert wire.handshake(mechanism, 0).error_code == 0
    client = client_of(mechanism, "alice", PASSWORD)
    token: bytes | None = client.first()
    while token is not None:
        wire.send_bare(token)
        token = client.next(wire.receive_frame())
    assert wire.metadata().brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bare_tokens_that_fail_close_the_connection(wire: SaslWire, mechanism: str) -> None:
    wire.handshake(mechanism, 0)
    wire.send_bare(b"\0nobody\0secret")
    assert wire.is_closed_by_the_broker()


def test_an_unknown_mechanism_gets_the_list(wire: SaslWire) -> None:
    response = wire.handshake("GSSAPI")
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == list(MECHANISMS)
    assert wire.is_closed_by_the_broker()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_and_a_wrong_password_get_the_same_response(
    broker: BrokerProcess, mechanism: str
) -> None:
    responses = []
    for user in ("alice", "nobody"):
        with SaslWire(broker.address) as wire:
            response = wire.authenticate(user, "wrong", mechanism)
            responses.append((response.error_code, response.error_message, bytes(response.auth_bytes)))
            assert wire.is_closed_by_the_broker()
    assert responses[0] == responses[1]
    assert responses[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_failure_is_answered_after_the_delay(wire: SaslWire) -> None:
    wire.handshake("PLAIN")
    began = time.monotonic()
    assert wire.token(plain("alice", "wrong")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert time.monotonic() - began >= DELAY_S * 0.9


# ---- before the handshake


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(topics=None), 12),
        (CreateTopicsRequest(), 7),
        (SaslAuthenticateRequest(auth_bytes=plain("alice", PASSWORD)), 2),
    ],
)
def test_other_requests_before_the_handshake_close_the_connection(
    wire: SaslWire, message: MetadataRequest, version: int
) -> None:
    wire.send(message, version)
    assert wire.is_closed_by_the_broker()


def test_api_versions_is_answered_once(wire: SaslWire) -> None:
    # A version that is not known is answered, and the client asks again (KIP-511).
    wire.sock.sendall(struct.pack(">ihhihb", 11, 18, 99, 0, -1, 0))
    assert wire.receive_frame()[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
    wire.ask(VERSIONS, 4)
    wire.send(VERSIONS, 4)
    assert wire.is_closed_by_the_broker()


def test_a_handshake_in_a_version_that_is_not_known_closes_the_connection(wire: SaslWire) -> None:
    body = struct.pack(">hhih", 17, 9, 1, -1) + struct.pack(">h", 5) + b"PLAIN"
    wire.sock.sendall(struct.pack(">i", len(body)) + body)
    assert wire.is_closed_by_the_broker()


# ---- between the steps


def test_another_request_in_place_of_a_token_is_an_illegal_state(wire: SaslWire) -> None:
    wire.handshake("PLAIN")
    response = wire.ask(FindCoordinatorRequest(key="x"), 3)
    assert isinstance(response, FindCoordinatorResponse)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.is_closed_by_the_broker()


def test_a_second_handshake_in_place_of_a_token_is_an_illegal_state(wire: SaslWire) -> None:
    wire.handshake("SCRAM-SHA-256")
    assert wire.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.is_closed_by_the_broker()


def test_a_request_between_the_tokens_of_scram(wire: SaslWire) -> None:
    wire.handshake("SCRAM-SHA-256")
    client = client_of("SCRAM-SHA-256", "alice", PASSWORD)
    assert wire.token(client.first()).error_code == 0
    # Metadata has an error code from version 13 on.
    response = wire.ask(MetadataRequest(topics=None), 13)
    assert isinstance(response, MetadataResponse)
    assert (response.error_code, response.brokers) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert wire.is_closed_by_the_broker()


@pytest.mark.parametrize("token", [b"", b"\0", b"\xff\xfe", b"x" * 60_000, b"n,,n=alice,r=" + b"y" * 60_000])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_tokens_that_make_no_sense(wire: SaslWire, mechanism: str, token: bytes) -> None:
    wire.handshake(mechanism)
    response = wire.token(token)
    if not response.error_code:
        # A first message of SCRAM may have a long nonce.
        response = wire.token(token)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert wire.is_closed_by_the_broker()


def test_frames_are_small_until_the_client_is_known(wire: SaslWire) -> None:
    wire.handshake("PLAIN")
    wire.sock.sendall(struct.pack(">i", (64 << 10) + 1))
    assert wire.is_closed_by_the_broker()


def test_frames_may_be_large_once_the_client_is_known(wire: SaslWire) -> None:
    """In one write with the token: the limit is that of the moment at which the frame's turn comes."""
    wire.handshake("PLAIN")
    names = [MetadataRequest.MetadataRequestTopic(name=f"{'n' * 200}{n}") for n in range(1000)]
    large = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    token = SaslAuthenticateRequest(auth_bytes=plain("alice", PASSWORD))
    wire.sock.sendall(wire.frame(token, 2, 1001) + wire.frame(large, 12, 1002))
    assert wire.receive()[0] == 1001
    _, response = wire.receive()
    assert isinstance(response, MetadataResponse)
    assert len(response.topics) == 1000


# ---- behind the steps


def _create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_nothing_behind_a_failed_authentication_runs(
    broker: BrokerProcess, wire: SaslWire, mechanism: str
) -> None:
    name = f"never-{mechanism}"
    token = SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong"))
    frames = [
        wire.frame(SaslHandshakeRequest(mechanism=mechanism), 1, 1001),
        wire.frame(token, 2, 1002),
        wire.frame(_create(name), 7, 1003),
        wire.frame(SaslAuthenticateRequest(auth_bytes=plain("alice", PASSWORD)), 2, 1004),
        wire.frame(_create(name), 7, 1005),
    ]
    wire.sock.sendall(b"".join(frames))
    assert isinstance(wire.receive()[1], SaslHandshakeResponse)
    correlation_id, response = wire.receive()
    assert isinstance(response, SaslAuthenticateResponse)
    assert (correlation_id, response.error_code) == (1002, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert wire.is_closed_by_the_broker()
    with SaslWire(broker.address) as other:
        other.authenticate("admin", USERS["admin"])
        assert name not in [topic.name for topic in other.metadata().topics]


def test_what_is_behind_a_successful_authentication_runs_after_it(wire: SaslWire) -> None:
    frames = [
        wire.frame(VERSIONS, 4, 1000),
        wire.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1001),
        wire.frame(SaslAuthenticateRequest(auth_bytes=plain("alice", PASSWORD)), 2, 1002),
        wire.frame(_create("behind"), 7, 1003),
    ]
    wire.sock.sendall(b"".join(frames))
    assert [wire.receive()[0] for _ in frames] == [1000, 1001, 1002, 1003]
    assert "behind" in [topic.name for topic in wire.metadata().topics]


def test_sasl_after_authentication_is_an_illegal_state(wire: SaslWire) -> None:
    wire.authenticate("alice", PASSWORD)
    assert wire.token(plain("alice", PASSWORD)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    # Without an end of the session there is no re-authentication, as in Kafka.
    assert wire.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.metadata().brokers


def test_sasl_on_a_plaintext_listener_is_an_illegal_state(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, SaslWire(broker.address) as wire:
        assert wire.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.token(b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.metadata().brokers


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_known_and_unknown_users_take_the_same_time(tmp_path: Path, mechanism: str) -> None:
    """The medians of many attempts differ by less than a millisecond, which includes the hashing of passwords."""
    with secured_broker(tmp_path / "data", "connection.failed.authentication.delay.ms=0") as broker:
        with SaslWire(broker.address) as wire:
            wire.authenticate("admin", USERS["admin"])
            wire.add_scram_user("alice", PASSWORD, ScramMechanism.SHA_256)
        times: dict[str, list[float]] = {"alice": [], "nobody": []}
        for _ in range(60):
            for user, taken in times.items():
                with SaslWire(broker.address) as wire:
                    wire.handshake(mechanism)
                    client = client_of(mechanism, user, "wrong")
                    token: bytes | None = client.first()
                    while token is not None:
                        began = time.perf_counter()
                        response = wire.token(token)
                        taken.append(time.perf_counter() - began)
                        token = None if response.error_code else client.next(bytes(response.auth_bytes))
        known, unknown = (sorted(taken)[len(taken) // 2] for taken in times.values())
        assert abs(known - unknown) < 0.001
