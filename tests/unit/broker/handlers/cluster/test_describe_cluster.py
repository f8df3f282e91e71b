"""DescribeCluster (KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from support.broker.single_broker import CLUSTER_ID, NODE_ID, SingleBroker


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker_at_the_address_of_the_connection(
    broker: SingleBroker, version: int
) -> None:
    """N8: without advertised listeners a client is told the address that it came by."""
    answer = broker.ask(DescribeClusterRequest(), DescribeClusterResponse, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, NODE_ID)
    [node] = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (NODE_ID, "127.0.0.1", 9092, "r1")
    assert not node.is_fenced
    assert answer.cluster_authorized_operations == -(2**31)


def test_authorized_operations_are_told_if_asked_for(broker: SingleBroker) -> None:
    """KIP-430: without an authorizer, all that a cluster knows."""
    message = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = broker.ask(message, DescribeClusterResponse, 1)
    assert answer.cluster_authorized_operations == sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_listener_of_brokers_tells_of_brokers_only(
    broker: SingleBroker, endpoint_type: int, code: ErrorCode
) -> None:
    answer = broker.ask(DescribeClusterRequest(endpoint_type=endpoint_type), DescribeClusterResponse, 2)
    assert (answer.error_code, answer.brokers) == (code, [])
    assert answer.error_message
