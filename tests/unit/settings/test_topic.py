"""A topic's settings over its broker's, and DescribeConfigs (KIP-133, KIP-226)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.settings import (
    BrokerConfig,
    BrokerValues,
    ConfigEntry,
    ConfigSource,
    SettingKind,
    describe_broker,
    describe_broker_default,
    describe_topic,
    parse_broker_config,
    parse_topic_config,
)

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("broker", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
    ],
)
def test_retention_comes_from_the_strongest_synonym_that_is_set(
    broker: dict[str, str], retention_ms: int
) -> None:
    assert parse_topic_config({}, parse_broker_config(broker)).retention_ms == retention_ms


def test_flush_time_falls_back_to_the_scheduler() -> None:
    config = parse_broker_config({"log.flush.scheduler.interval.ms": "7"})
    assert parse_topic_config({}, config).flush_ms == 7
    values = BrokerValues({"log.flush.interval.ms": "5"}, {}, {})
    assert parse_topic_config({}, values.config()).flush_ms == 5


def test_own_value_beats_the_brokers() -> None:
    broker = parse_broker_config({"log.retention.ms": "4", "log.segment.bytes": "2000000"})
    config = parse_topic_config({"retention.ms": "9", "cleanup.policy": "compact, delete"}, broker)
    assert (config.retention_ms, config.segment_bytes) == (9, 2_000_000)
    assert (config.compacts, config.deletes) == (True, True)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"retention.msec": "1"}, "Unknown topic config name: retention.msec .did you mean retention.ms"),
        ({"retention.ms": "forever"}, "Invalid value forever for configuration retention.ms"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"retention.ms": "1h"}, "expected a 64-bit number"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"segment.bytes": "13"}, "at least 14"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "above"),
        ({"remote.storage.enable": "true"}, "tiered storage is not available"),
        ({"leader.replication.throttled.replicas": "one"}, "partition:broker"),
        ({"message.timestamp.type": "LogTime"}, "one of CreateTime, LogAppendTime"),
        ({"log.retention.ms": "1"}, "Unknown topic config name"),
    ],
)
def test_bad_topic_setting_is_invalid_config(overrides: dict[str, str | None], words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        parse_topic_config(overrides, BrokerConfig())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def only(entries: list[ConfigEntry]) -> ConfigEntry:
    (entry,) = entries
    return entry


def synonyms(entry: ConfigEntry) -> list[tuple[str, str | None, int]]:
    return [(item.name, item.value, int(item.source)) for item in entry.synonyms]


def test_described_topic_lists_synonyms_from_strongest_to_weakest() -> None:
    values = BrokerValues(
        static={"log.retention.ms": "30", "log.retention.hours": "1"},
        dynamic_default={"log.retention.ms": "20"},
        dynamic={"log.retention.ms": "10"},
    )
    entry = only(describe_topic({"retention.ms": "5"}, values, ["retention.ms"]))
    assert (entry.value, entry.source, entry.kind) == (
        "5",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        SettingKind.LONG,
    )
    assert synonyms(entry) == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "10", 2),
        ("log.retention.ms", "20", 3),
        ("log.retention.ms", "30", 4),
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    ]
    inherited = only(describe_topic({}, values, ["retention.ms"]))
    assert (inherited.value, inherited.source) == ("10", ConfigSource.DYNAMIC_BROKER_CONFIG)


def test_described_topic_shows_the_default_where_only_a_weaker_synonym_is_set() -> None:
    """Kafka drops what stands before the first entry of the name itself."""
    entry = only(describe_topic({}, BrokerValues({"log.retention.hours": "1"}), ["retention.ms"]))
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", ConfigSource.DEFAULT_CONFIG, ())


def test_described_topic_has_every_setting_and_none_is_read_only() -> None:
    entries = describe_topic({}, BrokerValues())
    assert len(entries) == 36
    assert {entry.read_only for entry in entries} == {False}
    assert {entry.source for entry in entries} == {ConfigSource.DEFAULT_CONFIG}


def test_described_broker_tells_source_and_what_can_change() -> None:
    values = BrokerValues(static={"num.partitions": "3"}, dynamic_default={"message.max.bytes": "9"})
    entries = {entry.name: entry for entry in describe_broker(values)}
    partitions, message = entries["num.partitions"], entries["message.max.bytes"]
    assert (partitions.value, partitions.source, partitions.read_only) == (
        "3",
        ConfigSource.STATIC_BROKER_CONFIG,
        True,
    )
    assert (message.value, message.source, message.read_only) == (
        "9",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        False,
    )
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://[::1]:9092"
    assert entries["broker.rack"].value is None
    assert synonyms(entries["broker.rack"]) == []


def test_described_cluster_default_has_only_what_was_set() -> None:
    values = BrokerValues(
        static={"message.max.bytes": "7"},
        dynamic_default={"message.max.bytes": "9"},
        dynamic={"max.connections": "1"},
    )
    entry = only(describe_broker_default(values))
    assert (entry.name, entry.value) == ("message.max.bytes", "9")
    assert synonyms(entry) == [("message.max.bytes", "9", 3)]
