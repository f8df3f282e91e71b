"""Delegation tokens (KIP-48, KIP-373): who may do what with them, and when they end."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from typing import TypeVar

import pytest

from flintmq.broker.request import ClientSession
from flintmq.client.sasl import ScramClient
from flintmq.errors import ErrorCode
from flintmq.protocol import messages as m
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.scram import ScramMechanism
from flintmq.security.authentication.mechanism import Identity, SaslFailure
from flintmq.security.authentication.scram import ScramServer
from flintmq.security.authentication.scram_users import ScramUsers
from flintmq.security.delegation_tokens import RENEWERS_MAX, TOKENS_PER_OWNER_MAX
from flintmq.security.principal import ANONYMOUS, Principal
from flintmq.testing.simulation import SimulatedDisk
from support.broker.single_broker import SEED, Refused, SingleBroker
from support.wire.authorized_requests import sasl_session, token_creation

StartBroker = Callable[..., SingleBroker]
M = TypeVar("M", bound=Message)

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
KEY = "the broker's key"
SETTINGS = {
    "delegation.token.secret.key": KEY,
    "delegation.token.max.lifetime.ms": "100000",
    "delegation.token.expiry.time.ms": "10000",
    "delegation.token.expiry.check.interval.ms": "60000",
}
MAY_NOT = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture
def broker(start_broker: StartBroker) -> SingleBroker:
    return start_broker(SETTINGS)


def ask(broker: SingleBroker, message: Message, answer: type[M], version: int, session: ClientSession) -> M:
    return broker.loop.run_until_complete(broker.exchange(message, answer, version, session=session))


def create(
    broker: SingleBroker, principal: Principal = ALICE, *args: str, max_lifetime_ms: int = -1
) -> m.CreateDelegationTokenResponse:
    request = token_creation(*args, max_lifetime_ms=max_lifetime_ms)
    return ask(broker, request, m.CreateDelegationTokenResponse, 3, sasl_session(principal))


def renew(
    broker: SingleBroker, made: bytes, principal: Principal = ALICE, period_ms: int = -1
) -> m.RenewDelegationTokenResponse:
    request = m.RenewDelegationTokenRequest(hmac=made, renew_period_ms=period_ms)
    return ask(broker, request, m.RenewDelegationTokenResponse, 2, sasl_session(principal))


def expire(
    broker: SingleBroker, made: bytes, principal: Principal = ALICE, period_ms: int = -1
) -> m.ExpireDelegationTokenResponse:
    request = m.ExpireDelegationTokenRequest(hmac=made, expiry_time_period_ms=period_ms)
    return ask(broker, request, m.ExpireDelegationTokenResponse, 2, sasl_session(principal))


def described(broker: SingleBroker, principal: Principal = ALICE, *owners: Principal) -> list[str]:
    owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    request = m.DescribeDelegationTokenRequest(
        owners=[owner(principal_type=one.kind, principal_name=one.name) for one in owners] or None
    )
    response = ask(broker, request, m.DescribeDelegationTokenResponse, 3, sasl_session(principal))
    assert response.error_code == 0
    return [one.token_id for one in response.tokens]


def authenticated(broker: SingleBroker, token_id: str, made: bytes) -> Identity:
    """Who a client is that authenticates with the token; SaslFailure if it is rejected."""
    mechanism = ScramMechanism.SHA_512
    server = ScramServer(mechanism, ScramUsers(dict, b"s"), broker.services.tokens, "nonce")
    client = ScramClient(
        mechanism, token_id, base64.b64encode(made).decode(), "ours", is_delegation_token=True
    )
    answer = client.next(server.evaluate(client.first()).token)
    assert answer is not None
    last = server.evaluate(answer)
    assert client.next(last.token) is None
    assert last.identity is not None
    return last.identity


def sleep(broker: SingleBroker, seconds: float) -> None:
    broker.loop.clock.advance(seconds)


# ---- creation


def test_a_token_is_made_as_kafka_makes_it(broker: SingleBroker) -> None:
    token = create(broker, ALICE, "", "bob")
    assert token.error_code == 0
    assert bytes(token.hmac) == hmac.digest(KEY.encode(), token.token_id.encode(), "sha512")
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert token.expiry_timestamp_ms - token.issue_timestamp_ms == 10_000
    assert token.max_timestamp_ms - token.issue_timestamp_ms == 100_000
    identity = authenticated(broker, token.token_id, bytes(token.hmac))
    assert identity == Identity(ALICE, token.expiry_timestamp_ms, token.token_id)


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(-1, 100_000), (0, 100_000), (5, 5), (2**62, 100_000)])
def test_the_maximum_lifetime_is_the_lower_one(broker: SingleBroker, asked_ms: int, given_ms: int) -> None:
    token = create(broker, max_lifetime_ms=asked_ms)
    assert token.max_timestamp_ms - token.issue_timestamp_ms == given_ms
    assert token.expiry_timestamp_ms <= token.max_timestamp_ms


def test_a_token_for_another_owner_authenticates_that_owner(broker: SingleBroker) -> None:
    token = create(broker, ALICE, "bob")
    assert (token.principal_name, token.token_requester_principal_name) == ("bob", "alice")
    assert authenticated(broker, token.token_id, bytes(token.hmac)).principal == BOB
    # The requester is neither owner nor renewer.
    assert renew(broker, bytes(token.hmac), ALICE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


@pytest.mark.parametrize("is_owner", [True, False])
def test_only_users_own_and_renew_tokens(broker: SingleBroker, is_owner: bool) -> None:
    request = token_creation("admin", "bob")
    if is_owner:
        request.owner_principal_type = "Group"
    else:
        request.renewers[0].principal_type = "Group"
    response = ask(broker, request, m.CreateDelegationTokenResponse, 3, sasl_session(ALICE))
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (response.token_id, bytes(response.hmac), response.expiry_timestamp_ms) == ("", b"", -1)


def test_renewers_and_tokens_have_bounds(broker: SingleBroker) -> None:
    renewers = [f"r{number}" for number in range(RENEWERS_MAX + 1)]
    assert create(broker, ALICE, "", *renewers).error_code == ErrorCode.INVALID_REQUEST
    assert create(broker, ALICE, "b" * 9000).error_code == ErrorCode.INVALID_REQUEST
    # All names together: any user may create thousands of tokens.
    long = [f"{number:0200}" for number in range(50)]
    assert create(broker, ALICE, "", *long).error_code == ErrorCode.INVALID_REQUEST
    create(broker)
    tokens = broker.services.metadata.image.tokens
    [one] = tokens.values()
    for number in range(TOKENS_PER_OWNER_MAX):
        tokens[str(number)] = one
    assert create(broker).error_code == ErrorCode.POLICY_VIOLATION
    assert create(broker, BOB).error_code == 0


# ---- connections


def session_of(protocol: str, principal: Principal, token_id: str = "") -> ClientSession:
    session = sasl_session(principal, token_id)
    session.security_protocol = protocol
    return session


@pytest.mark.parametrize(
    "session",
    [
        session_of("PLAINTEXT", ANONYMOUS),
        session_of("PLAINTEXT", ALICE),
        session_of("SSL", ANONYMOUS),
        session_of("SASL_SSL", ALICE, "a token"),
    ],
)
def test_connections_that_may_not_handle_tokens(broker: SingleBroker, session: ClientSession) -> None:
    made = bytes(create(broker).hmac)
    created = ask(broker, token_creation(), m.CreateDelegationTokenResponse, 3, session)
    assert (created.error_code, created.max_timestamp_ms) == (MAY_NOT, -1)
    renewed = ask(
        broker, m.RenewDelegationTokenRequest(hmac=made), m.RenewDelegationTokenResponse, 2, session
    )
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (MAY_NOT, -1)
    expired = ask(
        broker, m.ExpireDelegationTokenRequest(hmac=made), m.ExpireDelegationTokenResponse, 2, session
    )
    assert (expired.error_code, expired.expiry_timestamp_ms) == (MAY_NOT, -1)
    listed = ask(
        broker,
        m.DescribeDelegationTokenRequest(owners=None),
        m.DescribeDelegationTokenResponse,
        3,
        session,
    )
    assert (listed.error_code, listed.tokens) == (MAY_NOT, [])


def test_a_client_certificate_is_enough(broker: SingleBroker) -> None:
    session = session_of("SSL", ALICE)
    assert ask(broker, token_creation(), m.CreateDelegationTokenResponse, 3, session).error_code == 0


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_there_are_no_tokens(start_broker: StartBroker, key: str | None) -> None:
    broker = start_broker({} if key is None else {"delegation.token.secret.key": key})
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(broker).error_code == disabled
    assert renew(broker, b"x").error_code == disabled
    assert expire(broker, b"x").error_code == disabled
    request = m.DescribeDelegationTokenRequest(owners=None)
    listed = ask(broker, request, m.DescribeDelegationTokenResponse, 3, sasl_session(ALICE))
    assert listed.error_code == disabled
    with pytest.raises(SaslFailure):
        authenticated(broker, "some id", b"")


# ---- renewal and expiry


def test_owner_and_renewers_renew_up_to_the_maximum(broker: SingleBroker) -> None:
    token = create(broker, ALICE, "", "bob")
    made = bytes(token.hmac)
    assert renew(broker, made, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(broker, b"no such HMAC").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    for principal in [ALICE, BOB] * 6:
        sleep(broker, 9)
        renewed = renew(broker, made, principal)
        if renewed.error_code:
            break
        assert renewed.expiry_timestamp_ms <= token.max_timestamp_ms
    assert renewed.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert broker.loop.clock.now_ms() > token.max_timestamp_ms


def test_the_period_of_a_renewal_is_the_lower_one(broker: SingleBroker) -> None:
    made = bytes(create(broker).hmac)
    now_ms = broker.loop.clock.now_ms()
    assert renew(broker, made, ALICE, 5_000).expiry_timestamp_ms - now_ms <= 5_100
    assert 9_900 <= renew(broker, made, ALICE, 50_000).expiry_timestamp_ms - now_ms <= 10_100


def test_a_negative_period_removes_the_token(broker: SingleBroker) -> None:
    token = create(broker, ALICE, "", "bob")
    made = bytes(token.hmac)
    assert expire(broker, made, CAROL).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(broker, made, BOB).error_code == 0
    assert described(broker) == []
    assert expire(broker, made).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with pytest.raises(SaslFailure):
        authenticated(broker, token.token_id, made)


def test_a_token_that_expires_now_authenticates_nobody(broker: SingleBroker) -> None:
    token = create(broker)
    made = bytes(token.hmac)
    assert expire(broker, made, ALICE, 0).error_code == 0
    with pytest.raises(SaslFailure):
        authenticated(broker, token.token_id, made)
    sleep(broker, 0.1)
    assert expire(broker, made, ALICE, 5_000).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert described(broker) == [token.token_id]
    assert expire(broker, made).error_code == 0
    assert described(broker) == []


def test_expired_tokens_are_removed_at_the_interval(broker: SingleBroker) -> None:
    tokens = broker.services.tokens
    for _ in range(40):
        create(broker)
    sleep(broker, 30)

    async def tick() -> None:
        tokens.tick()
        if tokens._sweeping is not None:
            await tokens._sweeping

    broker.loop.run_until_complete(tick())
    assert len(described(broker)) == 40
    sleep(broker, 31)
    lasting = create(broker).token_id
    broker.loop.run_until_complete(tick())
    assert described(broker) == [lasting]


def test_a_session_ends_with_its_token(broker: SingleBroker) -> None:
    token = create(broker)
    session = sasl_session(ALICE, token.token_id)
    session.expires_at = broker.loop.clock.monotonic() + 1000
    request = m.MetadataRequest(topics=None)
    assert ask(broker, request, m.MetadataResponse, 12, session).brokers is not None
    expire(broker, bytes(token.hmac))
    with pytest.raises(Refused, match="delegation token"):
        ask(broker, request, m.MetadataResponse, 12, session)


# ---- description


def test_owners_and_renewers_see_tokens(start_broker: StartBroker) -> None:
    broker = start_broker(
        {
            **SETTINGS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:root",
        }
    )
    root = Principal("User", "root")
    mine = create(broker, ALICE).token_id
    shared = create(broker, BOB, "", "alice").token_id
    create(broker, CAROL)
    assert create(broker, ALICE, "bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert described(broker, ALICE) == sorted((mine, shared))
    assert described(broker, BOB) == [shared]
    assert described(broker, ALICE, BOB) == [shared]
    assert described(broker, ALICE, CAROL) == []
    assert len(described(broker, root)) == 3
    assert len(described(broker, root, ALICE)) == 2
    response = ask(
        broker,
        m.DescribeDelegationTokenRequest(owners=[]),
        m.DescribeDelegationTokenResponse,
        3,
        sasl_session(ALICE),
    )
    assert (response.error_code, response.tokens) == (0, [])


# ---- restarts


def test_tokens_survive_a_restart_and_end_with_another_key(start_broker: StartBroker) -> None:
    disk = SimulatedDisk(seed=SEED)
    first = start_broker({**SETTINGS, "delegation.token.expiry.time.ms": "99999"}, disk)
    token = create(first)
    made = bytes(token.hmac)
    first.close()
    again = start_broker(SETTINGS, disk)
    assert authenticated(again, token.token_id, made).principal == ALICE
    assert renew(again, made).error_code == 0
    again.close()
    other = start_broker({**SETTINGS, "delegation.token.secret.key": "another key"}, disk)
    assert described(other) == []
    assert renew(other, made).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with pytest.raises(SaslFailure):
        authenticated(other, token.token_id, made)


def test_the_store_has_no_hmac(broker: SingleBroker) -> None:
    token = create(broker)
    made = bytes(token.hmac)
    view = broker.loop.run_until_complete(broker.services.metadata.store.get("/token/"))
    [item] = view.items.values()
    for secret in (made, base64.b64encode(made), KEY.encode()):
        assert secret not in item.value


def test_an_unknown_token_looks_like_a_known_one(broker: SingleBroker) -> None:
    token_id = create(broker).token_id
    credentials = [
        broker.services.tokens.find(ScramMechanism.SHA_256, one)[0]
        for one in (token_id, "unknown", "unknown")
    ]
    assert credentials[1] == credentials[2]
    assert {(one.iterations, len(one.salt)) for one in credentials} == {(4096, 24)}
