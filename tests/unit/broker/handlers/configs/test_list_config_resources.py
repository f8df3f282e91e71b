"""ListConfigResources (KIP-714, KIP-1142)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from support.broker.single_broker import NODE_ID, SingleBroker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NODE = str(NODE_ID)


def listed(broker: SingleBroker, types: list[int], version: int = 1) -> tuple[int, set[tuple[int, str]]]:
    message = ListConfigResourcesRequest(resource_types=types)
    answer = broker.ask(message, ListConfigResourcesResponse, version)
    return answer.error_code, {(one.resource_type, one.resource_name) for one in answer.config_resources}


def test_version_0_knows_client_metrics_only(broker: SingleBroker) -> None:
    broker.create("t")
    assert listed(broker, [], version=0) == (0, set())


@pytest.mark.parametrize(
    ("types", "resources"),
    [
        ([], {(TOPIC, "a"), (TOPIC, "b"), (BROKER, NODE), (BROKER_LOGGER, NODE)}),
        ([TOPIC], {(TOPIC, "a"), (TOPIC, "b")}),
        ([BROKER, BROKER_LOGGER], {(BROKER, NODE), (BROKER_LOGGER, NODE)}),
        ([CLIENT_METRICS, GROUP], set()),
    ],
)
def test_resources_of_the_types_asked_for(
    broker: SingleBroker, types: list[int], resources: set[tuple[int, str]]
) -> None:
    broker.create("a")
    broker.create("b")
    assert listed(broker, types) == (0, resources)


def test_an_unknown_type_is_refused(broker: SingleBroker) -> None:
    assert listed(broker, [TOPIC, 64]) == (ErrorCode.UNSUPPORTED_VERSION, set())
