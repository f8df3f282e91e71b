"""Attacks on SASL by clients that have seen, or hold, credentials of others. Nobody is authenticated by them."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol import scram
from flintmq.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ExpireDelegationTokenRequest,
    FetchResponse,
    SaslAuthenticateResponse,
)
from flintmq.protocol.scram import ScramMechanism
from support.broker.broker_process import BrokerProcess
from support.broker.secured import USERS, SaslWire, client_of, plain, secured_broker
from support.wire.transactions import WireProducer
from support.wire.wire import batch_of, fetch_request, values_of

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
SHA_512 = ScramMechanism.SHA_512
PASSWORD = USERS["alice"]
SEED = 20_261


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = (
        "delegation.token.secret.key=a key",
        "connection.failed.authentication.delay.ms=0",
        "connections.max.reauth.ms=3600000",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    )
    with secured_broker(tmp_path_factory.mktemp("attacks") / "data", *settings) as started:
        with SaslWire(started.address) as wire:
            wire.authenticate("admin", USERS["admin"])
            for user in ("alice", "bob"):
                wire.add_scram_user(user, PASSWORD, SHA_512)
        yield started


def proof(first: bytes, challenge: bytes, password: str = PASSWORD, binding: bytes = b"n,,") -> bytes:
    """The final message of a client that knows the password."""
    server = scram.parse_server_first(challenge)
    salted = scram.salted_password(SHA_512, password, server.salt, server.iterations)
    without_proof = f"c={base64.b64encode(binding).decode()},r={server.nonce}"
    bare = scram.parse_client_first(first).bare
    signed = scram.client_proof(SHA_512, salted, scram.auth_message(bare, server.text, without_proof))
    return f"{without_proof},p={base64.b64encode(signed).decode()}".encode()


def begin(wire: SaslWire, first: bytes) -> bytes:
    """The broker's challenge."""
    wire.handshake(SHA_512.value)
    response = wire.token(first)
    assert response.error_code == 0
    return bytes(response.auth_bytes)


def assert_failed(wire: SaslWire, response: SaslAuthenticateResponse) -> None:
    assert (response.error_code, bytes(response.auth_bytes)) == (FAILED, b"")
    assert wire.is_closed_by_the_broker()


def test_a_recorded_exchange_cannot_be_replayed(broker: BrokerProcess) -> None:
    first = b"n,,n=alice,r=recorded"
    with SaslWire(broker.address) as wire:
        final = proof(first, begin(wire, first))
        assert wire.token(final).error_code == 0
    with SaslWire(broker.address) as wire:
        begin(wire, first)
        assert_failed(wire, wire.token(final))


def test_the_nonce_of_another_connection_is_refused(broker: BrokerProcess) -> None:
    first = b"n,,n=alice,r=mine"
    with SaslWire(broker.address) as one, SaslWire(broker.address) as other:
        challenge, others = begin(one, first), begin(other, first)
        assert challenge != others
        assert_failed(one, one.token(proof(first, others)))
        assert other.token(proof(first, others)).error_code == 0


@pytest.mark.parametrize("header", ["n,a=admin,", "n,a=bob,"])
def test_nobody_acts_as_another(broker: BrokerProcess, header: str) -> None:
    with SaslWire(broker.address) as wire:
        wire.handshake(SHA_512.value)
        assert_failed(wire, wire.token(f"{header}n=alice,r=x".encode()))
    with SaslWire(broker.address) as wire:
        # The authorization id changes between the messages.
        first = b"n,,n=alice,r=x"
        assert_failed(wire, wire.token(proof(first, begin(wire, first), binding=header.encode())))
    with SaslWire(broker.address) as wire:
        wire.handshake("PLAIN")
        assert_failed(wire, wire.token(header[4:-1].encode() + plain("alice", PASSWORD)))


@pytest.mark.parametrize("extra", [b"", b"c=biws,r=x,p=AAAA", b"v=AAAA", b"n,,n=alice,r=x"])
def test_messages_out_of_order(broker: BrokerProcess, extra: bytes) -> None:
    first = b"n,,n=alice,r=x"
    with SaslWire(broker.address) as wire:
        begin(wire, first)
        assert_failed(wire, wire.token(extra))
    with SaslWire(broker.address) as wire:
        final = proof(first, begin(wire, first))
        assert wire.token(final).error_code == 0
        assert wire.token(extra).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.metadata().brokers


@pytest.mark.parametrize("iterations", [-1, 0, 1, 4095, 16_385, 10**9, 2**31 - 1])
def test_credentials_with_other_iterations_are_refused(broker: BrokerProcess, iterations: int) -> None:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="mallory",
        mechanism=SHA_512.type,
        iterations=iterations,
        salt=b"salt",
        salted_password=bytes(64),
    )
    with SaslWire(broker.address) as wire:
        wire.authenticate("admin", USERS["admin"])
        began = time.monotonic()
        response = wire.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        assert isinstance(response, AlterUserScramCredentialsResponse)
        assert [one.error_code for one in response.results] == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        assert time.monotonic() - began < 5
    with SaslWire(broker.address) as wire:
        assert wire.authenticate("mallory", "x", SHA_512.value).error_code == FAILED


