"""The declared lists: consistent in themselves, and equal to Kafka 4.3.1 where they claim to be."""

from __future__ import annotations

from dataclasses import fields

import pytest

from flintmq.errors import ConfigurationError
from flintmq.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Setting,
    SettingKind,
    TopicConfig,
    parse_broker_config,
    parse_topic_config,
)

ALL = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]

LONG_MAX = str(2**63 - 1)
INT_MAX = str(2**31 - 1)

# name, type, default as DescribeConfigs writes it: facts of Kafka 4.3.1.
KAFKA_TOPIC = [
    ("cleanup.policy", SettingKind.LIST, "delete"),
    ("compression.gzip.level", SettingKind.INT, "-1"),
    ("compression.lz4.level", SettingKind.INT, "9"),
    ("compression.type", SettingKind.STRING, "producer"),
    ("compression.zstd.level", SettingKind.INT, "3"),
    ("delete.retention.ms", SettingKind.LONG, "86400000"),
    ("file.delete.delay.ms", SettingKind.LONG, "60000"),
    ("flush.messages", SettingKind.LONG, LONG_MAX),
    ("flush.ms", SettingKind.LONG, LONG_MAX),
    ("follower.replication.throttled.replicas", SettingKind.LIST, ""),
    ("index.interval.bytes", SettingKind.INT, "4096"),
    ("leader.replication.throttled.replicas", SettingKind.LIST, ""),
    ("local.retention.bytes", SettingKind.LONG, "-2"),
    ("local.retention.ms", SettingKind.LONG, "-2"),
    ("max.compaction.lag.ms", SettingKind.LONG, LONG_MAX),
    ("max.message.bytes", SettingKind.INT, "1048588"),
    ("message.timestamp.after.max.ms", SettingKind.LONG, "3600000"),
    ("message.timestamp.before.max.ms", SettingKind.LONG, LONG_MAX),
    ("message.timestamp.type", SettingKind.STRING, "CreateTime"),
    ("min.cleanable.dirty.ratio", SettingKind.DOUBLE, "0.5"),
    ("min.compaction.lag.ms", SettingKind.LONG, "0"),
    ("min.insync.replicas", SettingKind.INT, "1"),
    ("preallocate", SettingKind.BOOLEAN, "false"),
    ("remote.log.copy.disable", SettingKind.BOOLEAN, "false"),
    ("remote.log.delete.on.disable", SettingKind.BOOLEAN, "false"),
    ("remote.storage.enable", SettingKind.BOOLEAN, "false"),
    ("retention.bytes", SettingKind.LONG, "-1"),
    ("retention.ms", SettingKind.LONG, "604800000"),
    ("segment.bytes", SettingKind.INT, "1073741824"),
    ("segment.index.bytes", SettingKind.INT, "10485760"),
    ("segment.jitter.ms", SettingKind.LONG, "0"),
    ("segment.ms", SettingKind.LONG, "604800000"),
    ("unclean.leader.election.enable", SettingKind.BOOLEAN, "false"),
]
KAFKA_BROKER = [
    ("auto.create.topics.enable", SettingKind.BOOLEAN, "true"),
    ("broker.rack", SettingKind.STRING, None),
    ("connections.max.idle.ms", SettingKind.LONG, "600000"),
    ("default.replication.factor", SettingKind.INT, "1"),
    ("delete.topic.enable", SettingKind.BOOLEAN, "true"),
    ("fetch.max.bytes", SettingKind.INT, "57671680"),
    ("log.cleaner.min.cleanable.ratio", SettingKind.DOUBLE, "0.5"),
    ("log.flush.interval.messages", SettingKind.LONG, LONG_MAX),
    ("log.flush.interval.ms", SettingKind.LONG, None),
    ("log.flush.offset.checkpoint.interval.ms", SettingKind.INT, "60000"),
    ("log.flush.scheduler.interval.ms", SettingKind.LONG, LONG_MAX),
    ("log.retention.hours", SettingKind.INT, "168"),
    ("log.retention.minutes", SettingKind.INT, None),
    ("log.retention.ms", SettingKind.LONG, None),
    ("log.roll.hours", SettingKind.INT, "168"),
    ("log.roll.ms", SettingKind.LONG, None),
    ("log.segment.bytes", SettingKind.INT, "1073741824"),
    ("max.connections", SettingKind.INT, INT_MAX),
    ("max.connections.per.ip", SettingKind.INT, INT_MAX),
    ("max.incremental.fetch.session.cache.slots", SettingKind.INT, "1000"),
    ("max.request.partition.size.limit", SettingKind.INT, "2000"),
    ("message.max.bytes", SettingKind.INT, "1048588"),
    ("num.partitions", SettingKind.INT, "1"),
    ("num.recovery.threads.per.data.dir", SettingKind.INT, "2"),
    ("producer.id.expiration.ms", SettingKind.INT, "86400000"),
    ("socket.request.max.bytes", SettingKind.INT, "104857600"),
]
KAFKA = [(TOPIC_SETTINGS, *fact) for fact in KAFKA_TOPIC] + [
    (BROKER_SETTINGS, *fact) for fact in KAFKA_BROKER
]


