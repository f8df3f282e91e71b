"""Every API and version with mutated bodies, pipelined at random, with closes in the middle (R5)."""

from __future__ import annotations

import os
import random
import socket
import struct

import pytest

from flintmq.broker.apis import APIS
from flintmq.protocol.messages import ApiVersionsRequest
from hostile.mutations import TARGET, Mutations
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.wire.wire import Wire

SEED = int(os.environ.get("FLINT_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
FRAMES, FRAMES_LONG = 20_000, 1_000_000
SENTINEL = 1 << 30
PARKED_S = 1.0
_ABORT = struct.pack("ii", 1, 0)


def bombard(broker: BrokerProcess, frames: int) -> None:
    """Every connection gets a few frames and a last one that is sound, and must be answered or closed."""
    chance = random.Random(SEED)
    mutations = Mutations(SEED)
    sent = answered = closed = 0
    while sent < frames:
        with Wire(broker.address) as wire:
            pipelined = chance.choice((1, 1, 2, 3, 8))
            data = b"".join(
                mutations.frame(number, APIS[sent + number] if sent + number < len(APIS) else None)
                for number in range(pipelined)
            )
            sent += pipelined
            data += wire.frame(ApiVersionsRequest(), 0, SENTINEL)
            if chance.random() < 0.1:
                # Gone in the middle, politely or not; what was asked for is answered to nobody.
                if chance.random() < 0.5:
                    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                wire.sock.sendall(data[: chance.randrange(len(data))])
                continue
            wire.sock.settimeout(PARKED_S)
            try:
                wire.sock.sendall(data)
                while struct.unpack_from(">i", wire.receive_frame())[0] != SENTINEL:
                    pass
                answered += 1
            except (EOFError, ConnectionResetError, BrokenPipeError):
                closed += 1
            except TimeoutError:
                continue  # a fetch that a mutation made very patient
    assert answered > frames / 50, "the mutations leave nothing sound: the test tests nothing"
    assert closed > frames / 50


def test_mutated_requests_are_answered_or_close_their_connection(own_broker: BrokerProcess) -> None:
    print(f"FLINT_SEED={SEED}")
    with Wire(own_broker.address) as wire:
        wire.create_topic(TARGET, partitions=4)
    with watched(own_broker):
        bombard(own_broker, FRAMES)
    assert "Traceback" not in own_broker.error_log.read_text()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_mutated_requests(own_broker: BrokerProcess) -> None:
    print(f"FLINT_SEED={SEED}")
    with Wire(own_broker.address) as wire:
        wire.create_topic(TARGET, partitions=4)
    with watched(own_broker):
        bombard(own_broker, FRAMES_LONG)
    assert "Traceback" not in own_broker.error_log.read_text()
