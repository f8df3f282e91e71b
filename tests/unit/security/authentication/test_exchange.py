"""The SASL states of one connection."""

from __future__ import annotations

import pytest

from flintmq.security.authentication.exchange import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Admission,
    ExchangeState,
    SaslExchange,
)
from flintmq.security.authentication.mechanism import SaslFailure
from flintmq.security.authentication.plain import PlainMechanism
from flintmq.security.authentication.plain_users import PlainUsers

METADATA = 3
PLAIN = PlainMechanism(PlainUsers({"alice": "secret"}, None, bytes(32)))
ENABLED = {"PLAIN": PLAIN, "OTHER": PLAIN}


def admissions(exchange: SaslExchange) -> dict[int, Admission]:
    return {key: exchange.admit(key) for key in (METADATA, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)}


def test_what_is_handled_in_which_state() -> None:
    exchange = SaslExchange()
    handle, close, illegal = Admission.HANDLE, Admission.CLOSE, Admission.ILLEGAL_STATE
    assert list(admissions(exchange).values()) == [close, handle, handle, close]
    exchange.versions_sent()
    assert list(admissions(exchange).values()) == [close, close, handle, close]
    assert exchange.handshake("PLAIN", 1, ENABLED)
    assert list(admissions(exchange).values()) == [illegal, illegal, illegal, handle]
    exchange.fail()
    assert set(admissions(exchange).values()) == {close}


@pytest.mark.parametrize(("version", "expects_bare"), [(0, True), (1, False)])
def test_tokens_are_bare_after_version_0(version: int, expects_bare: bool) -> None:
    exchange = SaslExchange()
    assert not exchange.expects_bare_token
    exchange.handshake("PLAIN", version, ENABLED)
    assert exchange.expects_bare_token is expects_bare
    exchange.complete()
    assert not exchange.expects_bare_token


def test_a_mechanism_that_is_not_enabled_ends_the_exchange() -> None:
    exchange = SaslExchange()
    assert not exchange.handshake("GSSAPI", 1, ENABLED)
    assert exchange.state is ExchangeState.FAILED


def test_re_authentication_keeps_the_mechanism_and_has_an_interval() -> None:
    exchange = SaslExchange()
    exchange.handshake("PLAIN", 1, ENABLED)
    exchange.complete()
    assert exchange.begin_reauthentication(10.0)
    assert exchange.words == "re-authentication"
    exchange.handshake("PLAIN", 1, ENABLED)
    exchange.evaluate(b"\0alice\0secret")
    exchange.complete()
    assert not exchange.begin_reauthentication(10.5)
    assert exchange.state is ExchangeState.COMPLETE
    assert exchange.begin_reauthentication(11.0)
    assert exchange.handshake("OTHER", 1, ENABLED)
    with pytest.raises(SaslFailure, match="not supported for re-authentication of mechanism 'PLAIN'"):
        exchange.evaluate(b"\0alice\0secret")
