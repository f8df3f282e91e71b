"""How replicas of a partition follow their leader."""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.settings.declaration import UpdateMode, setting
from flintmq.settings.kinds import LONG_MAX, SettingKind, at_least, one_of

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class ReplicationConfig:
    __slots__ = ()

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        SettingKind.LONG,
        30_000,
        check=at_least(1),
        doc="A follower that has not caught up with its leader for this long leaves the ISR.",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        SettingKind.INT,
        1024 * 1024,
        check=at_least(0),
        doc="Bytes of one partition in one response to a follower; a larger batch is sent whole.",
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        SettingKind.INT,
        10 * 1024 * 1024,
        check=at_least(0),
        doc="Bytes of one response to a follower, over all of its partitions.",
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes",
        SettingKind.INT,
        1,
        check=at_least(0),
        doc="Bytes for which a leader waits before it responds to a follower.",
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        SettingKind.INT,
        500,
        check=at_least(0),
        doc="The longest time that a leader waits for these bytes.",
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        SettingKind.INT,
        1000,
        check=at_least(0),
        doc="How long a follower waits after a fetch that failed.",
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms",
        SettingKind.INT,
        30_000,
        check=at_least(1),
        doc="How long a broker waits for the response of another broker.",
    )
    replica_selector_class: str = setting(
        "replica.selector.class",
        SettingKind.STRING,
        "",
        check=one_of("", RACK_AWARE_SELECTOR),
        doc="With org.apache.kafka.common.replica.RackAwareReplicaSelector consumers are sent to a replica in their "
        "own rack (`client.rack`); by default they read from the leader.",
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(0),
        dynamic=UpdateMode.PER_BROKER,
        doc="Bytes per second that followers which are not in sync may fetch from this broker, of the replicas that "
        "`leader.replication.throttled.replicas` of their topics names.",
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        SettingKind.LONG,
        LONG_MAX,
        check=at_least(0),
        dynamic=UpdateMode.PER_BROKER,
        doc="Bytes per second that this broker fetches for replicas which are not in sync, of those that "
        "`follower.replication.throttled.replicas` of their topics names.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        SettingKind.LONG,
        5000,
        check=at_least(1),
        doc="How often the high watermarks of all partitions are saved to disk.",
    )
