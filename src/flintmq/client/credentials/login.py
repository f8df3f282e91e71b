"""What a client logs in with: settings whose references are resolved here, and tokens that are fetched.

Invariant: each authentication has a login of its own, so that the next one uses a replaced file or a new token.
"""

from __future__ import annotations

from flintmq.client.credentials.bearer_tokens import BearerTokens
from flintmq.client.sasl import NONCE_BYTES, OAUTHBEARER, BearerClient, SaslClient, sasl_client
from flintmq.client.security import ClientSecurity
from flintmq.effects import Clock
from flintmq.effects.real import SystemRandom
from flintmq.settings.references import resolve_references


class Login:
    def __init__(self, security: ClientSecurity, clock: Clock) -> None:
        self.security = security
        self._tokens = BearerTokens(security.bearer, clock)

    def begin(self) -> SaslClient:
        """Raise ConfigurationError for settings that are wrong, TokenError where there is no token now."""
        security = self.security
        if security.mechanism == OAUTHBEARER:
            return BearerClient(self._tokens.token())
        return sasl_client(
            security.mechanism,
            resolve_references(security.username, "sasl.username"),
            resolve_references(security.password, "sasl.password"),
            SystemRandom().bytes(NONCE_BYTES),
            is_delegation_token=security.is_delegation_token,
        )