def token_of(wire: SaslWire) -> CreateDelegationTokenResponse:
    response = wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
    assert isinstance(response, CreateDelegationTokenResponse)
    assert response.error_code == 0
    return response


def test_re_authentication_with_the_token_of_another_is_refused(broker: BrokerProcess) -> None:
    with SaslWire(broker.address) as bob, SaslWire(broker.address) as alice:
        bob.authenticate("bob", PASSWORD, SHA_512.value)
        token = token_of(bob)
        alice.authenticate("alice", PASSWORD, SHA_512.value)
        secret = base64.b64encode(bytes(token.hmac)).decode()
        response = alice.authenticate(token.token_id, secret, SHA_512.value, is_delegation_token=True)
        assert_failed(alice, response)
        assert "Cannot change principals" in (response.error_message or "")


def test_a_token_cannot_become_a_login_by_re_authentication(broker: BrokerProcess) -> None:
    """A client with nothing but a token makes no further tokens, before and after it authenticates again."""
    with SaslWire(broker.address) as owner, SaslWire(broker.address) as holder:
        owner.authenticate("alice", PASSWORD, SHA_512.value)
        token = token_of(owner)
        secret = base64.b64encode(bytes(token.hmac)).decode()
        for _ in range(2):
            response = holder.authenticate(token.token_id, secret, SHA_512.value, is_delegation_token=True)
            assert response.error_code == 0
            made = holder.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
            assert isinstance(made, CreateDelegationTokenResponse)
            assert made.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_credential_is_removed_in_a_long_poll(broker: BrokerProcess) -> None:
    """The poll ends as it would have, the session goes on as in Kafka, and nobody authenticates any more."""
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="carol", mechanism=SHA_512.type)
    with SaslWire(broker.address) as admin, SaslWire(broker.address) as carol:
        admin.authenticate("admin", USERS["admin"])
        admin.add_scram_user("carol", PASSWORD, SHA_512)
        carol.authenticate("carol", PASSWORD, SHA_512.value)
        admin.create_topic("polled")
        # The request before it has its response: the poll waits when the credential is removed.
        carol.send(fetch_request("polled", {0: 0}, max_wait_ms=60_000), 12)
        admin.ask(AlterUserScramCredentialsRequest(deletions=[deletion]), 0)
        with SaslWire(broker.address) as again:
            assert again.authenticate("carol", PASSWORD, SHA_512.value).error_code == FAILED
        assert admin.produce("polled", batch_of(b"later")).error_code == 0
        _, polled = carol.receive()
        assert isinstance(polled, FetchResponse)
        assert values_of(polled) == {0: [b"later"]}
        assert carol.metadata().brokers


def test_a_credential_is_removed_in_a_transaction(broker: BrokerProcess) -> None:
    """A session by password goes on as in Kafka; one by a token ends with its next request, which changes nothing."""
    with (
        SaslWire(broker.address) as admin,
        SaslWire(broker.address) as dave,
        SaslWire(broker.address) as holder,
    ):
        admin.authenticate("admin", USERS["admin"])
        admin.create_topic("in-transaction")
        admin.add_scram_user("dave", PASSWORD, SHA_512)
        dave.authenticate("dave", PASSWORD, SHA_512.value)
        token = token_of(dave)
        secret = base64.b64encode(bytes(token.hmac)).decode()
        holder.authenticate(token.token_id, secret, SHA_512.value, is_delegation_token=True)
        by_password, by_token = WireProducer(dave, "by-password"), WireProducer(holder, "by-token")
        for producer in (by_password, by_token):
            assert producer.init() is ErrorCode.NONE
            assert producer.produce("in-transaction", b"first") is ErrorCode.NONE
        dave.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
        deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(
            name="dave", mechanism=SHA_512.type
        )
        admin.ask(AlterUserScramCredentialsRequest(deletions=[deletion]), 0)
        assert by_password.end(committed=True) is ErrorCode.NONE
        holder.send(by_token.end_request(committed=True), 5)
        assert holder.is_closed_by_the_broker()
        described = admin.ask(DescribeTransactionsRequest(transactional_ids=["by-token"]), 0)
        assert isinstance(described, DescribeTransactionsResponse)
        assert described.transaction_states[0].transaction_state == "Ongoing"


def test_mutated_messages_of_token_authentication(broker: BrokerProcess) -> None:
    choice = random.Random(SEED)
    with SaslWire(broker.address) as owner:
        owner.authenticate("alice", PASSWORD, SHA_512.value)
        token = token_of(owner)
    secret = base64.b64encode(bytes(token.hmac)).decode()
    for _ in range(40):
        client = client_of(SHA_512.value, token.token_id, secret, is_delegation_token=True)
        message = bytearray(client.first())
        message[choice.randrange(len(message))] ^= 1 << choice.randrange(8)
        with SaslWire(broker.address) as wire:
            wire.handshake(SHA_512.value)
            response = wire.token(bytes(message))
            if response.error_code == 0:
                # The client signs what it has sent first, not what the broker has got.
                answer = proof(client.first(), bytes(response.auth_bytes), secret)
                response = wire.token(answer)
            assert response.error_code == FAILED, bytes(message)
