"""A client that misbehaves a thousand times is named, and does not fill the log (R5, S11)."""

from __future__ import annotations

import struct

from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.wire.wire import Wire, batch_of

TIMES = 1000


def test_log_lines_about_bad_clients_are_few_and_name_the_peer(own_broker: BrokerProcess) -> None:
    with watched(own_broker):
        for number in range(TIMES):
            with Wire(own_broker.address) as wire:
                wire.sock.sendall(
                    struct.pack(">i", -1) if number % 2 else struct.pack(">ihhih", 10, 9999, 0, 1, -1)
                )
                assert wire.is_closed_by_the_broker()
    lines = [line for line in own_broker.error_log.read_text().splitlines() if "WARNING" in line]
    assert 2 <= len(lines) < TIMES / 20
    assert all("127.0.0.1" in line for line in lines)


def test_what_a_client_sends_cannot_forge_a_line(own_broker: BrokerProcess) -> None:
    """Names and ids that hold line breaks stay inside the line that quotes them."""
    forged = "x\n2030-01-01 00:00:00,000 CRITICAL flintmq: all is lost"
    with watched(own_broker), Wire(own_broker.address) as wire:
        wire.metadata(forged, create=True)
        wire.produce(forged, batch_of(b"x"))
        data = forged.encode()
        wire.sock.sendall(struct.pack(">ihhih", 10 + len(data), 9999, 0, 1, len(data)) + data)
        assert wire.is_closed_by_the_broker()
    assert not any(line.startswith("2030-01-01") for line in own_broker.error_log.read_text().splitlines())
