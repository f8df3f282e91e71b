"""The settings of a topic, by Kafka's names; ours begin with `flint.`.

The one list of them: the parser, DescribeConfigs, the command line and `docs/configuration.md` read it.
Where a topic does not set a value, the broker's synonym gives it (`flintmq.settings.resolve`); the defaults
here are Kafka's. This module must not know the broker's settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import BrokerSynonym, setting, settings_of
from flintmq.settings.kinds import (
    LONG_MAX,
    SettingKind,
    Unit,
    at_least,
    between,
    between_or,
    distinct_from,
    matching,
    one_of,
)

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_THROTTLED = matching(r"\*|([0-9]+:[0-9]+)?", "* or a list of partition:broker pairs such as 0:1,1:1")


def _same(name: str) -> tuple[BrokerSynonym, ...]:
    return (BrokerSynonym(name),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        SettingKind.LIST,
        ("delete",),
        check=distinct_from("delete", "compact"),
        synonyms=_same("log.cleanup.policy"),
        doc="What happens to old data: `delete` drops whole segments by age and size, `compact` keeps the "
        "last record of every key; both together do both.",
    )
    compression_type: str = setting(
        "compression.type",
        SettingKind.STRING,
        "producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=_same("compression.type"),
        doc="The codec batches are stored with. `producer` keeps what the producer chose and costs nothing; "
        "any other value makes the broker recompress batches that differ.",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        SettingKind.INT,
        -1,
        check=between_or(1, 9, -1),
        synonyms=_same("compression.gzip.level"),
        doc="The level used when the broker recompresses with gzip; -1 is the library's own choice.",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        SettingKind.INT,
        9,
        check=between(1, 17),
        synonyms=_same("compression.lz4.level"),
        doc="The level used when the broker recompresses with lz4.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        SettingKind.INT,
        3,
        check=between(-131072, 22),
        synonyms=_same("compression.zstd.level"),
        doc="The level used when the broker recompresses with zstd.",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        SettingKind.LONG,
        _DAY_MS,
        check=at_least(0),
        synonyms=_same("log.cleaner.delete.retention.ms"),
        doc="How long a compacted topic keeps tombstones, so that a reader who lags sees the deletion.",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        SettingKind.LONG,
        _MINUTE_MS,
        check=at_least(0),
        synonyms=_same("log.segment.delete.delay.ms"),
        doc="How long a file that is no longer part of the log stays on disk, for readers still at it.",
    )
    flush_messages: int = setting(
        "flush.messages",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(1),
        synonyms=_same("log.flush.interval.messages"),
        doc="Sync to disk after this many records. With 1 every acknowledgement waits for the disk; the "
        "default leaves syncing to the operating system, so that a power failure can lose the last records.",
    )
    flush_ms: int = setting(
        "flush.ms",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(0),
        synonyms=(BrokerSynonym("log.flush.interval.ms"), BrokerSynonym("log.flush.scheduler.interval.ms")),
        doc="Sync to disk at least this often while records arrive.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        SettingKind.LIST,
        (),
        check=_THROTTLED,
        doc="Replicas whose catching up is throttled on the follower's side, at "
        "`follower.replication.throttled.rate`. A single broker replicates nothing.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        SettingKind.INT,
        4096,
        check=at_least(0),
        synonyms=_same("log.index.interval.bytes"),
        doc="One index entry for about this many bytes of log.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        SettingKind.LIST,
        (),
        check=_THROTTLED,
        doc="Replicas whose catching up is throttled on the leader's side, at "
        "`leader.replication.throttled.rate`. A single broker replicates nothing.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        SettingKind.LONG,
        -2,
        check=at_least(-2),
        synonyms=_same("log.local.retention.bytes"),
        doc="How much of a tiered log stays on local disk; -2 means `retention.bytes`. Tiered storage is not "
        "available in this version.",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        SettingKind.LONG,
        -2,
        check=at_least(-2),
        synonyms=_same("log.local.retention.ms"),
        doc="How long a tiered log stays on local disk; -2 means `retention.ms`. Tiered storage is not "
        "available in this version.",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(1),
        synonyms=_same("log.cleaner.max.compaction.lag.ms"),
        doc="A record of a compacted topic waits no longer than this to be compacted.",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        SettingKind.INT,
        1_048_588,
        check=at_least(0),
        synonyms=_same("message.max.bytes"),
        doc="The largest batch a producer may send, as it is sent (compressed).",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        SettingKind.LONG,
        _HOUR_MS,
        check=at_least(0),
        synonyms=_same("log.message.timestamp.after.max.ms"),
        doc="A record whose timestamp is further in the future than this is refused.",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(0),
        synonyms=_same("log.message.timestamp.before.max.ms"),
        doc="A record whose timestamp is further in the past than this is refused.",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        SettingKind.STRING,
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        synonyms=_same("log.message.timestamp.type"),
        doc="Whether records carry the producer's time or the time of the append.",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        SettingKind.DOUBLE,
        0.5,
        check=between(0, 1),
        synonyms=_same("log.cleaner.min.cleanable.ratio"),
        doc="A compacted log is compacted once this share of it is new.",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        SettingKind.LONG,
        0,
        check=at_least(0),
        synonyms=_same("log.cleaner.min.compaction.lag.ms"),
        doc="A record of a compacted topic stays uncompacted at least this long.",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        SettingKind.INT,
        1,
        check=at_least(1),
        synonyms=_same("min.insync.replicas"),
        doc="A write with acks=all is refused unless this many replicas are in sync.",
    )
    preallocate: bool = setting(
        "preallocate",
        SettingKind.BOOLEAN,
        False,
        synonyms=_same("log.preallocate"),
        doc="Reserve the space of a whole segment on disk when it is created.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        SettingKind.BOOLEAN,
        False,
        doc="Stop copying a tiered log. Tiered storage is not available in this version.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        SettingKind.BOOLEAN,
        False,
        doc="Delete the remote data when tiering is switched off. Tiered storage is not available in this "
        "version.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        SettingKind.BOOLEAN,
        False,
        doc="Tier this topic. Tiered storage is not available in this version: only `false` is accepted.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        SettingKind.LONG,
        -1,
        synonyms=_same("log.retention.bytes"),
        doc="The oldest segments of a partition go once it is larger than this; -1 sets no limit.",
    )
    retention_ms: int = setting(
        "retention.ms",
        SettingKind.LONG,
        7 * _DAY_MS,
        check=at_least(-1),
        synonyms=(
            BrokerSynonym("log.retention.ms"),
            BrokerSynonym("log.retention.minutes", _MINUTE_MS),
            BrokerSynonym("log.retention.hours", _HOUR_MS),
        ),
        doc="A segment goes once its newest record is older than this; -1 sets no limit.",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        SettingKind.INT,
        1 << 30,
        check=at_least(14),
        synonyms=_same("log.segment.bytes"),
        doc="A new segment starts when the current one would grow beyond this. Kafka 4 refuses less than 1 "
        "MiB; small segments are accepted here, for tests of retention.",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        SettingKind.INT,
        10 << 20,
        check=at_least(4),
        synonyms=_same("log.index.size.max.bytes"),
        doc="The largest index of a segment; a full index starts a new segment.",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        SettingKind.LONG,
        0,
        check=at_least(0),
        synonyms=(BrokerSynonym("log.roll.jitter.ms"), BrokerSynonym("log.roll.jitter.hours", _HOUR_MS)),
        doc="Up to this much is taken off `segment.ms`, so that partitions do not all start segments at "
        "once.",
    )
    segment_ms: int = setting(
        "segment.ms",
        SettingKind.LONG,
        7 * _DAY_MS,
        check=at_least(1),
        synonyms=(BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _HOUR_MS)),
        doc="A new segment starts when the current one is older than this, however small, so that retention "
        "can reach it.",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        SettingKind.BOOLEAN,
        False,
        synonyms=_same("unclean.leader.election.enable"),
        doc="Let a replica that is not in sync lead when no other can, at the cost of records. A single "
        "broker never has that choice.",
    )
    flint_lake_hold: int = setting(
        "flint.lake.hold",
        SettingKind.LONG,
        0,
        check=at_least(0),
        unit=Unit.BYTES,
        synonyms=_same("flint.lake.hold"),
        doc="Retention keeps up to this many bytes of a partition longer, as far as a lake table does not have "
        "their records yet; 0 holds nothing back. See docs/lake.md.",
    )
    flint_validate_records: str = setting(
        "flint.validate.records",
        SettingKind.STRING,
        "header",
        check=one_of("header", "deep"),
        synonyms=_same("flint.validate.records"),
        doc="`header` checks every batch's header and CRC; `deep` also reads each record inside, which costs "
        "time.",
    )
    flint_verify_on_read: bool = setting(
        "flint.verify.on.read",
        SettingKind.BOOLEAN,
        False,
        synonyms=_same("flint.verify.on.read"),
        doc="Check the CRC of every batch before it is sent to a consumer, at the cost of zero-copy reads.",
    )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def fault(self) -> str | None:
        """What is wrong with the values taken together, or None."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            return (
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is above "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        if self.remote_storage_enable:
            return "remote.storage.enable: tiered storage is not available in this version"
        return None


TOPIC_SETTINGS = settings_of(TopicConfig)
