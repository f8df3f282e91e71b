"""WriteTxnMarkers (27), versions 1–2: the ends of transactions, from their coordinators.

Also from an operator who ends a transaction that its coordinator has lost sight of (KIP-664).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from flintmq.broker.authorization import is_cluster_allowed
from flintmq.broker.limits import ITEMS_PER_TURN
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
Written = dict[int, asyncio.Future[ErrorCode]]
"""What becomes of the marker in each partition of a topic."""

WAIT_S: Final = 5.0
"""How long a response waits for markers to become visible: a partition that cannot commit holds up no others."""


async def handle(
    request: Request, message: WriteTxnMarkersRequest, services: Services
) -> WriteTxnMarkersResponse:
    if not is_cluster_allowed(
        request, services, AclOperation.ALTER, counted=False
    ) and not is_cluster_allowed(request, services, AclOperation.CLUSTER_ACTION):
        return _refusal(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    written = await _write_all(message, services)
    pending = [
        future
        for topics in written
        for _, futures in topics
        for future in futures.values()
        if not future.done()
    ]
    if pending:
        await asyncio.wait(pending, timeout=WAIT_S)
    return WriteTxnMarkersResponse(
        markers=[
            Result(
                producer_id=wanted.producer_id,
                topics=[_result(name, futures) for name, futures in topics],
            )
            for wanted, topics in zip(message.markers, written, strict=True)
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


async def _write_all(message: WriteTxnMarkersRequest, services: Services) -> list[list[tuple[str, Written]]]:
    """Append all markers, in turns of the loop; return for each marker what becomes of it, by topic."""
    results = []
    left = ITEMS_PER_TURN
    for wanted in message.markers:
        topics: list[tuple[str, Written]] = []
        for topic in wanted.topics:
            written: Written = {}
            # Each once: who names a partition twice wants no second marker.
            for index in dict.fromkeys(topic.partition_indexes):
                if not left:
                    await asyncio.sleep(0)
                    left = ITEMS_PER_TURN
                left -= 1
                written[index] = _write(wanted, topic.name, index, services)
            topics.append((topic.name, written))
        results.append(topics)
    return results


def _result(name: str, written: Written) -> TopicResult:
    return TopicResult(
        name=name,
        partitions=[
            PartitionResult(
                partition_index=index,
                error_code=future.result() if future.done() else ErrorCode.REQUEST_TIMED_OUT,
            )
            for index, future in written.items()
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
