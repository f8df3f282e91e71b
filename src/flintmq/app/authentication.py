"""Authentication of a running broker: its users, delegation tokens and SASL mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flintmq.app.cluster_identity import ensure_sasl_secret
from flintmq.effects import Clock, Executor, Random
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metrics import AuthenticationCounters
from flintmq.security.authentication.authenticator import SaslAuthenticator
from flintmq.security.authentication.scram_users import ScramUsers
from flintmq.security.delegation_tokens import DelegationTokens
from flintmq.settings import BrokerConfig
from flintmq.settings.listeners import protocols_of

_SECRET_BYTES: Final = 32


class BrokerAuthentication:
    def __init__(
        self,
        metadata: ClusterMetadata,
        secret: bytes,
        users: ScramUsers,
        tokens: DelegationTokens,
        sasl: SaslAuthenticator,
    ) -> None:
        self._metadata = metadata
        self._secret = secret
        self.users = users
        self.tokens = tokens
        self.sasl = sasl

    @classmethod
    async def create(
        cls,
        config: Callable[[], BrokerConfig],
        metadata: ClusterMetadata,
        *,
        clock: Clock,
        random: Random,
        executor: Executor,
        counters: AuthenticationCounters,
    ) -> BrokerAuthentication:
        """Raise ConfigurationError if the settings do not name all that the mechanisms need."""
        secret = random.bytes(_SECRET_BYTES)
        if _is_needed(config()):
            await ensure_sasl_secret(metadata, secret)
        # Else this one, which is stored when a listener with SASL is added.
        secret = metadata.image.sasl_secret or secret
        users = ScramUsers(lambda: metadata.image.scram, secret)
        tokens = DelegationTokens(
            config, metadata, secret=secret, clock=clock, random=random, executor=executor
        )
        sasl = SaslAuthenticator(
            config,
            scram_users=users,
            tokens=tokens,
            secret=secret,
            clock=clock,
            random=random,
            executor=executor,
            counters=counters,
        )
        sasl.check()
        await sasl.fetch_keys()
        return cls(metadata, secret, users, tokens, sasl)

    async def listeners_changed(self, config: BrokerConfig) -> None:
        """Listeners were added or removed while the broker runs."""
        if _is_needed(config):
            await ensure_sasl_secret(self._metadata, self._secret)
        self.sasl.listeners_changed()

    def tick(self) -> None:
        """Called once a second."""
        self.tokens.tick()
        self.sasl.tick()


def _is_needed(config: BrokerConfig) -> bool:
    return bool(config.flint_rest_authentication) or any(
        protocol.has_sasl for protocol in protocols_of(config).values()
    )
