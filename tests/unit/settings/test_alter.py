"""AlterConfigs and IncrementalAlterConfigs (KIP-339) on topics and on dynamic broker settings (KIP-226)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.settings import (
    Alteration,
    AlterOperation,
    BrokerConfig,
    BrokerValues,
    alter_broker,
    alter_topic,
    replacement,
)

SET, DELETE, APPEND, SUBTRACT = AlterOperation


def topic(current: dict[str, str], *alterations: tuple[str, int, str | None]) -> dict[str, str]:
    return alter_topic(current, [Alteration(*alteration) for alteration in alterations], BrokerConfig())


def test_set_and_delete_change_only_what_they_name() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}
    altered = topic(current, ("retention.ms", SET, "5"), ("segment.ms", DELETE, None), ("flush.ms", SET, "7"))
    assert altered == {"retention.ms": "5", "flush.ms": "7"}
    assert current == {"retention.ms": "1", "segment.ms": "2"}


@pytest.mark.parametrize(
    ("current", "operation", "value", "result"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, APPEND, "delete,compact", "compact,delete"),
        ({"cleanup.policy": ""}, APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "compact", "delete"),
        ({}, SUBTRACT, "delete", ""),
    ],
)
def test_append_and_subtract_work_on_lists(
    current: dict[str, str], operation: int, value: str, result: str
) -> None:
    assert topic(current, ("cleanup.policy", operation, value)) == {"cleanup.policy": result}


def test_deleting_what_is_not_set_is_no_error() -> None:
    assert topic({}, ("retention.ms", DELETE, None), ("no.such.thing", DELETE, None)) == {}


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.thing", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("no.such.thing", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "burn")], ErrorCode.INVALID_CONFIG),
        (
            [("min.compaction.lag.ms", SET, str(2**63 - 1)), ("max.compaction.lag.ms", SET, "1")],
            ErrorCode.INVALID_CONFIG,
        ),
        ([("leader.replication.throttled.replicas", SET, "0:0," * 10_000)], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_alteration_of_a_topic_has_kafkas_code(
    alterations: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(RequestError) as caught:
        topic({"segment.ms": "2"}, *alterations)
    assert caught.value.code is code


def test_alter_configs_deletes_what_it_does_not_name() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}
    altered = alter_topic(current, replacement(current, [("segment.ms", "3")]), BrokerConfig())
    assert altered == {"segment.ms": "3"}


def test_alter_configs_refuses_null_and_duplicates() -> None:
    for values in ([("segment.ms", None)], [("segment.ms", "1"), ("segment.ms", "2")]):
        with pytest.raises(RequestError) as caught:
            alter_topic({}, replacement({}, values), BrokerConfig())
        assert caught.value.code is ErrorCode.INVALID_REQUEST


def broker(values: BrokerValues, name: str, text: str | None, *, per_broker: bool) -> dict[str, str]:
    operation = DELETE if text is None else SET
    return alter_broker(values, [Alteration(name, operation, text)], per_broker=per_broker)


def test_dynamic_setting_changes_its_own_layer() -> None:
    values = BrokerValues(dynamic_default={"max.connections": "10"}, dynamic={"message.max.bytes": "7"})
    assert broker(values, "log.retention.ms", "5", per_broker=False) == {
        "max.connections": "10",
        "log.retention.ms": "5",
    }
    assert broker(values, "message.max.bytes", None, per_broker=True) == {}


def test_dynamic_milliseconds_beat_static_hours() -> None:
    values = BrokerValues(static={"log.retention.hours": "1"})
    changed = BrokerValues(values.static, broker(values, "log.retention.ms", "5", per_broker=False))
    assert changed.config().log_retention_ms == 5


def test_appending_to_listeners_begins_with_those_in_force() -> None:
    values = BrokerValues(static={"listeners": "PLAINTEXT://:1"})
    added = alter_broker(values, [Alteration("listeners", APPEND, "PLAINTEXT://:2")], per_broker=True)
    assert added == {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}
    values = BrokerValues(values.static, dynamic=added)
    removed = alter_broker(values, [Alteration("listeners", SUBTRACT, "PLAINTEXT://:1")], per_broker=True)
    assert removed == {"listeners": "PLAINTEXT://:2"}


@pytest.mark.parametrize(
    ("name", "text", "per_broker", "code"),
    [
        ("num.partitions", "3", True, ErrorCode.INVALID_REQUEST),
        ("flint.log.level", "DEBUG", False, ErrorCode.INVALID_REQUEST),
        ("message.max.bytes", "-1", True, ErrorCode.INVALID_REQUEST),
        ("log.retention.ms", "0", True, ErrorCode.INVALID_REQUEST),
        ("max.conections", "3", True, ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_alteration_of_a_broker_has_kafkas_code(
    name: str, text: str, per_broker: bool, code: ErrorCode
) -> None:
    with pytest.raises(RequestError) as caught:
        broker(BrokerValues(), name, text, per_broker=per_broker)
    assert caught.value.code is code
