"""How the rates that quotas limit are measured. The quotas themselves are set with `flintmq quota`."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import setting
from flintmq.settings.kinds import SettingKind, at_least


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class QuotaConfig:
    __slots__ = ()

    quota_window_num: int = setting(
        "quota.window.num",
        SettingKind.INT,
        11,
        check=at_least(1),
        doc="Windows over which the rate of a client is measured.",
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        SettingKind.INT,
        1,
        check=at_least(1),
        doc="The length of each of these windows.",
    )
    controller_quota_window_num: int = setting(
        "controller.quota.window.num",
        SettingKind.INT,
        11,
        check=at_least(1),
        doc="Windows whose controller_mutation_rate may be used at once.",
    )
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds",
        SettingKind.INT,
        1,
        check=at_least(1),
        doc="The length of each of these windows.",
    )
