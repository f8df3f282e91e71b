"""The settings of a broker, by Kafka's names; ours begin with `flint.`.

The one list of them: the parser, `--help`, `flintmq config`, DescribeConfigs and `docs/configuration.md` read
it. A setting is listed only when it does something. The list is made of parts, one module for each subject: classes
of fields without methods, since every start would pay for methods that nobody calls. This package must not know where
values come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flintmq.settings.broker.audit import AuditConfig
from flintmq.settings.broker.authentication import AuthenticationConfig
from flintmq.settings.broker.authorization import STANDARD_AUTHORIZER, AuthorizationConfig
from flintmq.settings.broker.coordination import CoordinationConfig
from flintmq.settings.broker.delegation_tokens import DelegationTokenConfig
from flintmq.settings.broker.general import GeneralConfig
from flintmq.settings.broker.maintenance import MaintenanceConfig
from flintmq.settings.broker.network import NetworkConfig
from flintmq.settings.broker.observability import ObservabilityConfig
from flintmq.settings.broker.quotas import QuotaConfig
from flintmq.settings.broker.replication import ReplicationConfig
from flintmq.settings.broker.rest import RestConfig
from flintmq.settings.broker.tls import TlsConfig
from flintmq.settings.broker.topic_defaults import TopicDefaultsConfig
from flintmq.settings.declaration import settings_of
from flintmq.settings.listeners import listener_faults
from flintmq.settings.rest import rest_fault
from flintmq.settings.tls import tls_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    # ORDER: a dataclass takes the fields of its last base first, so the settings are listed from the bottom up.
    RestConfig,
    ObservabilityConfig,
    AuditConfig,
    AuthorizationConfig,
    DelegationTokenConfig,
    AuthenticationConfig,
    TlsConfig,
    QuotaConfig,
    NetworkConfig,
    ReplicationConfig,
    MaintenanceConfig,
    CoordinationConfig,
    TopicDefaultsConfig,
    GeneralConfig,
):
    listener_overrides: Mapping[tuple[str, str], Any] = field(default_factory=dict, repr=False, hash=False)
    """Values of `listener.name.NAME.SETTING`, by listener and setting; `listener_setting` reads them."""

    def fault(self) -> str | None:
        """What is wrong with the values taken together, or None."""
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            return "log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms"
        retention = (self.log_retention_ms, self.log_retention_minutes, self.log_retention_hours)
        if next(value for value in retention if value is not None) == 0:
            return "the retention time must be at least 1, or -1 for no limit"
        if self.flint_acl_file and self.authorizer_class_name != STANDARD_AUTHORIZER:
            return f"flint.acl.file needs authorizer.class.name={STANDARD_AUTHORIZER}"
        return (
            listener_faults(self.listeners, self.advertised_listeners, self.listener_security_protocol_map)
            or tls_fault(self)
            or rest_fault(self)
        )


BROKER_SETTINGS = settings_of(BrokerConfig)
