"""DescribeCluster (60), versions 0–2: the cluster's id, brokers and controller (KIP-700, KIP-919).

The controller is a broker that clients may send to, as Kafka tells it. Endpoints of controllers, asked for
from version 1 on, are not told by a broker's listener: MISMATCHED_ENDPOINT_TYPE. No broker is ever fenced
(version 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.authorization import cluster_authorized_operations
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Broker = DescribeClusterResponse.DescribeClusterBroker

_BROKERS, _CONTROLLERS = 1, 2


def handle(request: Request, message: DescribeClusterRequest, services: Services) -> DescribeClusterResponse:
    if message.endpoint_type != _BROKERS:
        known = message.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a listener for brokers."
            if known
            else "There is no such type of endpoint.",
        )
    response = DescribeClusterResponse(
        cluster_id=services.metadata.image.cluster_id,
        controller_id=services.metadata.image.controller_or(services.node_id),
        brokers=[
            Broker(broker_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
            for endpoint in services.endpoints.of(request.session)
        ],
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_authorized_operations(request, services)
    return response
