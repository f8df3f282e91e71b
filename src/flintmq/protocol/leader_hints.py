"""Where a partition is led now, in responses to clients that asked the wrong broker (KIP-951).

Produce and Fetch are encoded by hand; these are the tagged fields that both have. Byte for byte what the generated
codec writes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from flintmq.records.varint import append_unsigned

_TWO_INT32: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_CURRENT_LEADER_SIZE: Final = 9


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def append_current_leader(out: bytearray, tag: int, current_leader: tuple[int, int]) -> None:
    """Append the tagged field `current_leader`: the leader's id and its epoch."""
    out.append(tag)
    out.append(_CURRENT_LEADER_SIZE)
    out += _TWO_INT32.pack(*current_leader)
    out.append(0)


def append_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    """Append the tagged fields of a whole response: `node_endpoints`, or none."""
    if not endpoints:
        out.append(0)
        return
    body = bytearray()
    append_unsigned(body, len(endpoints) + 1)
    for node_id, host, port, rack in endpoints:
        body += _INT32.pack(node_id)
        _append_text(body, host)
        body += _INT32.pack(port)
        _append_text(body, rack)
        body.append(0)
    out += b"\x01\x00"
    append_unsigned(out, len(body))
    out += body


def _append_text(out: bytearray, text: str | None) -> None:
    data = None if text is None else text.encode()
    append_unsigned(out, 0 if data is None else len(data) + 1)
    out += data or b""