@pytest.mark.parametrize(("settings", "name", "kind", "default"), KAFKA, ids=[fact[1] for fact in KAFKA])
def test_type_and_default_are_kafkas(
    settings: dict[str, Setting], name: str, kind: SettingKind, default: str | None
) -> None:
    declared = settings[name]
    assert (declared.kind, declared.format(declared.default)) == (kind, default)


def test_every_topic_setting_of_kafka_is_known() -> None:
    ours = [name for name in TOPIC_SETTINGS if not name.startswith("flint.")]
    assert sorted(ours) == sorted(name for name, _, _ in KAFKA_TOPIC)


@pytest.mark.parametrize("declared", ALL, ids=lambda declared: declared.name)
def test_default_passes_its_own_check_as_text(declared: Setting) -> None:
    text = declared.format(declared.default)
    if text is not None and text != "":
        assert declared.parse(text) == declared.default


@pytest.mark.parametrize("config", [BrokerConfig, TopicConfig])
def test_attribute_is_the_name_with_underscores(config: type) -> None:
    declared = [field for field in fields(config) if field.name != "listener_overrides"]
    assert [field.name for field in declared] == [field.metadata["setting"].attribute for field in declared]


def test_synonyms_of_topic_settings_are_broker_settings() -> None:
    for declared in TOPIC_SETTINGS.values():
        for synonym in declared.synonyms:
            assert BROKER_SETTINGS[synonym.name].unit == declared.unit or synonym.factor != 1


def test_without_overrides_a_topic_has_the_declared_defaults() -> None:
    assert parse_topic_config({}, parse_broker_config({})) == TopicConfig()


def test_human_words_end_every_explanation() -> None:
    assert [declared.name for declared in ALL if not declared.doc.endswith(".")] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "three"),
        ("num.partitions", "1_000"),
        ("num.partitions", "2147483648"),
        ("log.retention.bytes", "9223372036854775808"),
        ("log.preallocate", "yes"),
        ("log.cleaner.min.cleanable.ratio", "1.5"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleanup.policy", "delete,delete"),
        ("log.cleanup.policy", "remove"),
        ("compression.gzip.level", "0"),
        ("listeners", ""),
        ("listeners", "127.0.0.1:9092"),
        ("listeners", "PLAINTEXT://localhost:70000"),
        ("log.dirs", "/a,/b"),
        ("listener.security.protocol.map", "CLIENT:TLS"),
        ("queued.max.request.bytes", "0"),
    ],
)
def test_bad_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        parse_broker_config({name: text})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"listeners": "CLIENT://:9092"}, "no security protocol for listener CLIENT"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:1"}, "same address"),
        ({"advertised.listeners": "OTHER://h:1"}, "not among the listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no client can connect"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://i:1"}, "twice"),
        ({"log.retention.ms": "0"}, "at least 1, or -1"),
        ({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"}, "above"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_broker_config(values)


def test_listeners_have_names_hosts_and_ports() -> None:
    config = parse_broker_config(
        {
            "listeners": "plaintext://[::1]:9092, CLIENT://:0",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT",
            "advertised.listeners": "CLIENT://broker.example:443",
        }
    )
    assert [(item.name, item.host, item.port) for item in config.listeners] == [
        ("PLAINTEXT", "::1", 9092),
        ("CLIENT", "", 0),
    ]
    assert [str(item) for item in config.listeners] == ["PLAINTEXT://[::1]:9092", "CLIENT://:0"]
    assert [str(item) for item in config.advertised_listeners] == ["CLIENT://broker.example:443"]
