"""AlterConfigs and IncrementalAlterConfigs: topics, brokers, loggers (KIP-133, KIP-226, KIP-339, KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.metadata import keys
from flintmq.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.broker.single_broker import NODE_ID, SingleBroker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Config = IncrementalAlterConfigsRequest.AlterableConfig


def resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Resource:
    configs = [Config(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return Resource(resource_type=kind, resource_name=name, configs=configs)


def alter(
    broker: SingleBroker, *resources: Resource, validate_only: bool = False, version: int = 1
) -> list[ErrorCode]:
    message = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = broker.ask(message, IncrementalAlterConfigsResponse, version).responses
    assert all((one.error_message is None) == (one.error_code == 0) for one in responses)
    named = [(one.resource_type, one.resource_name) for one in responses]
    assert named == [(one.resource_type, one.resource_name) for one in resources]
    return [ErrorCode(one.error_code) for one in responses]


def replace(
    broker: SingleBroker, kind: int, name: str, values: dict[str, str | None], **options: Any
) -> ErrorCode:
    configs = [AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in values.items()]
    wanted = AlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    message = AlterConfigsRequest(resources=[wanted], validate_only=options.get("validate_only", False))
    [response] = broker.ask(message, AlterConfigsResponse, options.get("version", 2)).responses
    assert (response.error_message is None) == (response.error_code == 0)
    return ErrorCode(response.error_code)


def overrides(broker: SingleBroker, topic: str = "t") -> dict[str, str]:
    return broker.services.metadata.image.topic_configs.get(topic, {})


@pytest.mark.parametrize("version", range(2))
def test_a_setting_of_a_topic_is_set_and_in_force(broker: SingleBroker, version: int) -> None:
    broker.create("t", 2)
    assert alter(broker, resource(TOPIC, "t", ("retention.ms", SET, "1000")), version=version) == [
        ErrorCode.NONE
    ]
    assert overrides(broker) == {"retention.ms": "1000"}
    assert [broker.partition("t", index).log.config.retention_ms for index in range(2)] == [1000, 1000]


def test_the_last_setting_deleted_leaves_no_key(broker: SingleBroker) -> None:
    broker.create("t", retention_ms="1000")
    assert alter(broker, resource(TOPIC, "t", ("retention.ms", DELETE, None))) == [ErrorCode.NONE]
    view = broker.loop.run_until_complete(broker.services.metadata.store.get(keys.TOPIC_CONFIGS))
    assert not view.items
    assert broker.partition("t").log.config.retention_ms == 604_800_000


def test_lists_are_appended_to_and_subtracted_from(broker: SingleBroker) -> None:
    broker.create("t")
    assert alter(broker, resource(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))) == [ErrorCode.NONE]
    assert overrides(broker) == {"cleanup.policy": "delete,compact"}
    assert alter(broker, resource(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))) == [ErrorCode.NONE]
    assert overrides(broker) == {"cleanup.policy": "compact"}
    assert alter(broker, resource(TOPIC, "t", ("retention.ms", APPEND, "1"))) == [ErrorCode.INVALID_CONFIG]


def test_validate_only_checks_and_changes_nothing(broker: SingleBroker) -> None:
    broker.create("t")
    good, bad = ("retention.ms", SET, "1000"), ("retention.ms", SET, "x")
    assert alter(broker, resource(TOPIC, "t", good), validate_only=True) == [ErrorCode.NONE]
    assert alter(broker, resource(TOPIC, "t", bad), validate_only=True) == [ErrorCode.INVALID_CONFIG]
    assert overrides(broker) == {}


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (resource(TOPIC, "none", ("retention.ms", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(TOPIC, "", ("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "no/name", ("retention.ms", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource(TOPIC, "t", ("no.such.setting", SET, "1")), ErrorCode.INVALID_CONFIG),
        (resource(TOPIC, "t", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (resource(TOPIC, "t", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
        (
            resource(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
            ErrorCode.INVALID_REQUEST,
        ),
        (resource(BROKER, "one", ("log.retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, str(NODE_ID + 1), ("log.retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
        (resource(BROKER, str(NODE_ID), ("num.partitions", SET, "2")), ErrorCode.INVALID_REQUEST),
        (resource(CLIENT_METRICS, "m", ("interval.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_with_kafkas_code(
    broker: SingleBroker, refused: Resource, code: ErrorCode
) -> None:
    broker.create("t")
    assert alter(broker, refused) == [code]
    assert not broker.services.metadata.image.topic_configs
    assert not broker.services.metadata.image.broker_configs


def test_a_resource_named_twice_is_refused_and_the_others_change(broker: SingleBroker) -> None:
    broker.create("t")
    broker.create("u")
    change = ("retention.ms", SET, "1000")
    answers = alter(
        broker, resource(TOPIC, "t", change), resource(TOPIC, "u", change), resource(TOPIC, "t", change)
    )
    assert answers == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert (overrides(broker, "t"), overrides(broker, "u")) == ({}, {"retention.ms": "1000"})


def test_a_broker_setting_reaches_every_topic_that_does_not_set_it(broker: SingleBroker) -> None:
    broker.create("t")
    broker.create("own", retention_ms="5")
    assert alter(broker, resource(BROKER, "", ("log.retention.ms", SET, "1000"))) == [ErrorCode.NONE]
    assert broker.partition("t").log.config.retention_ms == 1000
    assert broker.partition("own").log.config.retention_ms == 5
    # This broker's own value is stronger than that of all brokers.
    assert alter(broker, resource(BROKER, str(NODE_ID), ("log.retention.ms", SET, "2000"))) == [
        ErrorCode.NONE
    ]
    assert broker.partition("t").log.config.retention_ms == 2000
    assert set(broker.services.metadata.image.broker_configs) == {"", str(NODE_ID)}


def test_changes_of_one_resource_at_once_do_not_undo_each_other(broker: SingleBroker) -> None:
    broker.create("t")
    settings = ["retention.ms", "segment.ms", "max.message.bytes", "segment.bytes", "flush.ms"]
    messages = [
        IncrementalAlterConfigsRequest(resources=[resource(TOPIC, "t", (name, SET, "5000"))])
        for name in settings
    ]
    answers = broker.ask_together(messages, IncrementalAlterConfigsResponse, 1)
    assert [answer.responses[0].error_code for answer in answers] == [0] * len(settings)
    assert overrides(broker) == dict.fromkeys(settings, "5000")


def test_settings_do_not_outlive_a_topic_deleted_meanwhile(broker: SingleBroker) -> None:
    broker.create("t")
    services = broker.services
    deletion = broker.loop.create_task(services.topics.delete(services.metadata.image.topics["t"]))
    answers = alter(broker, resource(TOPIC, "t", ("retention.ms", SET, "1000")))
    broker.loop.run_until_complete(deletion)
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    view = broker.loop.run_until_complete(services.metadata.store.get(keys.TOPIC_CONFIGS))
    assert not view.items


# ---- AlterConfigs


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(broker: SingleBroker, version: int) -> None:
    broker.create("t", retention_ms="1000", segment_ms="2000")
    assert replace(broker, TOPIC, "t", {"retention.ms": "3000"}, version=version) is ErrorCode.NONE
    assert overrides(broker) == {"retention.ms": "3000"}
    assert replace(broker, TOPIC, "t", {}, version=version) is ErrorCode.NONE
    assert overrides(broker) == {}


def test_alter_configs_of_a_broker(broker: SingleBroker) -> None:
    assert replace(broker, BROKER, "", {"log.retention.ms": "1000"}) is ErrorCode.NONE
    assert broker.services.configs.broker.log_retention_ms == 1000
    assert replace(broker, BROKER, "", {}) is ErrorCode.NONE
    assert broker.services.configs.broker.log_retention_ms is None


def test_alter_configs_refuses_what_cannot_be(broker: SingleBroker) -> None:
    broker.create("t", retention_ms="1000")
    assert replace(broker, TOPIC, "t", {"retention.ms": None}) is ErrorCode.INVALID_REQUEST
    assert replace(broker, TOPIC, "t", {"retention.ms": "x"}) is ErrorCode.INVALID_CONFIG
    assert replace(broker, TOPIC, "none", {}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(broker, BROKER_LOGGER, str(NODE_ID), {"root": "INFO"}) is ErrorCode.INVALID_REQUEST
    assert replace(broker, TOPIC, "t", {}, validate_only=True) is ErrorCode.NONE
    assert overrides(broker) == {"retention.ms": "1000"}


# ---- loggers


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("flintmq.metadata.configs")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_the_level_of_a_logger_is_set_and_unset(broker: SingleBroker, logger: logging.Logger) -> None:
    """KIP-412."""
    assert alter(broker, resource(BROKER_LOGGER, str(NODE_ID), (logger.name, SET, "ERROR"))) == [
        ErrorCode.NONE
    ]
    assert logger.level == logging.ERROR
    assert alter(broker, resource(BROKER_LOGGER, str(NODE_ID), (logger.name, DELETE, None))) == [
        ErrorCode.NONE
    ]
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("node", "change", "code"),
    [
        (NODE_ID, ("flintmq.no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (NODE_ID, ("asyncio", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (NODE_ID, ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (NODE_ID, ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (NODE_ID, ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (NODE_ID, ("root", SET, None), ErrorCode.INVALID_REQUEST),
        (NODE_ID + 1, ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_level_that_cannot_be_is_refused_before_any_is_set(
    broker: SingleBroker,
    logger: logging.Logger,
    node: int,
    change: tuple[str, int, str | None],
    code: ErrorCode,
) -> None:
    answers = alter(broker, resource(BROKER_LOGGER, str(node), (logger.name, SET, "ERROR"), change))
    assert answers == [code]
    assert logger.level == logging.NOTSET


def test_validate_only_leaves_levels_alone(broker: SingleBroker, logger: logging.Logger) -> None:
    change = resource(BROKER_LOGGER, str(NODE_ID), (logger.name, SET, "ERROR"))
    assert alter(broker, change, validate_only=True) == [ErrorCode.NONE]
    assert logger.level == logging.NOTSET
