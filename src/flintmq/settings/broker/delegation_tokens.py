"""Delegation tokens (KIP-48): the key that makes them, and how long they live."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import setting
from flintmq.settings.kinds import SettingKind, at_least

_HOUR_MS = 60 * 60 * 1000


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class DelegationTokenConfig:
    __slots__ = ()

    delegation_token_secret_key: str | None = setting(
        "delegation.token.secret.key",
        SettingKind.PASSWORD,
        None,
        doc="The secret key that delegation tokens are made with. Without it, or if it is empty, there are no "
        "delegation tokens. With another key all tokens that exist become invalid.",
    )
    delegation_token_max_lifetime_ms: int = setting(
        "delegation.token.max.lifetime.ms",
        SettingKind.LONG,
        7 * 24 * _HOUR_MS,
        check=at_least(1),
        doc="How long after its creation a delegation token can be renewed at most.",
    )
    delegation_token_expiry_time_ms: int = setting(
        "delegation.token.expiry.time.ms",
        SettingKind.LONG,
        24 * _HOUR_MS,
        check=at_least(1),
        doc="How long a delegation token is valid after it is created or renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        "delegation.token.expiry.check.interval.ms",
        SettingKind.LONG,
        _HOUR_MS,
        check=at_least(1),
        doc="How often expired delegation tokens are removed. Nobody can authenticate with an expired token, removed "
        "or not.",
    )
