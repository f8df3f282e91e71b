"""WriteTxnMarkers (27), versions 1–2: the ends of transactions, from their coordinators.

Also from an operator who ends a transaction that its coordinator has lost sight of (KIP-664).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.broker.authorization import is_cluster_allowed
from flintmq.broker.limits import gather_in_turns
from flintmq.broker.request import Request
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from flintmq.records.markers import Marker
from flintmq.security.authorization.model import AclOperation

if TYPE_CHECKING:
    from flintmq.broker.services import Services

Wanted = WriteTxnMarkersRequest.WritableTxnMarker
WantedTopic = WriteTxnMarkersRequest.WritableTxnMarkerTopic
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


async def handle(
    request: Request, message: WriteTxnMarkersRequest, services: Services
) -> WriteTxnMarkersResponse:
    if not is_cluster_allowed(
        request, services, AclOperation.ALTER, counted=False
    ) and not is_cluster_allowed(request, services, AclOperation.CLUSTER_ACTION):
        return _refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return WriteTxnMarkersResponse(
        markers=[
            Result(
                producer_id=wanted.producer_id,
                topics=[await _write_all(wanted, topic, services) for topic in wanted.topics],
            )
            for wanted in message.markers
        ]
    )


def _refusal(message: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            Result(
                producer_id=wanted.producer_id,
                topics=[
                    TopicResult(
                        name=topic.name,
                        partitions=[
                            PartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in wanted.topics
                ],
            )
            for wanted in message.markers
        ]
    )


async def _write_all(wanted: Wanted, topic: WantedTopic, services: Services) -> TopicResult:
    # Each once: who names a partition twice wants no second marker.
    indexes = list(dict.fromkeys(topic.partition_indexes))
    codes = await gather_in_turns(_write(wanted, topic.name, index, services) for index in indexes)
    return TopicResult(
        name=topic.name,
        partitions=[
            PartitionResult(partition_index=index, error_code=code)
            for index, code in zip(indexes, codes, strict=True)
        ],
    )


def _write(wanted: Wanted, topic: str, index: int, services: Services) -> asyncio.Future[ErrorCode]:
    written: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    services.markers.write_here(
        topic,
        index,
        Marker(
            wanted.producer_id, wanted.producer_epoch, wanted.coordinator_epoch, wanted.transaction_result
        ),
        transaction_version=wanted.transaction_version,
        done=lambda code: None if written.done() else written.set_result(code),
    )
    return written
