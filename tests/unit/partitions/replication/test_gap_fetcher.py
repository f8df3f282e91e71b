"""One replica after another is asked for what is missing, as by a consumer (S5, KIP-392)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from flintmq.effects import Buffer
from flintmq.errors import ErrorCode
from flintmq.partitions.replication.fetcher import FETCH_VERSION
from flintmq.partitions.replication.gap_fetcher import FETCH_BYTES, GapFetcher, NoSoundReplica
from flintmq.protocol.codec import decode, encode_into
from flintmq.protocol.messages import FetchRequest, FetchResponse
from flintmq.records.batch import assign_offsets
from flintmq.records.record import build_batch
from flintmq.storage.repair.sound_batches import Gap
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

_HEADER_SIZE = 10
EPOCH = 0


@pytest.fixture
def broker() -> Iterator[SingleBroker]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        started = SingleBroker(loop, {}, SimulatedDisk(seed=SEED, journaling=False))
        started.create("t")
        yield started
        started.close()


def batch_at(offset: int) -> bytes:
    batch = bytearray(build_batch([(None, b"%d" % offset, 0, ())]))
    assign_offsets(memoryview(batch), offset, EPOCH)
    return bytes(batch)


class ScriptedReplica:
    """Has batches by offset, or an error for one."""

    def __init__(self, batches: dict[int, bytes | ErrorCode]) -> None:
        self.batches = batches
        self.requests: list[FetchRequest] = []

    async def request(self, frame: bytes) -> Buffer:
        (correlation_id, client_id_size) = struct.unpack_from(">ih", frame, 4)
        request = decode(FetchRequest, frame, FETCH_VERSION, _HEADER_SIZE + client_id_size + 1)[0]
        self.requests.append(request)
        wanted = request.topics[0].partitions[0]
        found = self.batches.get(wanted.fetch_offset, b"")
        data = FetchResponse.PartitionData(
            partition_index=wanted.partition,
            error_code=found if isinstance(found, ErrorCode) else 0,
            records=None if isinstance(found, ErrorCode) else found,
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[data])
        out = bytearray(struct.pack(">ib", correlation_id, 0))
        encode_into(FetchResponse(responses=[topic]), FETCH_VERSION, out)
        return bytes(out)

    def close(self) -> None:
        """Nothing is open."""


class ScriptedNetwork:
    def __init__(self, replicas: dict[int, ScriptedReplica]) -> None:
        self.replicas = replicas

    async def connect(self, node_id: int) -> ScriptedReplica:
        if node_id not in self.replicas:
            raise ConnectionRefusedError(f"broker {node_id} is away")
        return self.replicas[node_id]


def fetch(
    broker: SingleBroker, replicas: dict[int, dict[int, Any]], *, sources: list[int] | None = None
) -> tuple[list[int], list[bytes], dict[int, ScriptedReplica]]:
    """Fetch the offsets from 4 to 6; return the brokers, what was written, and what was asked."""
    scripted = {node: ScriptedReplica(batches) for node, batches in replicas.items()}
    written: list[bytes] = []

    async def write(batches: memoryview) -> None:
        written.append(bytes(batches))
        await asyncio.sleep(0)

    async def run() -> list[int]:
        partition = broker.partition("t")
        fetcher = GapFetcher(partition, sources or list(scripted), ScriptedNetwork(scripted), timeout_s=5.0)
        try:
            await fetcher.check(4)
            return await fetcher.fetch(Gap(4, 7), start_offset=0, write=write)
        finally:
            fetcher.close()

    return broker.loop.run_until_complete(run()), written, scripted


def test_a_gap_is_fetched_in_pieces_as_by_a_consumer(broker: SingleBroker) -> None:
    brokers, written, asked = fetch(broker, {2: {4: batch_at(4), 5: batch_at(5) + batch_at(6) + batch_at(7)}})
    assert brokers == [2]
    assert written == [batch_at(4), batch_at(5) + batch_at(6)]
    request = asked[2].requests[-1]
    assert request.replica_state.replica_id == -1
    assert request.isolation_level == 0
    assert request.max_bytes == FETCH_BYTES
    assert request.topics[0].partitions[0].current_leader_epoch == broker.partition("t").leader_epoch


def test_the_next_replica_goes_on_where_the_one_before_fails(broker: SingleBroker) -> None:
    damaged = bytearray(batch_at(5))
    damaged[-1] ^= 1
    first = {4: batch_at(4), 5: bytes(damaged)}
    second = {5: batch_at(5), 6: ErrorCode.CORRUPT_MESSAGE}
    brokers, written, asked = fetch(broker, {2: first, 3: second, 4: {6: batch_at(6)}})
    assert brokers == [2, 3, 4]
    assert written == [batch_at(4), batch_at(5), batch_at(6)]
    assert [one.topics[0].partitions[0].fetch_offset for one in asked[4].requests] == [6]


def test_every_reason_is_given_if_no_replica_has_it(broker: SingleBroker) -> None:
    with pytest.raises(NoSoundReplica) as failure:
        fetch(broker, {2: {4: ErrorCode.CORRUPT_MESSAGE}, 3: {}}, sources=[2, 3, 9])
    assert "Broker 2: CORRUPT_MESSAGE." in str(failure.value)
    assert "Broker 3 has no whole batch at offset 4" in str(failure.value)
    assert "Broker 9 did not answer" in str(failure.value)


def test_a_gap_that_is_filled_in_part_is_not_filled(broker: SingleBroker) -> None:
    with pytest.raises(NoSoundReplica, match="Broker 2 has no whole batch at offset 5"):
        fetch(broker, {2: {4: batch_at(4)}})
