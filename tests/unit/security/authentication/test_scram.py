"""The SCRAM exchange: our client and our broker together, and everything that may go wrong between them."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.client.sasl import ITERATIONS_MAX, SaslClientError, ScramClient
from flintmq.protocol import scram
from flintmq.protocol.scram import ScramCredential, ScramMechanism
from flintmq.security.authentication.mechanism import SaslFailure
from flintmq.security.authentication.scram import ScramServer, ScramServerMechanism
from flintmq.security.authentication.scram_users import ScramUsers

ITERATIONS = 4096
SECRET = b"a secret of the cluster"
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def credential(mechanism: ScramMechanism, password: str, salt: bytes = b"0123456789ab") -> ScramCredential:
    salted = scram.salted_password(mechanism, password, salt, ITERATIONS)
    return scram.credential_of(mechanism, salted, salt=salt, iterations=ITERATIONS)


KNOWN = {
    mechanism.value: {
        "alice": credential(mechanism, "secret"),
        "bob": credential(mechanism, "other", b"another salt"),
    }
    for mechanism in ScramMechanism
}


class NoTokens:
    def find(self, mechanism: ScramMechanism, token_id: str) -> tuple[scram.ScramCredential, None]:
        return users().find(mechanism, f"token {token_id}")[0], None


def users() -> ScramUsers:
    return ScramUsers(lambda: KNOWN, SECRET)


def server(mechanism: ScramMechanism = SHA_256, nonce: str = "server") -> ScramServer:
    return ScramServer(mechanism, users(), NoTokens(), nonce)


def client(name: str = "alice", password: str = "secret", mechanism: ScramMechanism = SHA_256) -> ScramClient:
    return ScramClient(mechanism, name, password, "client")


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_client_that_knows_the_password_is_authenticated(mechanism: ScramMechanism) -> None:
    ours, theirs = client(mechanism=mechanism), server(mechanism)
    challenge = theirs.evaluate(ours.first())
    assert challenge.identity is None
    final = ours.next(challenge.token)
    assert final is not None
    last = theirs.evaluate(final)
    assert last.identity is not None
    assert str(last.identity.principal) == "User:alice"
    assert ours.next(last.token) is None


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("bob", "secret"), ("nobody", "secret")])
def test_wrong_passwords_and_unknown_users_fail_alike(name: str, password: str) -> None:
    ours, theirs = client(name, password), server()
    final = ours.next(theirs.evaluate(ours.first()).token)
    assert final is not None
    with pytest.raises(SaslFailure) as raised:
        theirs.evaluate(final)
    assert raised.value.client_message is None


def test_an_unknown_user_has_the_same_salt_each_time_and_looks_like_others() -> None:
    first = scram.parse_server_first(server().evaluate(client("nobody").first()).token)
    again = scram.parse_server_first(server().evaluate(client("nobody").first()).token)
    other = scram.parse_server_first(server().evaluate(client("somebody").first()).token)
    known = scram.parse_server_first(server().evaluate(client().first()).token)
    assert first == again
    assert first.salt != other.salt
    assert (first.iterations, len(first.salt)) == (known.iterations, len(known.salt))
    sha_512 = scram.parse_server_first(server(SHA_512).evaluate(client("nobody").first()).token)
    assert sha_512.salt != first.salt


def test_a_key_that_was_invented_authenticates_nobody() -> None:
    """Even a client that guesses the cluster's secret cannot be a user that does not exist."""
    invented, is_real = users().find(SHA_256, "nobody")
    assert not is_real
    assert invented.stored_key != KNOWN[SHA_256.value]["alice"].stored_key


def test_every_exchange_has_a_nonce_of_its_own() -> None:
    seed = random.Random(1)
    mechanism = ScramServerMechanism(SHA_256, users(), NoTokens(), seed.randbytes)
    tokens = {mechanism.begin().evaluate(client().first()).token for _ in range(20)}
    assert len(tokens) == 20


def test_a_final_message_cannot_be_replayed() -> None:
    ours, theirs = client(), server(nonce="one")
    final = ours.next(theirs.evaluate(ours.first()).token)
    assert final is not None
    theirs.evaluate(final)
    replayed = server(nonce="two")
    replayed.evaluate(client().first())
    with pytest.raises(SaslFailure, match="nonce"):
        replayed.evaluate(final)
    with pytest.raises(SaslFailure):
        theirs.evaluate(final)


def test_messages_out_of_order_fail_for_good() -> None:
    ours, theirs = client(), server()
    final = ours.next(theirs.evaluate(ours.first()).token)
    assert final is not None
    early = server()
    with pytest.raises(SaslFailure):
        early.evaluate(final)
    with pytest.raises(SaslFailure):
        early.evaluate(ours.first())
    twice = server()
    twice.evaluate(ours.first())
    with pytest.raises(SaslFailure):
        twice.evaluate(ours.first())
    with pytest.raises(SaslFailure):
        twice.evaluate(final)


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_nobody_acts_as_another(name: str) -> None:
    with pytest.raises(SaslFailure) as raised:
        server().evaluate(f"n,a=bob,n={name},r=client".encode())
    assert "authorization id that is different from username" in (raised.value.client_message or "")


