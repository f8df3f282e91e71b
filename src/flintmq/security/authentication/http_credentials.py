"""Credentials of HTTP requests (`Authorization: Basic …` and `Bearer …`), judged by what SASL has.

Basic tries the users of PLAIN and the SCRAM credentials of the listener, all of them whatever the result, so that
failures take the same time. Bearer is a token of OAUTHBEARER. The work is that of a thread.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import Final

from flintmq.protocol import scram
from flintmq.protocol.scram import ScramMechanism
from flintmq.security.authentication.authenticator import SaslAuthenticator
from flintmq.security.authentication.mechanism import Identity, Mechanism, SaslFailure, SaslStep
from flintmq.security.authentication.oauthbearer.server import OAUTHBEARER
from flintmq.security.authentication.plain import PLAIN
from flintmq.security.principal import Principal

_Judge = Callable[[], "Identity | None"]
_SEPARATOR: Final = "\x01"


def judge_basic(sasl: SaslAuthenticator, listener: str, credentials: str) -> Callable[[], SaslStep]:
    """Return the work that verifies `user:password` in base64; the work raises SaslFailure."""
    username, password = _decode(credentials)
    mechanisms = sasl.mechanisms(listener)
    judges = [_plain(mechanisms[PLAIN], username, password)] if PLAIN in mechanisms else []
    judges += [
        _scram(sasl, ScramMechanism(name), username, password)
        for name in scram.MECHANISM_NAMES
        if name in mechanisms
    ]

    def work() -> SaslStep:
        # ORDER: all of them before one counts.
        found = [judge() for judge in judges]
        identity = next((one for one in found if one is not None), None)
        if identity is None:
            raise SaslFailure(f"invalid username or password of {username!r}")
        return SaslStep(b"", identity)

    return work


def judge_bearer(sasl: SaslAuthenticator, listener: str, token: str) -> Callable[[], SaslStep]:
    """Return the work that verifies a token; the work raises SaslFailure."""
    mechanism = sasl.mechanisms(listener).get(OAUTHBEARER)
    if mechanism is None or _SEPARATOR in token:
        raise SaslFailure("a bearer token that cannot be read, or OAUTHBEARER is not enabled")
    message = f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}"
    evaluation = mechanism.begin().evaluate(message.encode("utf-8", "replace"))

    def work() -> SaslStep:
        step = evaluation if isinstance(evaluation, SaslStep) else evaluation()
        if step.identity is None:
            raise SaslFailure("a bearer token that is not valid")
        return step

    return work


def _decode(credentials: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(credentials.encode("ascii"), validate=True).decode()
    except (UnicodeError, binascii.Error):
        text = ""
    username, colon, password = text.partition(":")
    if not colon or not username or "\0" in text:
        raise SaslFailure("basic credentials that cannot be read")
    return username, password


def _plain(mechanism: Mechanism, username: str, password: str) -> _Judge:
    try:
        evaluation = mechanism.begin().evaluate(f"\0{username}\0{password}".encode())
    except SaslFailure:
        return lambda: None

    def judge() -> Identity | None:
        try:
            return (evaluation if isinstance(evaluation, SaslStep) else evaluation()).identity
        except SaslFailure:
            return None

    return judge


def _scram(sasl: SaslAuthenticator, mechanism: ScramMechanism, username: str, password: str) -> _Judge:
    credential, is_real = sasl.scram_users.find(mechanism, username)

    def judge() -> Identity | None:
        salt, iterations = credential.salt, credential.iterations
        salted = scram.salted_password(mechanism, password, salt, iterations)
        given = scram.credential_of(mechanism, salted, salt=salt, iterations=iterations)
        matches = hmac.compare_digest(given.stored_key, credential.stored_key)
        return Identity(Principal("User", username)) if matches and is_real else None

    return judge
