"""Bytes that are no request, or a request that nobody would send (R5, Z5)."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from flintmq.broker.apis import APIS, BY_KEY, Api
from flintmq.protocol import messages
from flintmq.protocol.codec import encode
from flintmq.protocol.codegen.schema import Field
from flintmq.protocol.codegen.structures import Message
from support.broker.broker_process import BrokerProcess
from support.broker.hostile import watched
from support.wire.wire import Wire

MEGABYTE = 1 << 20
CLAIM = 90 * MEGABYTE
MANY_STALLS = 1000
_HEADER = struct.Struct(">hhih")


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header_of(key: int, version: int, *, client_id: bytes = b"hostile") -> bytes:
    return _HEADER.pack(key, version, 7, len(client_id)) + client_id


def is_closed_after(broker: BrokerProcess, data: bytes) -> bool:
    with Wire(broker.address) as wire:
        try:
            wire.sock.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return True
        return wire.is_closed_by_the_broker()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def twelve_million_tags() -> bytes:
    """A header whose tagged fields are all empty, each with a tag of its own."""
    claimed = varint(12_000_000)
    return framed(header_of(3, 12) + claimed + bytes(8 * MEGABYTE))


JUNK: dict[str, Callable[[], bytes]] = {
    "a length of 0": lambda: struct.pack(">i", 0),
    "a length of -1": lambda: struct.pack(">i", -1),
    "the smallest length": lambda: struct.pack(">i", -(1 << 31)),
    "the largest length": lambda: struct.pack(">i", (1 << 31) - 1) + bytes(1000),
    "one byte above the limit": lambda: struct.pack(">i", 100 * MEGABYTE + 1) + bytes(1000),
    "a length of 1": lambda: framed(b"\0"),
    "a header cut short": lambda: framed(header_of(3, 12)[:9]),
    "HTTP": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": lambda: bytes.fromhex("16030102000100") + bytes(500),
    "SSH": lambda: b"SSH-2.0-OpenSSH_9.9\r\n",
    "noise": lambda: random.Random(1).randbytes(100_000),
    "12 million tagged fields in a header": twelve_million_tags,
    "tags in the wrong order": lambda: framed(header_of(3, 12) + b"\x02\x05\0\x04\0"),
    "an unknown API": lambda: framed(header_of(9999, 0)),
    "an API that is not served": lambda: framed(header_of(4, 0) + bytes(100)),
    "a negative API": lambda: framed(header_of(-1, 0)),
    "a version too new": lambda: framed(header_of(3, 99) + bytes(100)),
    "a negative version": lambda: framed(header_of(3, -1) + bytes(100)),
    "a client id longer than the request": lambda: framed(_HEADER.pack(3, 1, 7, 32767) + b"x"),
    "100 MB that write no records": lambda: (
        struct.pack(">i", 100 * MEGABYTE) + header_of(3, 12) + bytes(100_000)
    ),
}


@pytest.mark.parametrize("what", JUNK)
def test_junk_closes_its_connection_only(broker: BrokerProcess, what: str) -> None:
    with watched(broker):
        for _ in range(5):
            assert is_closed_after(broker, JUNK[what]()), what
    assert "Traceback" not in broker.errors


def test_claims_of_90_mb_cost_what_was_sent(broker: BrokerProcess) -> None:
    """Sixty connections announce 90 MB each, send 1 KB and stop; then a thousand more."""
    begin = struct.pack(">i", CLAIM) + header_of(0, 9) + bytes(1000)
    with watched(broker, memory_max_kib=64 * 1024), ExitStack() as open_wires:
        wires = [open_wires.enter_context(Wire(broker.address)) for _ in range(60)]
        for wire in wires:
            wire.sock.sendall(begin)
        for _ in range(MANY_STALLS):
            wire = open_wires.enter_context(Wire(broker.address))
            wire.sock.sendall(begin)
        # They are still there: what they announced may yet come.
        assert wires[0].sock.send(bytes(1000)) == 1000


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_arrays_that_claim_two_thousand_million_entries_are_refused(broker: BrokerProcess, api: Api) -> None:
    """In every array of every API, in its oldest and its newest version."""
    request = messages.request_of(api.key)
    with watched(broker):
        for version in sorted(set(api.versions)):
            tags = b"\0" if version >= request.flexible else b""
            for body in with_huge_counts(request, version):
                assert is_closed_after(broker, framed(header_of(api.key, version) + tags + body))
    assert "Traceback" not in broker.errors


def with_huge_counts(cls: type[Message], version: int) -> Iterator[bytes]:
    """A message for each of its outermost arrays, cut off behind a count that lies."""
    marker = 0x5EED
    for field in cls.schema.structs[cls.__name__]:
        if not field.array or not field.present(version) or field.is_tagged(version):
            continue
        whole = encode(with_array(cls, field, marker), version)
        compact = version >= cls.flexible and field.compactable
        honest = varint(marker + 1) if compact else struct.pack(">i", marker)
        claimed = varint((1 << 31) - 1) if compact else struct.pack(">i", (1 << 31) - 1)
        at = whole.index(honest)
        yield whole[:at] + claimed + whole[at + len(honest) :][:1000]


def with_array(cls: type[Message], field: Field, size: int) -> Message:
    message = cls()
    element: Any = {"string": "", "uuid": bytes(16)}.get(field.kind, 0)
    setattr(message, field.name, [getattr(cls, field.struct)() if field.struct else element] * size)
    return message


def test_a_request_cut_short_and_closed_is_forgotten(broker: BrokerProcess) -> None:
    """At every length, with and without a word of farewell."""
    with Wire(broker.address) as wire:
        whole = wire.frame(messages.MetadataRequest(topics=None), 12, 1)
    with watched(broker):
        for size in range(len(whole)):
            for linger in (struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)):
                with Wire(broker.address) as wire:
                    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    wire.sock.sendall(whole[:size])


def test_the_same_request_ten_thousand_times_at_once_is_answered_as_often(broker: BrokerProcess) -> None:
    """One client pipelines far more than fits a turn, in few packets; the others have their turns."""
    repeats = 10_000
    with watched(broker), Wire(broker.address) as wire:
        frame = wire.frame(messages.ApiVersionsRequest(), 3, 1)
        wire.sock.settimeout(60)
        answers = 0
        left = memoryview(frame * repeats)
        wire.sock.setblocking(False)
        received = bytearray()
        while answers < repeats:
            if left:
                try:
                    left = left[wire.sock.send(left) :]
                except BlockingIOError:
                    pass
            try:
                received += wire.sock.recv(1 << 20)
            except BlockingIOError:
                continue
            while len(received) >= 4 and len(received) >= (size := 4 + int.from_bytes(received[:4], "big")):
                del received[:size]
                answers += 1


def test_a_version_too_new_of_api_versions_is_answered_in_version_0(broker: BrokerProcess) -> None:
    """KIP-511: the client must be able to learn what is served."""
    with Wire(broker.address) as wire:
        wire.sock.sendall(framed(header_of(18, 99) + b"\0"))
        answer = wire.receive_frame()
        assert struct.unpack_from(">ih", answer) == (7, 35)
        assert BY_KEY[18].versions == (0, 4)