def test_the_authorization_id_may_be_the_user() -> None:
    theirs = server()
    first = b"n,a=alice,n=alice,r=client"
    challenge = scram.parse_server_first(theirs.evaluate(first).token)
    theirs.evaluate(_final(challenge, "n=alice,r=client", base64.b64encode(b"n,a=alice,").decode()))


@pytest.mark.parametrize("header", [b"y,,", b"p=tls-unique,,", b"n,a=bob,"])
def test_another_channel_binding_fails(header: bytes) -> None:
    theirs = server()
    challenge = scram.parse_server_first(theirs.evaluate(b"n,,n=alice,r=client").token)
    with pytest.raises(SaslFailure, match="channel binding"):
        theirs.evaluate(_final(challenge, "n=alice,r=client", base64.b64encode(header).decode()))


def _final(challenge: scram.ServerFirst, bare: str, binding: str) -> bytes:
    salted = scram.salted_password(SHA_256, "secret", challenge.salt, challenge.iterations)
    without_proof = f"c={binding},r={challenge.nonce}"
    message = scram.auth_message(bare, challenge.text, without_proof)
    proof = base64.b64encode(scram.client_proof(SHA_256, salted, message)).decode()
    return f"{without_proof},p={proof}".encode()


def test_a_user_is_not_a_token() -> None:
    theirs = server()
    challenge = scram.parse_server_first(theirs.evaluate(b"n,,n=alice,r=client,tokenauth=true").token)
    with pytest.raises(SaslFailure, match="invalid credentials"):
        theirs.evaluate(_final(challenge, "n=alice,r=client,tokenauth=true", "biws"))


# ---- mutations: whatever is changed, nobody is authenticated and nothing else is raised


def mutated(token: bytes, choice: random.Random) -> bytes:
    kind = choice.randrange(7)
    at = choice.randrange(len(token) + 1)
    if kind == 0:
        return token[:at]
    if kind == 1:
        return token[:at] + choice.randbytes(choice.randrange(1, 9)) + token[at:]
    if kind == 2:
        return token[:at] + choice.randbytes(1) + token[at + 1 :]
    if kind == 3:
        return token * choice.randrange(2, 50)
    if kind == 4:
        return b""
    if kind == 5:
        return token.replace(b"alice", b"bob").replace(b"client", b"other")
    return choice.randbytes(choice.randrange(65536))


@given(st.integers(min_value=0, max_value=2**32), st.booleans())
def test_no_mutation_authenticates(seed: int, changes_first: bool) -> None:
    choice = random.Random(seed)
    ours, theirs = client(), server()
    first = ours.first()
    sent_first = mutated(first, choice) if changes_first else first
    try:
        challenge = theirs.evaluate(sent_first)
        assert challenge.identity is None
        final = ours.next(challenge.token)
        assert final is not None
        sent_final = mutated(final, choice)
        if (sent_first, sent_final) == (first, final):
            return
        theirs.evaluate(sent_final)
    except (SaslFailure, SaslClientError):
        return
    pytest.fail(f"seed {seed}: {sent_first!r} and {sent_final!r} were accepted")


@given(st.integers(min_value=0, max_value=2**32), st.booleans())
def test_a_client_accepts_no_mutated_server(seed: int, changes_first: bool) -> None:
    choice = random.Random(seed)
    ours, theirs = client(), server()
    challenge = theirs.evaluate(ours.first()).token
    sent = mutated(challenge, choice) if changes_first else challenge
    try:
        final = ours.next(sent)
        assert final is not None
        last = theirs.evaluate(final).token
        sent_last = mutated(last, choice)
        if (sent, sent_last) == (challenge, last):
            return
        ours.next(sent_last)
    except (SaslFailure, SaslClientError):
        return
    pytest.fail(f"seed {seed}: {sent!r} and {sent_last!r} were accepted")


@pytest.mark.parametrize("iterations", [0, 1, 4095, ITERATIONS_MAX + 1, 10**9, 10**12])
def test_a_server_cannot_choose_how_weakly_or_how_long_a_client_hashes(iterations: int) -> None:
    with pytest.raises(SaslClientError):
        client().next(f"r=clientserver,s=AAAA,i={iterations}".encode())


def test_a_client_does_not_accept_a_server_without_the_credential() -> None:
    ours = client()
    final = ours.next(f"r=clientserver,s={base64.b64encode(b'salt').decode()},i=4096".encode())
    assert final is not None
    with pytest.raises(SaslClientError, match="signature"):
        ours.next(b"v=" + base64.b64encode(bytes(32)))
    with pytest.raises(SaslClientError):
        client().next(b"r=other,s=AAAA,i=4096")
    with pytest.raises(SaslClientError):
        client().next(b"r=client,s=AAAA,i=4096")
