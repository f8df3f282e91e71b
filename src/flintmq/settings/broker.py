"""The settings of a broker, by Kafka's names; ours begin with `flint.`.

The one list of them: the parser, `--help`, `flintmq config`, DescribeConfigs and `docs/configuration.md` read
it. A setting is listed only when it does something. Those that give topics their defaults take type, check
and default from the topic's own declaration. This module must not know where values come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flintmq.settings.declaration import Dynamic, setting, settings_of
from flintmq.settings.kinds import (
    INT_MAX,
    LONG_MAX,
    Check,
    SettingKind,
    at_least,
    between,
    between_or,
    one_of,
    read_value,
)
from flintmq.settings.listeners import (
    DEFAULT_PORT,
    LOOPBACK,
    Listener,
    listener_faults,
    listeners_on,
    parse_listeners,
    parse_protocols,
)
from flintmq.settings.topic import TOPIC_SETTINGS

_UNSET = object()
# As Kafka has it: the largest number of its type.
_UNLIMITED_RATE = 1.7976931348623157e308
_LEVELS = {"TRACE": "DEBUG", "WARN": "WARNING", "FATAL": "CRITICAL"}


def _topic_default(name: str, topic_name: str, default: Any = _UNSET) -> Any:
    """The broker's synonym of a topic setting; changed at run time, it reaches every topic at once."""
    topic = TOPIC_SETTINGS[topic_name]
    return setting(
        name,
        topic.kind,
        topic.default if default is _UNSET else default,
        check=topic.check,
        dynamic=Dynamic.CLUSTER_WIDE,
        doc=f"`{topic_name}` of every topic that does not set it. {topic.doc}",
    )


def _read_protocol_map(text: str) -> str:
    for name, protocol in parse_protocols(text).items():
        if protocol != "PLAINTEXT":
            raise ValueError(f"{name}:{protocol} is not available in this version, only PLAINTEXT is")
    return text.strip()


def _read_optional_port(text: str) -> object:
    return read_value(SettingKind.INT, text) if text.strip() else -1


