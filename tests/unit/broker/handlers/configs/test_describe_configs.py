"""DescribeConfigs: topics, brokers and loggers; sources, synonyms and types (KIP-133, KIP-226, KIP-412)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from support.broker.single_broker import NODE_ID, SingleBroker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
Config = DescribeConfigsResponse.DescribeConfigsResourceResult


def describe(
    broker: SingleBroker,
    kind: int,
    name: str,
    names: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResponse.DescribeConfigsResult:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=names
    )
    message = DescribeConfigsRequest(
        resources=[wanted], include_synonyms=synonyms, include_documentation=documentation
    )
    [result] = broker.ask(message, DescribeConfigsResponse, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def one(broker: SingleBroker, kind: int, resource: str, name: str, **options: Any) -> Config:
    [config] = describe(broker, kind, resource, [name], **options).configs
    assert config.name == name
    return config


@pytest.mark.parametrize("version", range(1, 5))
def test_all_settings_of_a_topic_in_every_version(broker: SingleBroker, version: int) -> None:
    broker.create("t", retention_ms="1000")
    result = describe(broker, TOPIC, "t", version=version, synonyms=True, documentation=version >= 3)
    configs = {config.name: config for config in result.configs}
    assert len(configs) > 20
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
    assert configs["segment.bytes"].config_source == 5
    assert retention.synonyms[0].source == 1
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation


def test_an_empty_list_of_names_means_all_as_null_does(broker: SingleBroker) -> None:
    broker.create("t")
    assert len(describe(broker, TOPIC, "t", []).configs) == len(describe(broker, TOPIC, "t", None).configs)


def test_names_that_are_not_settings_are_left_out(broker: SingleBroker) -> None:
    broker.create("t")
    result = describe(broker, TOPIC, "t", ["retention.ms", "no.such.setting"])
    assert [config.name for config in result.configs] == ["retention.ms"]


def test_synonyms_and_documentation_come_only_if_asked_for(broker: SingleBroker) -> None:
    broker.create("t")
    plain = one(broker, TOPIC, "t", "segment.bytes")
    assert (plain.synonyms, plain.documentation) == ([], None)
    told = one(broker, TOPIC, "t", "segment.bytes", synonyms=True, documentation=True)
    assert [synonym.name for synonym in told.synonyms] == ["log.segment.bytes"]
    assert told.documentation


def test_settings_of_this_broker_tell_where_they_come_from(start_broker: Any) -> None:
    broker = start_broker({"num.partitions": "7"})
    static = one(broker, BROKER, str(NODE_ID), "num.partitions")
    assert (static.value, static.config_source, static.read_only) == ("7", 4, True)
    default = one(broker, BROKER, str(NODE_ID), "log.segment.bytes")
    assert (default.config_source, default.read_only) == (5, False)


def test_the_empty_broker_has_only_what_was_set_for_all(broker: SingleBroker) -> None:
    assert describe(broker, BROKER, "").configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, str(NODE_ID + 1), ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, str(NODE_ID + 1), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_that_is_not_here_is_refused(
    broker: SingleBroker, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(broker, kind, name)
    assert (ErrorCode(result.error_code), result.configs) == (code, [])
    assert result.error_message


def test_loggers_of_the_broker_and_their_levels(broker: SingleBroker) -> None:
    """KIP-412."""
    logging.getLogger("flintmq.metadata.configs").setLevel(logging.WARNING)
    logging.getLogger("someone.else")
    result = describe(broker, BROKER_LOGGER, str(NODE_ID))
    levels = {config.name: config.value for config in result.configs}
    assert levels["flintmq.metadata.configs"] == "WARN"
    assert "root" in levels
    assert "someone.else" not in levels
    assert {config.config_source for config in result.configs} == {6}
    logging.getLogger("flintmq.metadata.configs").setLevel(logging.NOTSET)


def test_others_get_their_turn_while_many_topics_are_described(broker: SingleBroker) -> None:
    broker.create("t")
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name="t")
    many = DescribeConfigsRequest(resources=[wanted] * 200)
    answered: list[int] = []

    async def race() -> None:
        async def take(message: DescribeConfigsRequest) -> None:
            answer = await broker.exchange(message, DescribeConfigsResponse, 4)
            answered.append(len(answer.results))

        await asyncio.gather(take(many), take(DescribeConfigsRequest(resources=[wanted])))

    broker.loop.run_until_complete(race())
    assert answered == [1, 200]
