"""Markers for partitions that other brokers lead: WriteTxnMarkers, in batches for each broker.

Invariant: a marker is done only if the leader of its partition has said so. An answer that does not come, or that the
partition is not known there, is no such answer: who asked asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.cluster.peer_queue import PeerQueue
from flintmq.cluster.peers import Peer
from flintmq.effects import Network
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from flintmq.records.markers import Marker
from flintmq.records.topic_partition import TopicPartition

_VERSION: Final = 2
_CLIENT_ID: Final = "flintmq-transaction-markers"


class RemoteMarker(NamedTuple):
    partition: TopicPartition
    marker: Marker
    transaction_version: int
    done: Callable[[ErrorCode], object]


class RemoteMarkers:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._queues: dict[int, PeerQueue[RemoteMarker]] = {}

    def write(self, node: int, marker: RemoteMarker) -> None:
        """Send a marker to the broker that leads its partition."""
        queue = self._queues.get(node)
        if queue is None:
            peer = Peer(self._network, node, _CLIENT_ID)
            queue = self._queues[node] = PeerQueue(peer, send=_send, fail=_fail)
        queue.put(marker)

    async def close(self) -> None:
        await asyncio.gather(*(queue.close() for queue in self._queues.values()))


def _fail(item: RemoteMarker) -> None:
    item.done(ErrorCode.NETWORK_EXCEPTION)


async def _send(peer: Peer, batch: list[RemoteMarker]) -> None:
    # A response names producers, not markers: of one producer, one marker in each request.
    while batch:
        now: dict[int, list[RemoteMarker]] = {}
        later = []
        for item in batch:
            same = now.setdefault(item.marker.producer_id, [])
            if same and same[0].marker != item.marker:
                later.append(item)
            else:
                same.append(item)
        request = WriteTxnMarkersRequest(markers=[_wanted(items) for items in now.values()])
        response = await peer.call(request, WriteTxnMarkersResponse, _VERSION)
        codes = {
            (result.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        for producer_id, items in now.items():
            for item in items:
                item.done(_meaning(codes.get((producer_id, *item.partition))))
        batch = later


def _wanted(items: list[RemoteMarker]) -> WriteTxnMarkersRequest.WritableTxnMarker:
    marker = items[0].marker
    topics: dict[str, list[int]] = {}
    for item in items:
        topic, index = item.partition
        topics.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        transaction_result=marker.committed,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=items[0].transaction_version,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
    )


def _meaning(code: ErrorCode | None) -> ErrorCode:
    """The other broker may not know of the topic yet: only this broker's own metadata says that it is gone."""
    if code is None or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code