def _read_level(text: str) -> str:
    level = text.strip().upper()
    return _LEVELS.get(level, level)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    node_id: int = setting(
        "node.id",
        SettingKind.INT,
        0,
        check=at_least(0),
        aliases=("broker.id",),
        doc="The number of this broker.",
    )
    broker_rack: str | None = setting(
        "broker.rack", SettingKind.STRING, None, doc="The rack or zone of this broker, told to clients."
    )
    listeners: tuple[Listener, ...] = setting(
        "listeners",
        SettingKind.LIST,
        listeners_on(LOOPBACK, (DEFAULT_PORT,)),
        read=parse_listeners,
        check=Check("at least one address", lambda value: len(value) > 0),
        doc="The addresses to listen on, as `NAME://host:port`. An empty host means every interface, port 0 "
        "any free port, and one name may have several addresses. The default is this machine only, on IPv4 "
        "and IPv6.",
    )
    advertised_listeners: tuple[Listener, ...] = setting(
        "advertised.listeners",
        SettingKind.LIST,
        (),
        read=parse_listeners,
        doc="The addresses clients are told to connect to, one for each listener name. Where a name is "
        "missing, a client is told the address of its own connection, which needs no configuration except "
        "behind NAT or port mapping.",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        SettingKind.STRING,
        "PLAINTEXT:PLAINTEXT",
        read=_read_protocol_map,
        doc="The security protocol of each listener name, as `NAME:PROTOCOL`. Only PLAINTEXT is available in "
        "this version.",
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        SettingKind.LIST,
        ("./flintmq-data",),
        aliases=("log.dir",),
        check=Check("one folder", lambda value: len(value) == 1 and bool(value[0])),
        doc="The folder that holds the data; several are not available in this version. Kafka's default is "
        "under /tmp, which does not survive a restart of many machines.",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        SettingKind.BOOLEAN,
        True,
        doc="Create a topic when a client asks for its metadata.",
    )
    flint_auto_create_topics_on_produce: bool = setting(
        "flint.auto.create.topics.on.produce",
        SettingKind.BOOLEAN,
        False,
        doc="Create a topic also when a client produces to it without having asked for its metadata.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", SettingKind.BOOLEAN, True, doc="Whether topics may be deleted at all."
    )
    num_partitions: int = setting(
        "num.partitions",
        SettingKind.INT,
        1,
        check=at_least(1),
        doc="Partitions of a topic that is created without saying how many.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        SettingKind.INT,
        1,
        check=between(1, 32767),
        doc="Replicas of a topic that is created without saying how many.",
    )

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
    flint_validate_records: str = _topic_default("flint.validate.records", "flint.validate.records")
    flint_verify_on_read: bool = _topic_default("flint.verify.on.read", "flint.verify.on.read")

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

    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        SettingKind.LONG,
        300_000,
        check=at_least(1),
        doc="How often logs are looked through for records that have had their time.",
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        SettingKind.BOOLEAN,
        True,
        doc="Whether logs are compacted by themselves. On demand they are in any case.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        SettingKind.LONG,
        15_000,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How long compaction rests when no log needs it.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        SettingKind.LONG,
        128 << 20,
        check=at_least(1 << 20),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="The memory for keys while a log is compacted, in a process of its own. What does not fit is left for "
        "another pass.",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        SettingKind.DOUBLE,
        0.9,
        check=between(0.01, 1.0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How full the memory for keys may get.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        SettingKind.DOUBLE,
        _UNLIMITED_RATE,
        check=at_least(1),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="What compaction may read and write in a second, together.",
    )
    flint_scrub_bytes_per_second: int = setting(
        "flint.scrub.bytes.per.second",
        SettingKind.INT,
        4 << 20,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How fast stored batches are read again to see whether they are still what was written; 0 is never.",
    )
    flint_scrub_interval_ms: int = setting(
        "flint.scrub.interval.ms",
        SettingKind.LONG,
        7 * 86_400_000,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How long after the beginning of one such round the next begins.",
    )

    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        SettingKind.INT,
        60_000,
        check=at_least(0),
        doc="How often the recovery points are written, which bound what is scanned after a crash.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        SettingKind.INT,
        86_400_000,
        check=at_least(1),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="How long the sequence numbers of an idle producer are remembered.",
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        SettingKind.INT,
        2,
        check=at_least(1),
        doc="Threads that recover logs at the start and sync them at the stop.",
    )
    background_threads: int = setting(
        "background.threads",
        SettingKind.INT,
        4,
        check=at_least(1),
        doc="Threads for blocking work: syncing, reading cold data, deleting files. Kafka's default is 10; "
        "they share one interpreter here, so that a few are enough.",
    )

    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        SettingKind.INT,
        256 << 10,
        check=between_or(1024, INT_MAX, -1),
        doc="The kernel's send buffer of each connection; -1 lets the kernel choose and grow it. A small one keeps "
        "what is sent in the processor's cache and costs less; over links that are both fast and long, such as those "
        "between continents, a larger one or -1 carries more.",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        SettingKind.INT,
        -1,
        check=between_or(1024, INT_MAX, -1),
        doc="The kernel's receive buffer of each connection; -1 lets the kernel choose and grow it.",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        SettingKind.INT,
        100 << 20,
        check=at_least(1),
        doc="The largest request; a larger one closes its connection.",
    )
    flint_request_max_bytes: int = setting(
        "flint.request.max.bytes",
        SettingKind.INT,
        16 << 20,
        check=at_least(1 << 20),
        doc="The largest request that writes no records, so any but Produce; a larger one closes its connection. "
        "Such a request is taken apart piece by piece: one of 100,000 partitions has a few megabytes.",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        SettingKind.LONG,
        128 << 20,
        check=Check("at least 1, or -1 for no limit", lambda value: value >= 1 or value == -1),
        doc="Memory for all requests that are still arriving or wait their turn, counted by the bytes that "
        "have really come. Beyond it the largest stop being read for a while. Kafka sets no limit by "
        "default.",
    )
    flint_max_requests_in_flight_per_connection: int = setting(
        "flint.max.requests.in.flight.per.connection",
        SettingKind.INT,
        128,
        check=at_least(1),
        doc="Requests of one connection that may wait for their answer before no more are read from it.",
    )
    max_connections: int = setting(
        "max.connections",
        SettingKind.INT,
        INT_MAX,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Connections to this broker; beyond it new ones are closed.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        SettingKind.INT,
        INT_MAX,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Connections from one address; beyond it new ones are closed.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        SettingKind.LONG,
        600_000,
        doc="A connection without traffic for this long is closed; 0 or less never closes one.",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        SettingKind.INT,
        2000,
        check=at_least(1),
        doc="Partitions in one answer to DescribeTopicPartitions.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        SettingKind.INT,
        1000,
        check=at_least(0),
        doc="Fetch sessions kept (KIP-227); beyond it the longest unused goes.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        SettingKind.INT,
        55 << 20,
        check=at_least(1024),
        doc="The most one Fetch answers, whatever the client asks for.",
    )
    flint_segment_descriptors: int = setting(
        "flint.segment.descriptors",
        SettingKind.INT,
        4096,
        check=at_least(16),
        doc="Segment files kept open; beyond it the longest unused is closed until it is needed.",
    )
    flint_log_level: str = setting(
        "flint.log.level",
        SettingKind.STRING,
        "INFO",
        aliases=("log_level",),
        read=_read_level,
        check=one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        dynamic=Dynamic.PER_BROKER,
        doc="How much the broker logs: DEBUG, INFO, WARNING, ERROR or CRITICAL. Single modules are set apart by "
        "the resource BROKER_LOGGER.",
    )
    flint_log_format: str = setting(
        "flint.log.format",
        SettingKind.STRING,
        "text",
        check=one_of("text", "json"),
        doc="What standard error gets: `text` is for people, in colour on a terminal; `json` is one object a line.",
    )
    flint_log_file: str = setting(
        "flint.log.file",
        SettingKind.STRING,
        "",
        doc="A file that gets every log line as well, always one JSON object a line. Empty writes none.",
    )
    flint_log_file_max_bytes: int = setting(
        "flint.log.file.max.bytes",
        SettingKind.LONG,
        64 << 20,
        check=at_least(4096),
        doc="The log file is put aside with a number behind its name once it would grow beyond this.",
    )
    flint_log_file_count: int = setting(
        "flint.log.file.count",
        SettingKind.INT,
        5,
        check=between(2, 1000),
        doc="Log files kept in all, the one in use among them.",
    )
    flint_rest_host: str = setting(
        "flint.rest.host",
        SettingKind.STRING,
        "127.0.0.1",
        aliases=("rest_host",),
        doc="The address of the HTTP listener for metrics and health. The default is this machine only; empty "
        "means every interface. Whoever reaches it can read all it says, so open it to those who may.",
    )
    flint_rest_port: int = setting(
        "flint.rest.port",
        SettingKind.INT,
        30004,
        aliases=("rest_port",),
        read=_read_optional_port,
        check=between(-1, 65535),
        doc="The port of the HTTP listener; 0 takes a free one, -1 or nothing at all switches the listener off. "
        "If it is left at its default and the port is taken, the broker warns and does without.",
    )
    flint_metrics_partitions_max: int = setting(
        "flint.metrics.partitions.max",
        SettingKind.INT,
        1000,
        check=at_least(0),
        dynamic=Dynamic.CLUSTER_WIDE,
        doc="Partitions that have metrics of their own; the sizes of the rest are told as one sum.",
    )
    flint_profile: bool = setting(
        "flint.profile",
        SettingKind.BOOLEAN,
        False,
        aliases=("profile",),
        doc="Take samples of where the broker spends its time, and write them as a flame graph (`profile.svg`) "
        "and as text (`profile.folded`) into the data folder at the stop and on SIGUSR2.",
    )

    def fault(self) -> str | None:
        """What is wrong with the values taken together, or None."""
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            return "log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms"
        retention = (self.log_retention_ms, self.log_retention_minutes, self.log_retention_hours)
        if next(value for value in retention if value is not None) == 0:
            return "the retention time must be at least 1, or -1 for no limit"
        return listener_faults(self.listeners, self.advertised_listeners, self.listener_security_protocol_map)


BROKER_SETTINGS = settings_of(BrokerConfig)
