"""OAUTHBEARER: which tokens are accepted, and the exchange around them."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from flintmq.errors import ConfigurationError
from flintmq.security.authentication.mechanism import Identity, SaslFailure, SaslStep
from flintmq.security.authentication.oauthbearer.keys import KeyFile, parse_keys
from flintmq.security.authentication.oauthbearer.server import OAuthBearerServer
from flintmq.security.authentication.oauthbearer.token import InvalidToken, TokenRules, verify_token
from support.security.tokens import (
    OTHER_KEY,
    RSA_KEY,
    base64url,
    ec_entry,
    key_set,
    rsa_entry,
    signed,
    signed_text,
)

NOW_S = 1_700_000_000
RULES = TokenRules(audiences=("flintmq", "other"), issuer="https://issuer", clock_skew_s=30)
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "aud": "flintmq",
    "iss": "https://issuer",
    "exp": NOW_S + 600,
    "iat": NOW_S,
}


class FixedClock:
    def now_ms(self) -> int:
        return NOW_S * 1000

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    path = tmp_path / "keys.json"
    path.write_text(key_set())
    return KeyFile(str(path))


def verify(token: str, keys: KeyFile, rules: TokenRules = RULES) -> Identity:
    return verify_token(token, rules, keys.find, NOW_S)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_a_signed_token(keys: KeyFile, algorithm: str) -> None:
    identity = verify(signed(CLAIMS, algorithm=algorithm), keys)
    assert str(identity.principal) == "User:alice"
    assert identity.expires_ms == (NOW_S + 600) * 1000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "needs an end"),
        ({"exp": "soon"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": -1}, "not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"aud": "elsewhere"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": {"flintmq": 1}}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"iss": "https://issuer/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"sub": ""}, "names nobody"),
        ({"sub": ["alice"]}, "names nobody"),
    ],
)
def test_claims_that_are_refused(keys: KeyFile, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidToken, match=words):
        verify(signed({**CLAIMS, **changes}), keys)


@pytest.mark.parametrize("changes", [{"exp": NOW_S - 29}, {"nbf": NOW_S + 29}, {"aud": ["x", "other"]}])
def test_claims_within_the_limits(keys: KeyFile, changes: dict[str, Any]) -> None:
    assert verify(signed({**CLAIMS, **changes}), keys).principal.name == "alice"


def test_another_claim_may_name_the_principal(keys: KeyFile) -> None:
    rules = TokenRules(name_claim="client_id")
    assert verify(signed({**CLAIMS, "client_id": "robot"}), keys, rules).principal.name == "robot"


def header(**fields: str) -> str:
    return base64url(json.dumps(fields).encode())


def public_texts() -> list[bytes]:
    """The public key as everybody has it: what a shared secret could be mistaken for."""
    public = RSA_KEY.public_key()
    formats = [(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), (Encoding.DER, PublicFormat.PKCS1)]
    texts = [public.public_bytes(*one) for one in formats]
    return [*texts, texts[0].strip(), json.dumps(rsa_entry()).encode()]


@pytest.mark.parametrize("name", ["sub", "exp", "aud", "extra"])
def test_a_claim_that_is_there_twice_is_refused(keys: KeyFile, name: str) -> None:
    """Readers differ in which of them they take."""
    text = json.dumps({**CLAIMS, "extra": {"a": 1}})
    twice = text[:-1] + f', "{name}": {json.dumps(CLAIMS.get(name, 1))}}}'
    nested = text.replace('{"a": 1}', '{"a": 1, "a": 1}')
    for claims in (twice, nested):
        with pytest.raises(InvalidToken, match="cannot be read"):
            verify(signed_text(claims), keys)
    verify(signed_text(text), keys)


def test_a_header_field_that_is_there_twice_is_refused(keys: KeyFile) -> None:
    head = '{"alg": "none", "kid": "rsa", "alg": "RS256"}'
    with pytest.raises(InvalidToken, match="cannot be read"):
        verify(signed_text(json.dumps(CLAIMS), head), keys)


def test_no_token_without_the_signature_of_a_known_key(keys: KeyFile) -> None:
    good = signed(CLAIMS)
    head, body, signature = good.split(".")
    other = base64url(json.dumps({**CLAIMS, "sub": "admin"}).encode())
    shared = f"{header(alg='HS256', kid='rsa')}.{body}"
    for token in (
        signed(CLAIMS, key=OTHER_KEY),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}",
        f"{header(alg='none')}.{body}.",
        f"{header(alg='None', kid='rsa')}.{body}.{signature}",
        *(
            f"{shared}.{base64url(hmac.digest(one, shared.encode(), hashlib.sha256))}"
            for one in public_texts()
        ),
        signed(CLAIMS, header={"kid": "unknown"}),
        signed(CLAIMS, header={"kid": ["rsa"]}),
        signed(CLAIMS, header={"kid": "ec"}),  # a key of another kind
        signed(CLAIMS, header={"alg": "ES256", "kid": "rsa"}),
        signed(CLAIMS, header={"crit": ["exp"]}),
        signed(CLAIMS, header={"kid": ""}),  # two keys, and none is named
        "",
        "..",
        "a.b",
        f"{good}.x",
        f"{'[' * 10000}.{body}.{signature}",
        f"{base64url(b'[' * 20000)}.{body}.{signature}",
    ):
        with pytest.raises(InvalidToken):
            verify(token, keys)


def test_keys_are_read_again_when_they_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    path.write_text(key_set(rsa_entry(OTHER_KEY)))
    keys = KeyFile(str(path))
    with pytest.raises(InvalidToken):
        verify(signed(CLAIMS), keys)
    path.write_text(key_set(rsa_entry(), ec_entry()))
    assert verify(signed(CLAIMS), keys)
    path.write_text("{}")
    assert verify(signed(CLAIMS), keys)
    assert "expected a JSON Web Key Set" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"keys": []}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        '{"keys": [{"kty": "RSA", "e": "x"}]}',
    ],
)
def test_key_sets_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        KeyFile(str(path))


def test_a_key_is_used_with_its_algorithm_only() -> None:
    (key,) = parse_keys(key_set(rsa_entry(alg="PS256"), rsa_entry(use="enc")))
    assert key.algorithms == ("PS256",)


# ---- the exchange


def evaluate(server: OAuthBearerServer, token: bytes) -> SaslStep:
    step = server.evaluate(token)
    return step if isinstance(step, SaslStep) else step()


def first(token: str, authorization_id: str = "") -> bytes:
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {token}\x01key=value\x01\x01".encode()


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_the_exchange(keys: KeyFile, authorization_id: str) -> None:
    step = evaluate(OAuthBearerServer(keys, RULES, FixedClock()), first(signed(CLAIMS), authorization_id))
    assert step.identity is not None
    assert step.identity.principal.name == "alice"


def test_nobody_acts_as_another(keys: KeyFile) -> None:
    with pytest.raises(SaslFailure, match="asked to act as 'bob'"):
        evaluate(OAuthBearerServer(keys, RULES, FixedClock()), first(signed(CLAIMS), "bob"))


def test_an_invalid_token_is_answered_and_fails_with_the_next_message(keys: KeyFile) -> None:
    server = OAuthBearerServer(keys, RULES, FixedClock())
    step = evaluate(server, first(signed({**CLAIMS, "exp": NOW_S - 100})))
    assert step == SaslStep(b'{"status":"invalid_token"}')
    with pytest.raises(SaslFailure, match="expired") as raised:
        evaluate(server, b"\x01")
    assert raised.value.client_message == '{"status":"invalid_token"}'
    with pytest.raises(SaslFailure):
        evaluate(server, first(signed(CLAIMS)))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"\xff",
        b"y,,\x01auth=Bearer x\x01\x01",
    ],
)
def test_messages_that_cannot_be_read(keys: KeyFile, token: bytes) -> None:
    with pytest.raises(SaslFailure):
        evaluate(OAuthBearerServer(keys, RULES, FixedClock()), token)
