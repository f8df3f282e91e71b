"""Frames out of bytes, without a socket."""

from __future__ import annotations

import struct

import pytest

from flintmq.errors import ProtocolError
from flintmq.server.inbound import GROWTH_MIN, FrameBuffer, frame_size

LIMIT = 100 * 1024 * 1024


def feed(buffer: FrameBuffer, data: bytes) -> bool:
    """Receive `data` as the loop would, in as many steps as the buffer wants."""
    position, complete = 0, False
    while position < len(data):
        assert not complete
        if buffer.needs_room():
            buffer.grow()
        room = buffer.writable()
        size = min(len(room), len(data) - position)
        room[:size] = data[position : position + size]
        complete = buffer.received(size)
        position += size
    return complete


@pytest.mark.parametrize("size", [1, 3, 4, 1000, GROWTH_MIN - 4, GROWTH_MIN, GROWTH_MIN + 1, 1_000_000])
@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
def test_a_frame_is_whole_however_it_begins(size: int, first: int) -> None:
    body = bytes(i % 251 for i in range(size))
    data = struct.pack(">i", size) + body
    buffer = FrameBuffer(LIMIT)
    buffer.start(memoryview(data[:first]))
    assert feed(buffer, data[first:]) or first == len(data)
    assert buffer.frame() == body
    assert buffer.whole() == data


def test_a_length_that_is_only_claimed_costs_nothing() -> None:
    buffer = FrameBuffer(LIMIT)
    buffer.start(memoryview(struct.pack(">i", 90 * 1024 * 1024) + bytes(1000)))
    buffer.grow()
    assert len(buffer.data) == GROWTH_MIN


def test_a_buffer_grows_by_no_more_than_has_arrived() -> None:
    buffer = FrameBuffer(LIMIT)
    buffer.start(memoryview(struct.pack(">i", 10 * 1024 * 1024)))
    while buffer.filled < buffer.total:
        if buffer.needs_room():
            before = buffer.filled
            buffer.grow()
            assert len(buffer.data) <= max(GROWTH_MIN, 2 * before)
        buffer.received(min(len(buffer.writable()), 10_000))
    assert len(buffer.data) == buffer.total


def test_a_buffer_is_used_again_and_never_filled_past_its_frame() -> None:
    buffer = FrameBuffer(LIMIT)
    large = struct.pack(">i", 1000) + b"x" * 1000
    buffer.start(memoryview(large[:10]))
    assert feed(buffer, large[10:])
    kept = buffer.data
    small = struct.pack(">i", 20) + b"y" * 20
    buffer.start(memoryview(small[:2]))
    assert buffer.data is kept
    assert len(buffer.writable()) == 2
    assert feed(buffer, small[2:])
    assert buffer.frame() == b"y" * 20
    buffer.clear()
    assert len(buffer.data) == 0


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_impossible_lengths_are_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=r"socket\.request\.max\.bytes"):
        frame_size(memoryview(struct.pack(">i", size)), 0, 1000)


@pytest.mark.parametrize("size", [1, 1000])
def test_lengths_up_to_the_limit_are_taken(size: int) -> None:
    assert frame_size(memoryview(b"..." + struct.pack(">i", size)), 3, 1000) == size


@pytest.mark.parametrize("begin", [b"GET /", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE"])
def test_http_is_called_by_its_name(begin: bytes) -> None:
    with pytest.raises(ProtocolError, match="HTTP"):
        frame_size(memoryview(begin), 0, LIMIT)


def test_tls_is_called_by_its_name() -> None:
    with pytest.raises(ProtocolError, match="TLS"):
        frame_size(memoryview(b"\x16\x03\x01\x02\x00"), 0, LIMIT)
