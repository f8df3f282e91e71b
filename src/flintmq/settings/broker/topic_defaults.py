"""Defaults of topics: they take type, check and default from the topic's own declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import (
    LONG_MAX,
    SettingKind,
    at_least,
)
from flintmq.settings.topic import TOPIC_SETTINGS

_UNSET = object()


def _topic_default(name: str, topic_name: str, default: Any = _UNSET) -> Any:
    """The broker's synonym of a topic setting; changed at run time, it reaches every topic at once."""
    topic = TOPIC_SETTINGS[topic_name]
    return setting(
        name,
        topic.kind,
        topic.default if default is _UNSET else default,
        check=topic.check,
        unit=topic.unit,
        dynamic=UpdateMode.CLUSTER_WIDE,
        doc=f"`{topic_name}` of every topic that does not set it. {topic.doc}",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class TopicDefaultsConfig:
    __slots__ = ()

    message_max_bytes: int = _topic_default("message.max.bytes", "max.message.bytes")
    min_insync_replicas: int = _topic_default("min.insync.replicas", "min.insync.replicas")
    compression_type: str = _topic_default("compression.type", "compression.type")
    compression_gzip_level: int = _topic_default("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = _topic_default("compression.lz4.level", "compression.lz4.level")
    compression_zstd_level: int = _topic_default("compression.zstd.level", "compression.zstd.level")
    unclean_leader_election_enable: bool = _topic_default(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )
    log_cleanup_policy: tuple[str, ...] = _topic_default("log.cleanup.policy", "cleanup.policy")
    log_cleaner_delete_retention_ms: int = _topic_default(
        "log.cleaner.delete.retention.ms", "delete.retention.ms"
    )
    log_cleaner_max_compaction_lag_ms: int = _topic_default(
        "log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"
    )
    log_cleaner_min_cleanable_ratio: float = _topic_default(
        "log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"
    )
    log_cleaner_min_compaction_lag_ms: int = _topic_default(
        "log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"
    )
    log_flush_interval_messages: int = _topic_default("log.flush.interval.messages", "flush.messages")
    log_flush_interval_ms: int | None = _topic_default("log.flush.interval.ms", "flush.ms", None)
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(0),
        doc="Used for `log.flush.interval.ms` where that is not set.",
    )
    log_index_interval_bytes: int = _topic_default("log.index.interval.bytes", "index.interval.bytes")
    log_index_size_max_bytes: int = _topic_default("log.index.size.max.bytes", "segment.index.bytes")
    log_local_retention_bytes: int = _topic_default("log.local.retention.bytes", "local.retention.bytes")
    log_local_retention_ms: int = _topic_default("log.local.retention.ms", "local.retention.ms")
    log_message_timestamp_after_max_ms: int = _topic_default(
        "log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms"
    )
    log_message_timestamp_before_max_ms: int = _topic_default(
        "log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms"
    )
    log_message_timestamp_type: str = _topic_default("log.message.timestamp.type", "message.timestamp.type")
    log_preallocate: bool = _topic_default("log.preallocate", "preallocate")
    log_retention_bytes: int = _topic_default("log.retention.bytes", "retention.bytes")
    log_retention_ms: int | None = _topic_default("log.retention.ms", "retention.ms", None)
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        SettingKind.INT,
        None,
        doc="Used for `log.retention.ms` where that is not set.",
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        SettingKind.INT,
        168,
        doc="Used where neither `log.retention.ms` nor `log.retention.minutes` is set.",
    )
    log_roll_ms: int | None = _topic_default("log.roll.ms", "segment.ms", None)
    log_roll_hours: int = setting(
        "log.roll.hours", SettingKind.INT, 168, check=at_least(1), doc="Used where `log.roll.ms` is not set."
    )
    log_roll_jitter_ms: int | None = _topic_default("log.roll.jitter.ms", "segment.jitter.ms", None)
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        SettingKind.INT,
        0,
        check=at_least(0),
        doc="Used where `log.roll.jitter.ms` is not set.",
    )
    log_segment_bytes: int = _topic_default("log.segment.bytes", "segment.bytes")
    log_segment_delete_delay_ms: int = _topic_default("log.segment.delete.delay.ms", "file.delete.delay.ms")
    flint_lake_hold: int = _topic_default("flint.lake.hold", "flint.lake.hold")
    flint_validate_records: str = _topic_default("flint.validate.records", "flint.validate.records")
    flint_verify_on_read: bool = _topic_default("flint.verify.on.read", "flint.verify.on.read")
