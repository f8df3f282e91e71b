"""Fetches the batches that are missing in a damaged log, from one replica after another.

It asks as a consumer does (KIP-392), in the leader epoch that this broker knows, so that a replica gives only what
lies below its high watermark. Invariant: a batch is handed on only after it was checked. At most `FETCH_BYTES`, or
one batch, are in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from flintmq.cluster.peers import Peer
from flintmq.effects import Network
from flintmq.errors import CorruptionError, ErrorCode, FlintError, RequestError, StorageError
from flintmq.partitions.partition import Partition
from flintmq.partitions.replication.fetcher import FETCH_VERSION
from flintmq.partitions.replication.gap_batches import GapBatches, gap_batches
from flintmq.protocol.messages import FetchRequest, FetchResponse
from flintmq.storage.repair.sound_batches import Gap

FETCH_BYTES: Final = 1024 * 1024
_CLIENT_ID: Final = "flintmq-repair"
_EMPTY: Final = memoryview(b"")


class NoSoundReplica(StorageError):
    """No other replica has sound batches for a damaged range now."""


class GapFetcher:
    """For one partition, during one attempt to repair it."""

    def __init__(
        self, partition: Partition, sources: Sequence[int], network: Network, *, timeout_s: float
    ) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._peers = [Peer(network, node, _CLIENT_ID, timeout_s) for node in sources]

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    async def check(self, offset: int) -> None:
        """Raise NoSoundReplica unless one of the replicas serves `offset`."""
        reasons = []
        for peer in self._peers:
            try:
                if await self._fetch(peer, offset):
                    return
                reasons.append(_nothing_from(peer, offset))
            except FlintError as error:
                reasons.append(_reason(peer, error))
        raise NoSoundReplica(" ".join(reasons) or "No other replica is alive.")

    async def fetch(
        self, gap: Gap, *, start_offset: int, write: Callable[[memoryview], Awaitable[None]]
    ) -> list[int]:
        """Call `write` with batches until nothing is missing from `gap`; return the brokers that they are from.

        The log begins at `start_offset`. NoSoundReplica if no replica has what comes next.
        """
        first_offset, offset = gap.start_offset, max(gap.start_offset, start_offset)
        sources: list[int] = []
        reasons: list[str] = []
        for peer in self._peers:
            while offset < gap.end_offset:
                try:
                    found = self._checked(await self._fetch(peer, offset), gap, first_offset, offset)
                except FlintError as error:
                    reasons.append(_reason(peer, error))
                    break
                if found.next_offset == offset:
                    reasons.append(_nothing_from(peer, offset))
                    break
                if found.data:
                    await write(found.data)
                    sources.append(peer.node_id)
                first_offset = offset = found.next_offset
        if offset < gap.end_offset:
            raise NoSoundReplica(" ".join(reasons))
        return list(dict.fromkeys(sources))

    def _checked(self, data: memoryview, gap: Gap, first_offset: int, offset: int) -> GapBatches:
        log = self._partition.log
        return gap_batches(
            data,
            offset=offset,
            first_offset=first_offset,
            end_offset=gap.end_offset,
            has_holes=log.config.compacts or log.first_dirty_offset > 0,
            epoch_of=log.epochs.epoch_of,
        )

    async def _fetch(self, peer: Peer, offset: int) -> memoryview:
        partition = self._partition
        wanted = FetchRequest.FetchPartition(
            partition=partition.index,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=FETCH_BYTES,
        )
        request = FetchRequest(
            max_bytes=FETCH_BYTES,
            topics=[FetchRequest.FetchTopic(topic_id=partition.topic_id, partitions=[wanted])],
        )
        response = await peer.call(request, FetchResponse, FETCH_VERSION)
        found = [one for topic in response.responses for one in topic.partitions]
        if response.error_code or len(found) != 1:
            # Without partitions: the broker throttles this one as it does its clients (KIP-219).
            code = response.error_code or ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise RequestError(ErrorCode(code))
        if found[0].error_code:
            raise RequestError(ErrorCode(found[0].error_code))
        return _EMPTY if found[0].records is None else memoryview(found[0].records)


def _nothing_from(peer: Peer, offset: int) -> str:
    return f"Broker {peer.node_id} has no whole batch at offset {offset} below its high watermark."


def _reason(peer: Peer, error: FlintError) -> str:
    if isinstance(error, RequestError):
        return f"Broker {peer.node_id}: {error.code.name}."
    if isinstance(error, CorruptionError):
        return f"Broker {peer.node_id}: {error}"
    return str(error)
