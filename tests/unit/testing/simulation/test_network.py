"""Connections of a simulated cluster: real dispatchers at one end, and everything that can happen to a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from flintmq.cluster.peers import read_response, request_frame
from flintmq.effects import Network, PeerConnection
from flintmq.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from flintmq.testing.simulation.network import IN_FLIGHT_MAX, SimulatedConnection
from flintmq.testing.simulation.wires import CLIENTS, broker_name
from flintmq.testing.simulation.world import World

_VERSION = 3
_THERE, _BACK = (CLIENTS, broker_name(1)), (broker_name(1), CLIENTS)


@pytest.fixture
def world() -> Iterator[World]:
    with World(3, brokers=1) as world:
        world.start()
        yield world


def frame(correlation_id: int) -> bytes:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return request_frame(request, _VERSION, correlation_id, b"test")


async def ask(connection: PeerConnection, correlation_id: int) -> int:
    """Return the number of APIs in a response, which must be the one to this request."""
    response = await connection.request(frame(correlation_id))
    return len(read_response(response, 18, _VERSION, correlation_id, ApiVersionsResponse).api_keys)


def connect(world: World) -> SimulatedConnection:
    network: Network = world.client_network
    connection = world.run_until(world.clients.spawn(_awaited(network.connect(1))))
    assert isinstance(connection, SimulatedConnection)
    return connection


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def failure_of(world: World, work: Coroutine[Any, Any, object]) -> BaseException | None:
    task = world.clients.spawn(work)
    world.run_until_true(task.done, within_s=60)
    return task.exception()


def test_requests_are_answered_by_the_broker_in_their_order(world: World) -> None:
    connection = connect(world)

    async def many() -> list[int]:
        return await asyncio.gather(*(ask(connection, n) for n in range(20)))

    counts = world.run_until(world.clients.spawn(many()))
    assert len(set(counts)) == 1
    assert counts[0] > 40


def test_requests_in_flight_are_bounded(world: World) -> None:
    connection = connect(world)
    world.brokers[1].pause()
    tasks = [world.clients.spawn(ask(connection, n)) for n in range(IN_FLIGHT_MAX + 3)]
    world.run_for(1.0)
    frames = [line for line in world.trace.lines if " frame " in line and line.split()[1] == CLIENTS]
    assert len(frames) == IN_FLIGHT_MAX
    world.brokers[1].resume()
    for task in tasks:
        world.run_until(task)


def test_a_broker_that_does_not_run_refuses_and_a_machine_without_power_says_nothing(world: World) -> None:
    node = world.brokers[1]
    node.kill()
    began_s = world.timeline.now_s
    assert isinstance(failure_of(world, _awaited(world.client_network.connect(1))), ConnectionRefusedError)
    assert world.timeline.now_s - began_s < 0.1
    node.start()
    world.run_until_true(lambda: node.core is not None, within_s=10)
    node.lose_power()
    began_s = world.timeline.now_s
    assert isinstance(failure_of(world, _awaited(world.client_network.connect(1))), ConnectionError)
    assert world.timeline.now_s - began_s == pytest.approx(5.0)


@pytest.mark.parametrize(("die", "is_noticed_at_once"), [("kill", True), ("lose_power", False)])
def test_connections_end_with_the_process(world: World, die: str, is_noticed_at_once: bool) -> None:
    connection = connect(world)
    world.brokers[1].pause()
    waiting = world.clients.spawn(ask(connection, 1))
    world.run_for(0.5)
    began_s = world.timeline.now_s
    getattr(world.brokers[1], die)()
    world.run_until_true(waiting.done, within_s=60)
    assert isinstance(waiting.exception(), ConnectionResetError)
    assert (world.timeline.now_s - began_s < 0.1) == is_noticed_at_once
    assert isinstance(failure_of(world, ask(connection, 2)), ConnectionResetError)


def test_a_paused_broker_accepts_connections_and_answers_later(world: World) -> None:
    world.brokers[1].pause()
    connection = connect(world)
    task = world.clients.spawn(ask(connection, 1))
    world.run_for(3.0)
    assert not task.done()
    world.brokers[1].resume()
    assert world.run_until(task, within_s=1) > 40


def test_a_request_is_carried_out_though_its_response_is_lost(world: World) -> None:
    connection = connect(world)
    world.wires.block([_BACK])
    core = world.brokers[1].core
    assert core is not None
    before = core.counters.apis["ApiVersions"].requests
    task = world.clients.spawn(ask(connection, 1))
    world.run_for(30.0)
    assert core.counters.apis["ApiVersions"].requests == before + 1
    assert not task.done(), "nothing reaches the client, not even the end of the connection"
    world.wires.unblock([_BACK])
    world.run_for(1.0)
    assert isinstance(task.exception(), ConnectionResetError)


def test_a_request_over_a_link_that_opens_again_is_late_and_not_lost(world: World) -> None:
    connection = connect(world)
    world.wires.block([_THERE])
    task = world.clients.spawn(ask(connection, 1))
    world.run_for(0.9)
    assert not task.done()
    world.wires.unblock([_THERE])
    assert world.run_until(task, within_s=0.1) > 40


def test_a_link_that_stays_blocked_ends_the_connection(world: World) -> None:
    connection = connect(world)
    world.wires.block([_THERE])
    assert isinstance(failure_of(world, ask(connection, 1)), ConnectionResetError)
    world.wires.unblock([_THERE])
    world.run_for(1.0)
    assert isinstance(failure_of(world, ask(connection, 2)), ConnectionResetError)
    assert world.run_until(world.clients.spawn(ask(connect(world), 3))) > 40


@pytest.mark.parametrize("end", ["close", "drop"])
def test_waiting_requests_fail_when_the_connection_ends(world: World, end: str) -> None:
    connection = connect(world)
    world.brokers[1].pause()
    waiting = world.clients.spawn(ask(connection, 1))
    world.run_for(0.5)
    ends: dict[str, Callable[[], object]] = {
        "close": lambda: world.clients.post(connection.close),
        "drop": lambda: world.network.drop_connections(broker_name(1)),
    }
    ends[end]()
    world.run_for(0.1)
    assert isinstance(waiting.exception(), ConnectionResetError)


def test_a_response_to_a_request_that_was_given_up_is_not_taken_for_the_next(world: World) -> None:
    connection = connect(world)
    world.brokers[1].pause()
    given_up = world.clients.spawn(ask(connection, 1))
    world.run_for(0.1)
    world.clients.post(given_up.cancel)
    world.run_for(0.1)
    world.brokers[1].resume()
    assert world.run_until(world.clients.spawn(ask(connection, 2))) > 40


def test_a_dead_process_sends_nothing_more(world: World) -> None:
    connection = connect(world)
    world.run_for(0.1)
    count = world.trace.count
    world.clients.is_alive = False
    connection.send(frame(1))
    connection.close()
    while (due_s := world.timeline.next_s()) is not None and due_s < 0.5:
        world.step()
    assert not [line for line in list(world.trace.lines)[-(world.trace.count - count) :] if " frame" in line]


def test_a_frame_that_makes_no_sense_closes_the_connection(world: World) -> None:
    connection = connect(world)
    assert isinstance(failure_of(world, _awaited(connection.request(b"\x7f\xff"))), ConnectionResetError)
