"""Consumer groups and transactions, and the internal topics that hold their state."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import setting
from flintmq.settings.kinds import (
    INT_MAX,
    SettingKind,
    at_least,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class CoordinationConfig:
    __slots__ = ()

    flint_consumer_groups_enable: bool = setting(
        "flint.consumer.groups.enable",
        SettingKind.BOOLEAN,
        True,
        doc="Whether consumer groups are served. Without them their requests are neither listed nor answered.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        SettingKind.INT,
        6_000,
        check=at_least(1),
        doc="The shortest session time-out that a member of a group may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        SettingKind.INT,
        1_800_000,
        check=at_least(1),
        doc="The longest session time-out that a member of a group may ask for.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        SettingKind.INT,
        0,
        check=at_least(0),
        doc="How long the first rebalance of an empty group waits for more members. 0, as in the configuration "
        "that Kafka is shipped with, starts a lone consumer at once; 3000 spares a large group a few rebalances.",
    )
    group_max_size: int = setting(
        "group.max.size",
        SettingKind.INT,
        INT_MAX,
        check=at_least(1),
        doc="The most members that a group may have.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        SettingKind.INT,
        10_080,
        check=at_least(1),
        doc="How long the offsets of a group are kept once it has no members, or of a topic it no longer reads.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        SettingKind.LONG,
        600_000,
        check=at_least(1),
        doc="How often groups are looked through for offsets that have had their time.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        SettingKind.INT,
        4_096,
        check=at_least(0),
        doc="How long the text may be that a client commits with an offset.",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        SettingKind.INT,
        50,
        check=at_least(1),
        doc="Partitions of `__consumer_offsets`, among which groups are spread. Read when the topic is made.",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        SettingKind.SHORT,
        3,
        check=at_least(1),
        doc="Replicas of `__consumer_offsets`; fewer where there are fewer brokers.",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        SettingKind.INT,
        100 << 20,
        check=at_least(1024),
        doc="The size of the segments of `__consumer_offsets`.",
    )

    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        SettingKind.INT,
        50,
        check=at_least(1),
        doc="Partitions of `__transaction_state`, among which transactional ids are spread. Read when the topic is "
        "made.",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        SettingKind.SHORT,
        3,
        check=at_least(1),
        doc="Replicas of `__transaction_state`; fewer where there are fewer brokers.",
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        SettingKind.INT,
        2,
        check=at_least(1),
        doc="`min.insync.replicas` of `__transaction_state`; fewer where there are fewer replicas.",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        SettingKind.INT,
        100 << 20,
        check=at_least(1024),
        doc="The size of the segments of `__transaction_state`.",
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        SettingKind.INT,
        900_000,
        check=at_least(1),
        doc="The longest time-out that a producer may ask for its transactions.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        SettingKind.INT,
        604_800_000,
        check=at_least(1),
        doc="A transactional id that nobody has used for so long is forgotten.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        SettingKind.INT,
        3_600_000,
        check=at_least(1),
        doc="How often such ids are looked for.",
    )
