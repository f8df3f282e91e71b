"""The broker's end of a simulated connection does what the real one does: responses in order, none for acks=0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flintmq.cluster.peers import read_response, request_frame
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
)
from flintmq.records.record import build_batch
from flintmq.testing.simulation.client import WorldClient, WorldProducer
from flintmq.testing.simulation.network import SimulatedConnection
from flintmq.testing.simulation.wires import broker_name
from flintmq.testing.simulation.world import World

_WAIT_S = 3.0


class Stage:
    """A topic, and a connection to its broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = WorldClient(world, "client")
        world.run_until(world.clients.spawn(self.client.create_topic("t")))
        self.connection: SimulatedConnection = world.run_until(
            world.clients.spawn(world.client_network.connect(1))
        )

    async def long_poll(self, offset: int = 0) -> tuple[float, int]:
        """Return when the response came, and the bytes of records in it."""
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=int(_WAIT_S * 1000),
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])],
        )
        response = await self.connection.request(request_frame(request, 12, 7, b"test"))
        found = read_response(response, 1, 12, 7, FetchResponse).responses[0].partitions[0]
        return self.world.timeline.now_s, len(found.records or b"")

    async def api_versions(self) -> float:
        """Return when the response came."""
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        response = await self.connection.request(request_frame(request, 3, 8, b"test"))
        assert not read_response(response, 18, 3, 8, ApiVersionsResponse).error_code
        return self.world.timeline.now_s

    def end_offset(self) -> int:
        core = self.world.brokers[1].core
        assert core is not None
        return core.log_dir.logs["t", 0].end_offset


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(9, brokers=1) as world:
        world.start()
        yield Stage(world)


def test_a_response_waits_for_those_of_earlier_requests(stage: Stage) -> None:
    world, began_s = stage.world, stage.world.timeline.now_s
    poll, after = world.clients.spawn(stage.long_poll()), world.clients.spawn(stage.api_versions())
    polled_s, size = world.run_until(poll)
    assert size == 0
    assert polled_s - began_s == pytest.approx(_WAIT_S, abs=0.1)
    assert world.run_until(after) >= polled_s


def test_a_parked_fetch_is_woken_by_an_append(stage: Stage) -> None:
    world, began_s = stage.world, stage.world.timeline.now_s
    poll = world.clients.spawn(stage.long_poll())
    world.run_for(0.5)
    assert not poll.done()
    world.run_until(world.clients.spawn(WorldProducer(stage.client).send("t", 0, [b"x"])))
    polled_s, size = world.run_until(poll)
    assert size > 0
    assert polled_s - began_s < 1.0


def test_a_parked_fetch_ends_with_its_connection(stage: Stage) -> None:
    world = stage.world
    poll = world.clients.spawn(stage.long_poll())
    world.run_for(0.5)
    core = world.brokers[1].core
    assert core is not None
    parked = core.services.parked_fetches
    assert parked.partitions == 1
    world.network.drop_connections(broker_name(1))
    world.run_for(0.1)
    assert isinstance(poll.exception(), ConnectionResetError)
    assert parked.partitions == 0


def test_a_produce_without_acks_has_no_response(stage: Stage) -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=build_batch([(None, b"x", 0, ())]))
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )
    stage.connection.send(request_frame(request, 12, 1, b"test"))
    stage.world.run_until(stage.world.clients.spawn(stage.api_versions()))
    assert stage.end_offset() == 1
