"""Partitions that take part in transactions whose coordinator is another broker (KIP-890): AddPartitionsToTxn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from flintmq.cluster.peer_queue import PeerQueue
from flintmq.cluster.peers import Peer
from flintmq.coordinator.transactions.responses import AddedTransaction
from flintmq.effects import Network
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from flintmq.records.topic_partition import TopicPartition

VERSION: Final = 5
_CLIENT_ID: Final = "flintmq-transaction-verification"

Codes = dict[TopicPartition, ErrorCode]


class RemoteVerification(NamedTuple):
    transaction: AddedTransaction
    done: Callable[[Codes], object]


class RemoteCoordinators:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._queues: dict[int, PeerQueue[RemoteVerification]] = {}

    def verify(self, node: int, verification: RemoteVerification) -> None:
        """Ask the coordinator, which is `node`, whether partitions take part, or to add them."""
        queue = self._queues.get(node)
        if queue is None:
            peer = Peer(self._network, node, _CLIENT_ID)
            queue = self._queues[node] = PeerQueue(peer, send=_send, fail=_fail)
        queue.put(verification)

    async def close(self) -> None:
        await asyncio.gather(*(queue.close() for queue in self._queues.values()))


def _fail(item: RemoteVerification) -> None:
    item.done(codes_for(item.transaction, ErrorCode.COORDINATOR_NOT_AVAILABLE))


async def _send(peer: Peer, batch: list[RemoteVerification]) -> None:
    # A response names transactions by their ids: each once in a request.
    while batch:
        now: dict[str, RemoteVerification] = {}
        later = []
        for item in batch:
            if item.transaction.transactional_id in now:
                later.append(item)
            else:
                now[item.transaction.transactional_id] = item
        request = AddPartitionsToTxnRequest(transactions=[item.transaction for item in now.values()])
        response = await peer.call(request, AddPartitionsToTxnResponse, VERSION)
        found = {result.transactional_id: result for result in response.results_by_transaction}
        for name, item in now.items():
            error = ErrorCode(response.error_code)
            result = found.get(name)
            if error is not ErrorCode.NONE or result is None:
                item.done(codes_for(item.transaction, error or ErrorCode.COORDINATOR_NOT_AVAILABLE))
                continue
            item.done(
                {
                    (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
                    for topic in result.topic_results
                    for partition in topic.results_by_partition
                }
            )
        batch = later


def codes_for(transaction: AddedTransaction, code: ErrorCode) -> Codes:
    """Return the same code for all partitions of a transaction."""
    return {(topic.name, index): code for topic in transaction.topics for index in topic.partitions}
