"""Requests to other brokers: each gets its own response, or fails."""

from __future__ import annotations

import asyncio
import struct

import pytest

from flintmq.cluster.peer_queue import PeerQueue
from flintmq.cluster.peers import Peer, PeerUnreachable
from flintmq.protocol.codec import decode, encode
from flintmq.protocol.messages import HeartbeatRequest, HeartbeatResponse

VERSION = 4


class Connection:
    """Answers with the generation of the group that the request names."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.is_open = True

    async def request(self, frame: bytes) -> bytes:
        self.network.sent.append(frame)
        if self.network.hangs:
            await asyncio.get_running_loop().create_future()
        if self.network.fails:
            raise ConnectionResetError("reset")
        _, _, correlation_id, size = struct.unpack_from(">hhih", frame)
        request, _ = decode(HeartbeatRequest, frame, VERSION, 10 + size + 1)
        response = HeartbeatResponse(throttle_time_ms=request.generation_id)
        return struct.pack(">ix", correlation_id + self.network.shift) + encode(response, VERSION)

    def close(self) -> None:
        self.is_open = False


class Network:
    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.sent: list[bytes] = []
        self.fails = self.hangs = False
        self.shift = 0

    async def connect(self, node_id: int) -> Connection:
        self.connections.append(Connection(self))
        return self.connections[-1]


async def beat(peer: Peer, generation: int) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=generation)
    return (await peer.call(request, HeartbeatResponse, VERSION)).throttle_time_ms


def test_calls_share_a_connection() -> None:
    async def run() -> None:
        network = Network()
        peer = Peer(network, 2, "tester")
        assert [await beat(peer, 5), await beat(peer, 6)] == [5, 6]
        assert len(network.connections) == 1

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["fails", "shift"])
def test_after_a_failure_the_next_call_connects_again(fault: str) -> None:
    async def run() -> None:
        network = Network()
        peer = Peer(network, 2, "tester")
        setattr(network, fault, True)
        with pytest.raises(PeerUnreachable, match="Broker 2"):
            await beat(peer, 5)
        setattr(network, fault, False)
        assert await beat(peer, 6) == 6
        assert [one.is_open for one in network.connections] == [False, True]

    asyncio.run(run())


def test_a_broker_that_does_not_answer_fails_the_call() -> None:
    async def run() -> None:
        network = Network()
        network.hangs = True
        with pytest.raises(PeerUnreachable):
            await beat(Peer(network, 2, "tester", timeout_s=0.01), 5)
        assert not network.connections[0].is_open

    asyncio.run(run())


def test_what_gathers_while_a_request_is_on_its_way_is_sent_together() -> None:
    async def run() -> None:
        batches: list[list[int]] = []
        failed: list[int] = []
        go_on, has_failed, is_sent = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def send(peer: Peer, batch: list[int]) -> None:
            batches.append(batch)
            await go_on.wait()
            if 3 in batch:
                raise PeerUnreachable("away")
            if 4 in batch:
                is_sent.set()

        def fail(item: int) -> None:
            failed.append(item)
            has_failed.set()

        queue = PeerQueue(Peer(Network(), 2, "tester"), send=send, fail=fail, items_per_request=2)
        queue.put(0)
        await asyncio.sleep(0)
        for item in (1, 2, 3):
            queue.put(item)
        go_on.set()
        await has_failed.wait()
        assert (batches, failed) == ([[0], [1, 2], [3]], [3])
        queue.put(4)
        await is_sent.wait()
        await queue.close()

    asyncio.run(run())
