"""A SASL mechanism of one's own: X-TOKEN, by which a client sends a token that the listener's settings name.

Installed with this entry point in its `pyproject.toml`,

    [project.entry-points."flintmq.authenticators"]
    X-TOKEN = "static_token:StaticTokenMechanism"

it is enabled and configured as any mechanism is:

    flintmq serve --set listeners=SASL_PLAINTEXT://localhost:9092 --set sasl.enabled.mechanisms=X-TOKEN \
        --set 'listener.name.sasl_plaintext.x-token.sasl.jaas.config=static_token required robot="t0ken";'
"""

from __future__ import annotations

import hmac

from flintmq.security.authentication.mechanism import Evaluation, Identity, SaslFailure, SaslStep
from flintmq.security.authentication.plugins import ListenerContext
from flintmq.security.principal import Principal


class StaticTokenMechanism:
    """Made once for each listener that enables X-TOKEN."""

    def __init__(self, context: ListenerContext) -> None:
        if not context.options:
            raise ValueError("its sasl.jaas.config names no tokens")
        self._tokens = {name: token.encode() for name, token in context.options.items()}

    def begin(self) -> StaticTokenServer:
        return StaticTokenServer(self._tokens)


class StaticTokenServer:
    """One authentication of one connection. What takes long is returned as a function, which runs in a thread."""

    def __init__(self, tokens: dict[str, bytes]) -> None:
        self._tokens = tokens

    def evaluate(self, token: bytes) -> Evaluation:
        # All are compared, so that the time says nothing about which one is nearly right.
        names = [name for name, known in self._tokens.items() if hmac.compare_digest(known, token)]
        if not names:
            raise SaslFailure("an unknown token")
        return SaslStep(b"", Identity(Principal("User", names[0])))
