"""Delegation tokens (KIP-48, KIP-373): credentials that a principal makes for programs that act in its name.

A token has an id, which is public, and an HMAC of the id by `delegation.token.secret.key`, which is the password. The
metadata store has the token without its HMAC, and the keys that verify the HMAC by SCRAM. A token that was made with
another secret key is not valid any more.

RequestError has the error codes of Kafka. A change is in force when the method returns.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from flintmq.effects import Clock, Executor, Random
from flintmq.errors import ErrorCode, FlintError, RequestError
from flintmq.metadata import keys
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.image import ImageDelta
from flintmq.metadata.store import Put
from flintmq.protocol.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from flintmq.records.uuids import encode_uuid
from flintmq.security.authentication.mechanism import Identity
from flintmq.security.authentication.scram_users import SALT_BYTES, ScramUsers
from flintmq.security.principal import USER, Principal, parse_principal
from flintmq.settings import BrokerConfig

logger = logging.getLogger(__name__)

TOKENS_MAX: Final = 20_000
TOKENS_PER_OWNER_MAX: Final = 2_000
RENEWERS_MAX: Final = 100
NAMES_SIZE_MAX: Final = 8192
"""Of the owner and all renewers together: every user may create tokens, and the metadata keeps them in memory."""
_TIME_MAX: Final = 2**63 - 1
_ATTEMPTS: Final = 5
_REMOVALS_PER_TXN: Final = 32


class DelegationToken(NamedTuple):
    id: str
    hmac: bytes
    value: keys.TokenValue


class DelegationTokens:
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        metadata: ClusterMetadata,
        *,
        secret: bytes,
        clock: Clock,
        random: Random,
        executor: Executor,
    ) -> None:
        """`secret` makes the salts of tokens that do not exist."""
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._random = random
        self._executor = executor
        self._unknown = ScramUsers(dict, secret)
        # Kafka reads the key at the start only.
        self._key = (config().delegation_token_secret_key or "").encode()
        self._key_check = hmac.digest(self._key, b"delegation token key", "sha512")[:16] if self._key else b""
        self._hmacs: dict[str, bytes] = {}
        """Of the valid tokens, by id."""
        self._ids: dict[bytes, str] = {}
        self._deriving = asyncio.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self._swept_at = clock.monotonic()
        self._follow(metadata.image.tokens)
        metadata.subscribe(self._changed)

    # ---- authentication

    def find(self, mechanism: ScramMechanism, token_id: str) -> tuple[ScramCredential, Identity | None]:
        # ORDER: both are looked up whatever the token, so that it takes the same time.
        invented, _ = self._unknown.find(mechanism, token_id)
        value = self._valid(token_id)
        known = None if value is None else value.scram.get(mechanism.value)
        if value is None or known is None:
            return invented, None
        owner = parse_principal(value.owner)
        credential = ScramCredential(known.salt, known.stored_key, known.server_key, known.iterations)
        return credential, Identity(owner, expires_ms=value.expires_ms, token_id=token_id)

    def is_valid(self, token_id: str) -> bool:
        """Return whether a session that authenticated with the token may go on."""
        return self._valid(token_id) is not None

    def _valid(self, token_id: str) -> keys.TokenValue | None:
        found = self._metadata.image.tokens.get(token_id)
        if found is None or token_id not in self._hmacs or self._is_expired(found.value):
            return None
        return found.value

    # ---- requests

    def check_enabled(self) -> None:
        if not self._key:
            raise RequestError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
                "There are no delegation tokens: the broker has no delegation.token.secret.key.",
            )

    async def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """Create a token; a maximum lifetime of 0 or less is that of the settings."""
        self.check_enabled()
        if any(one.kind != USER or not one.name for one in (owner, *renewers)):
            raise RequestError(
                ErrorCode.INVALID_PRINCIPAL_TYPE, "Owner and renewers of a token are principals User:NAME."
            )
        self._check_bounds(owner, renewers)
        now_ms, config = self._clock.now_ms(), self._config()
        lifetime_ms = config.delegation_token_max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        max_ms = min(_TIME_MAX, now_ms + lifetime_ms)
        token_id = self._new_id()
        made = self._hmac(token_id)
        scram = await self._derive(made)
        value = keys.TokenValue(
            owner=str(owner),
            requester=str(requester),
            renewers=[str(one) for one in renewers],
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + config.delegation_token_expiry_time_ms),
            max_ms=max_ms,
            key_check=self._key_check,
            scram=scram,
        )
        await self._metadata.write({keys.token(token_id): Put(keys.encode(value))})
        return DelegationToken(token_id, made, value)

    async def renew(self, made: bytes, principal: Principal, period_ms: int) -> int:
        """Return when the token expires now. A period of 0 or less is that of the settings."""
        self.check_enabled()
        usual_ms = self._config().delegation_token_expiry_time_ms
        return await self._change(made, principal, min(usual_ms, period_ms) if period_ms > 0 else usual_ms)

    async def expire(self, made: bytes, principal: Principal, period_ms: int) -> int:
        """Let the token expire after the period; remove it at once if the period is negative."""
        self.check_enabled()
        if period_ms >= 0:
            return await self._change(made, principal, period_ms)
        token_id = self._find(made, principal)
        await self._metadata.write({keys.token(token_id): None})
        return self._clock.now_ms()

    def all(self) -> list[DelegationToken]:
        """Return the tokens by id, the expired ones too."""
        tokens = self._metadata.image.tokens
        return [DelegationToken(one, made, tokens[one].value) for one, made in sorted(self._hmacs.items())]

    async def _change(self, made: bytes, principal: Principal, period_ms: int) -> int:
        for _ in range(_ATTEMPTS):
            token_id = self._find(made, principal)
            value, revision = self._metadata.image.tokens[token_id]
            now_ms = self._clock.now_ms()
            if value.expires_ms < now_ms:
                raise RequestError(
                    ErrorCode.DELEGATION_TOKEN_EXPIRED, "The token has expired; create another."
                )
            expires_ms = min(value.max_ms, now_ms + period_ms)
            # ORDER: only if nobody changed it meanwhile, so that a removed token stays removed.
            key, changed = keys.token(token_id), msgspec.structs.replace(value, expires_ms=expires_ms)
            outcome = await self._metadata.txn({key: revision}, {key: Put(keys.encode(changed))})
            if outcome.committed:
                return expires_ms
        raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "Others change the token all the time; try again.")

    def _find(self, made: bytes, principal: Principal) -> str:
        """Return the id of the token with this HMAC that the principal may renew and expire."""
        token_id = self._ids.get(made)
        if token_id is None:
            raise RequestError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no token with this HMAC.")
        value = self._metadata.image.tokens[token_id].value
        if str(principal) != value.owner and str(principal) not in value.renewers:
            raise RequestError(
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                f"{principal} is neither the owner nor a renewer of the token.",
            )
        return token_id

    def _check_bounds(self, owner: Principal, renewers: Sequence[Principal]) -> None:
        tokens = self._metadata.image.tokens
        size = sum(len(one.name) for one in (owner, *renewers))
        if len(renewers) > RENEWERS_MAX or size > NAMES_SIZE_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"A token has up to {RENEWERS_MAX} renewers, and its names have up to {NAMES_SIZE_MAX} characters.",
            )
        name = str(owner)
        owned = sum(one.value.owner == name for one in tokens.values())
        if len(tokens) >= TOKENS_MAX or owned >= TOKENS_PER_OWNER_MAX:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"There are {len(tokens)} tokens, {owned} of them of {name}; the limits are {TOKENS_MAX} and "
                f"{TOKENS_PER_OWNER_MAX}. Expire tokens that are not needed.",
            )

    # ---- keys

    def _new_id(self) -> str:
        """Return a random id that no tool takes for an option."""
        while (token_id := encode_uuid(self._random.bytes(16))).startswith("-"):
            pass
        return token_id

    def _hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    async def _derive(self, made: bytes) -> dict[str, keys.ScramValue]:
        """Derive what verifies the HMAC, in a thread: it takes milliseconds."""
        password = base64.b64encode(made).decode()
        salts = {mechanism: self._random.bytes(SALT_BYTES) for mechanism in ScramMechanism}
        async with self._deriving:
            return await self._executor.run(_scram_values, password, salts)

    def _follow(self, token_ids: Iterable[str]) -> None:
        tokens = self._metadata.image.tokens
        for token_id in token_ids:
            found = tokens.get(token_id)
            if found is not None and self._key and found.value.key_check == self._key_check:
                self._hmacs[token_id] = made = self._hmac(token_id)
                self._ids[made] = token_id
            elif token_id in self._hmacs:
                del self._ids[self._hmacs.pop(token_id)]

    def _changed(self, delta: ImageDelta) -> None:
        if delta.tokens:
            self._follow(delta.tokens)

    # ---- the end of tokens

    def _is_expired(self, value: keys.TokenValue) -> bool:
        return value.expires_ms <= self._clock.now_ms()

    def tick(self) -> None:
        """Remove expired tokens if `delegation.token.expiry.check.interval.ms` has passed since the last time."""
        now = self._clock.monotonic()
        interval_s = self._config().delegation_token_expiry_check_interval_ms / 1000
        if self._sweeping is None and now - self._swept_at >= interval_s:
            self._swept_at = now
            if any(self._is_expired(one.value) for one in self._metadata.image.tokens.values()):
                self._sweeping = asyncio.get_running_loop().create_task(self._sweep(), name="expired tokens")
                self._sweeping.add_done_callback(self._swept)

    async def _sweep(self) -> None:
        tokens = self._metadata.image.tokens
        expired = [(one, found) for one, found in tokens.items() if self._is_expired(found.value)]
        for at in range(0, len(expired), _REMOVALS_PER_TXN):
            some = expired[at : at + _REMOVALS_PER_TXN]
            expected = {keys.token(one): found.revision for one, found in some}
            await self._metadata.txn(expected, dict.fromkeys(expected))
        logger.info("expired delegation tokens were removed: %d", len(expired))

    def _swept(self, task: asyncio.Task[None]) -> None:
        self._sweeping = None
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, FlintError | OSError):
                raise error
            logger.error("expired delegation tokens could not be removed: %s", error)

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)


def _scram_values(password: str, salts: dict[ScramMechanism, bytes]) -> dict[str, keys.ScramValue]:
    values = {}
    for mechanism, salt in salts.items():
        salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
        credential = credential_of(mechanism, salted, salt=salt, iterations=ITERATIONS_MIN)
        values[mechanism.value] = keys.ScramValue(*credential)
    return values
