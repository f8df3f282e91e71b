"""The SASL service of a broker: which mechanisms each listener has, with which users, and how long a session lasts.

The mechanisms of a listener are built when first needed and again when the settings change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from flintmq.effects import Clock, Executor, Random
from flintmq.errors import ConfigurationError
from flintmq.metrics import AuthenticationCounters
from flintmq.protocol import scram
from flintmq.protocol.scram import ScramMechanism
from flintmq.security.authentication.hashing import HashingQueue
from flintmq.security.authentication.mechanism import Identity, Mechanism
from flintmq.security.authentication.oauthbearer.key_endpoint import EndpointSettings, KeyEndpoint
from flintmq.security.authentication.oauthbearer.keys import KeyFile
from flintmq.security.authentication.oauthbearer.server import OAUTHBEARER, OAuthBearerMechanism
from flintmq.security.authentication.oauthbearer.token import TokenRules
from flintmq.security.authentication.plain import PLAIN, PlainMechanism
from flintmq.security.authentication.plain_users import PlainUsers
from flintmq.security.authentication.plugins import ListenerContext, MechanismFactory, find_plugin
from flintmq.security.authentication.scram import ScramServerMechanism
from flintmq.security.authentication.scram_users import ScramUsers
from flintmq.security.authentication.users_file import UsersFile
from flintmq.security.delegation_tokens import DelegationTokens
from flintmq.settings import BrokerConfig
from flintmq.settings.broker.rest import BASIC, BEARER
from flintmq.settings.jaas import jaas_users, parse_jaas
from flintmq.settings.listeners import listener_setting, protocols_of
from flintmq.settings.rest import REST_LISTENER

logger = logging.getLogger(__name__)

BUILT_IN = (PLAIN, *scram.MECHANISM_NAMES, OAUTHBEARER)
OTHER = "other"
"""The label of mechanisms that are not enabled, in metrics: a client chooses the name."""


class SaslAuthenticator:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        scram_users: ScramUsers,
        tokens: DelegationTokens,
        secret: bytes,
        clock: Clock,
        random: Random,
        executor: Executor,
        counters: AuthenticationCounters | None = None,
    ) -> None:
        self._config = config
        self._seen: BrokerConfig | None = None
        self._by_listener: dict[str, dict[str, Mechanism]] = {}
        self._users_file: UsersFile | None = None
        self._users_path: str | None = None
        self._factories: dict[str, MechanismFactory] = {}
        self._endpoints: dict[EndpointSettings, KeyEndpoint] = {}
        """Of the settings in force. They outlive changes of settings that leave them in use."""
        self._former_endpoints: dict[EndpointSettings, KeyEndpoint] = {}
        """Those before a change, while it is applied."""
        self.scram_users = scram_users
        self._tokens = tokens
        self._secret = secret
        self._clock = clock
        self._random = random
        self._executor = executor
        self.hashing = HashingQueue(executor)
        self.counters = counters or AuthenticationCounters()

    def check(self, config: BrokerConfig | None = None) -> None:
        """Build everything now; ConfigurationError says which setting is wrong. For the start, and for changes."""
        known = dict(self._endpoints)
        try:
            self._build_all(config or self._config())
        finally:
            if config is not None:
                # Settings that may never be in force must leave no endpoint that keys are fetched from.
                self._endpoints = known

    def listeners_changed(self) -> None:
        """Build everything again, and forget the issuers that no listener has any more."""
        self._former_endpoints, self._endpoints = self._endpoints, {}
        self._by_listener.clear()
        try:
            self._build_all(self._config())
        except ConfigurationError as error:
            logger.error("the SASL settings of the listeners cannot be used: %s", error)
            self._endpoints = {**self._former_endpoints, **self._endpoints}
        self._former_endpoints = {}

    def _build_all(self, config: BrokerConfig) -> None:
        names = [name for name, protocol in protocols_of(config).items() if protocol.has_sasl]
        if config.flint_rest_port >= 0 and {BASIC, BEARER} & set(config.flint_rest_authentication):
            names.append(REST_LISTENER)
        for listener in names:
            self._build(config, listener)
        if REST_LISTENER in names:
            self._check_rest(config)

    def _check_rest(self, config: BrokerConfig) -> None:
        """Raise ConfigurationError if a way to authenticate over HTTP has nothing to verify it with."""
        enabled = set(listener_setting(config, REST_LISTENER, "sasl.enabled.mechanisms"))
        for method, needed in ((BASIC, (PLAIN, *scram.MECHANISM_NAMES)), (BEARER, (OAUTHBEARER,))):
            if method in config.flint_rest_authentication and not enabled & set(needed):
                raise ConfigurationError(
                    f"flint.rest.authentication={method} needs {' or '.join(needed)}; add it to "
                    "listener.name.rest.sasl.enabled.mechanisms"
                )

    @property
    def failure_delay_s(self) -> float:
        return self._config().connection_failed_authentication_delay_ms / 1000

    def mechanisms(self, listener: str) -> Mapping[str, Mechanism]:
        """Return the enabled mechanisms of a listener, in the order of the setting."""
        config = self._config()
        if config is not self._seen:
            self._seen = config
            self._by_listener.clear()
        found = self._by_listener.get(listener)
        if found is None:
            try:
                found = self._build(config, listener)
            except ConfigurationError as error:
                logger.error("nobody can authenticate on listener %s: %s", listener, error)
                found = {}
            self._by_listener[listener] = found
        return found

    def label(self, listener: str, mechanism: str) -> str:
        return mechanism if mechanism in self.mechanisms(listener) else OTHER

    def lifetime_ms(self, listener: str, mechanism: str, identity: Identity) -> int | None:
        """Return how long an authentication that succeeds now holds; None for ever."""
        limit = int(
            listener_setting(self._config(), listener, f"{mechanism.lower()}.connections.max.reauth.ms")
        )
        left = None if identity.expires_ms is None else max(0, identity.expires_ms - self._clock.now_ms())
        if left is None:
            return limit if limit > 0 else None
        return min(left, limit) if limit > 0 else left

    async def fetch_keys(self) -> None:
        """Fetch the keys of all issuers once, before clients connect. A failure is logged, and retried by `tick`."""
        await asyncio.gather(*(self._executor.run(one.refresh) for one in self._endpoints.values()))

    def tick(self) -> None:
        """Begin to fetch keys that are due."""
        for endpoint in self._endpoints.values():
            endpoint.tick()

    # ---- building

    def _build(self, config: BrokerConfig, listener: str) -> dict[str, Mechanism]:
        names: tuple[str, ...] = listener_setting(config, listener, "sasl.enabled.mechanisms")
        if not names:
            raise ConfigurationError(f"listener {listener} has no mechanism; set sasl.enabled.mechanisms")
        return {name: self._mechanism(config, listener, name) for name in names}

    def _mechanism(self, config: BrokerConfig, listener: str, name: str) -> Mechanism:
        if name == PLAIN:
            return PlainMechanism(self._plain_users(config, listener))
        if name in scram.MECHANISM_NAMES:
            return ScramServerMechanism(
                ScramMechanism(name), self.scram_users, self._tokens, self._random.bytes
            )
        if name == OAUTHBEARER:
            return self._oauthbearer(config, listener)
        factory = self._factories.get(name) or find_plugin(name)
        if factory is None:
            hint = " GSSAPI (Kerberos) is not available in FlintMQ." if name == "GSSAPI" else ""
            raise ConfigurationError(
                f"sasl.enabled.mechanisms of listener {listener} has {name}, which is not known. Available are "
                f"{', '.join(BUILT_IN)}, and plug-ins (flintmq.authenticators).{hint}"
            )
        self._factories[name] = factory
        protocols = protocols_of(config)
        protocol = protocols[listener].value if listener in protocols else config.flint_rest_security_protocol
        text = config.listener_overrides.get((listener, f"{name.lower()}.sasl.jaas.config"))
        options = parse_jaas(text)[0].options if text else {}
        try:
            return factory(ListenerContext(listener, name, protocol, options))
        except Exception as error:
            raise ConfigurationError(
                f"the authenticator {name} of listener {listener} failed: {error}"
            ) from error

    def _oauthbearer(self, config: BrokerConfig, listener: str) -> OAuthBearerMechanism:
        def own(name: str) -> Any:
            return listener_setting(config, listener, f"sasl.oauthbearer.{name}")

        url = own("jwks.endpoint.url")
        if url is None:
            raise ConfigurationError(
                f"listener {listener} has no keys for OAUTHBEARER; set sasl.oauthbearer.jwks.endpoint.url"
            )
        rules = TokenRules(
            audiences=own("expected.audience"),
            issuer=own("expected.issuer"),
            name_claim=own("sub.claim.name"),
            clock_skew_s=own("clock.skew.seconds"),
        )
        if urlsplit(url).scheme == "file":
            return OAuthBearerMechanism(KeyFile(unquote(urlsplit(url).path)), rules, self._clock)
        settings = EndpointSettings(
            url,
            own("jwks.endpoint.refresh.ms"),
            own("jwks.endpoint.retry.backoff.ms"),
            own("jwks.endpoint.retry.backoff.max.ms"),
            _trusted_certificates(config, listener),
        )
        endpoint = self._endpoints.get(settings)
        if endpoint is None:
            endpoint = self._former_endpoints.get(settings) or KeyEndpoint(settings, self._clock)
            self._endpoints[settings] = endpoint
        return OAuthBearerMechanism(endpoint, rules, self._clock)

    def _plain_users(self, config: BrokerConfig, listener: str) -> PlainUsers:
        text = listener_setting(config, listener, "plain.sasl.jaas.config")
        users_file = self._opened_users_file(config.flint_users_file)
        if text is None and users_file is None:
            raise ConfigurationError(
                f"listener {listener} has no users for PLAIN. Set "
                f"listener.name.{listener.lower()}.plain.sasl.jaas.config, or flint.users.file."
            )
        try:
            passwords = jaas_users(text) if text is not None else {}
        except ValueError as error:
            raise ConfigurationError(f"sasl.jaas.config of listener {listener}: {error}") from None
        return PlainUsers(passwords, users_file, self._secret)

    def _opened_users_file(self, path: str | None) -> UsersFile | None:
        if path != self._users_path:
            self._users_file = UsersFile(path) if path else None
            self._users_path = path
        return self._users_file


def _trusted_certificates(config: BrokerConfig, listener: str) -> str | None:
    """Return the PEM file that the JAAS options of OAUTHBEARER name, as Kafka has it."""
    text = config.listener_overrides.get((listener, f"{OAUTHBEARER.lower()}.sasl.jaas.config"))
    if not text:
        return None
    options = parse_jaas(text)[0].options
    if options.get("ssl.truststore.type", "PEM").upper() != "PEM":
        raise ConfigurationError(
            f"the ssl.truststore.location of OAUTHBEARER on listener {listener} must be a PEM file; set "
            "ssl.truststore.type=PEM"
        )
    return options.get("ssl.truststore.location")
