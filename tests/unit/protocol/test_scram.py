"""SCRAM's messages and keys, against the example of RFC 7677."""

from __future__ import annotations

import base64

import pytest

from flintmq.protocol import scram
from flintmq.protocol.scram import ScramError, ScramMechanism

USER, PASSWORD = "user", "pencil"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_SIGNATURE = b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_the_rfc() -> None:
    mechanism = ScramMechanism.SHA_256
    first, challenge = scram.parse_client_first(CLIENT_FIRST), scram.parse_server_first(SERVER_FIRST)
    final = scram.parse_client_final(CLIENT_FINAL)
    salted = scram.salted_password(mechanism, PASSWORD, challenge.salt, challenge.iterations)
    credential = scram.credential_of(mechanism, salted, salt=challenge.salt, iterations=challenge.iterations)
    message = scram.auth_message(first.bare, challenge.text, final.without_proof)
    assert scram.client_proof(mechanism, salted, message) == final.proof
    assert scram.proves(mechanism, credential, message, final.proof)
    signature = scram.server_signature(mechanism, credential.server_key, message)
    assert base64.b64encode(signature) == SERVER_SIGNATURE
    assert scram.server_first(challenge.nonce, credential).text.encode() == SERVER_FIRST


@pytest.mark.parametrize("proof", [b"", bytes(32), bytes(31), bytes(33), bytes(4096)])
def test_no_other_proof_is_accepted(proof: bytes) -> None:
    mechanism = ScramMechanism.SHA_256
    credential = scram.credential_of(mechanism, b"salted", salt=b"salt", iterations=4096)
    assert not scram.proves(mechanism, credential, b"message", proof)


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C", "=3D,=", "a b", "a/b:c"])
def test_names_survive_their_encoding(name: str) -> None:
    first = scram.parse_client_first(f"n,,n={scram.encode_name(name)},r=nonce".encode())
    assert first.username == name


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=x",  # = that encodes nothing
        b"n,,n=user,r=a b",  # a nonce is printable
        b"y,,n=user,r=x",  # the client would support channel binding
        b"p=tls-unique,,n=user,r=x",  # and here demands it
        b"n,,n=user\xff,r=x",
        b"n,,n=\xc3\xa4,r=x",
        b"n,,n=user,r=x\0",
        CLIENT_FIRST + b",",
        CLIENT_FIRST + b",x",
        CLIENT_FINAL,
        b"\x00" * 65536,
    ],
)
def test_what_is_no_first_message(token: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_client_first(token)


def test_extensions_are_read() -> None:
    first = scram.parse_client_first(b"n,a=user,n=user,r=x,tokenauth=true")
    assert first.extensions == {"tokenauth": "true"}
    assert first.authorization_id == "user"
    assert first.bare == "n=user,r=x,tokenauth=true"


@pytest.mark.parametrize(
    "token", [b"", CLIENT_FINAL[:-1], CLIENT_FINAL + b"=", b"c=biws,r=x", b"c=!,r=x,p=AAAA", CLIENT_FIRST]
)
def test_what_is_no_final_message(token: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_client_final(token)


@pytest.mark.parametrize("count", [b"", b"-1", b"4096.0", b"9999999999"])
def test_iterations_are_a_number_of_a_sane_size(count: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_server_first(b"r=x,s=AAAA,i=" + count)
