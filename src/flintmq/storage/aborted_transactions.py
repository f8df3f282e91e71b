"""Aborted transactions, as the log remembers them for those who read committed records only (KIP-98).

An entry stands with the segment that holds its marker: in memory, and in its `.txnindex`, in Kafka's format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from flintmq.errors import CorruptionError

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Its marker's."""
    last_stable_offset: int
    """Where the log was stable once the marker was there: no entry after this one begins below it."""


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in transactions)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """CorruptionError if that is no index. There is no CRC, so what cannot be is looked for."""
    if len(data) % _ENTRY.size:
        raise CorruptionError(f"A transaction index of {len(data)} bytes is cut short.")
    found: list[AbortedTransaction] = []
    marker_before = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptionError(f"A transaction index has version {version}; {_VERSION} is known.")
        one = AbortedTransaction(*fields)
        if not (0 <= one.first_offset < one.last_offset and marker_before < one.last_offset):
            raise CorruptionError("A transaction index is not in order.")
        marker_before = one.last_offset
        found.append(one)
    return found
