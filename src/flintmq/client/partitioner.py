"""Which partition a record goes to, as Java's client decides it. Pure.

A key's partition is its murmur2 hash, so records of one key written by different clients meet. Records
without a key stick to one partition for as many bytes as a batch takes, then to the next (KIP-480, KIP-794):
few large batches instead of many small ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SEED: Final = 0x9747B28C
_MIX: Final = 0x5BD1E995
_UINT32: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned number; Java's is the same 32 bits with a sign."""
    size = len(data)
    mixed = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MIX & _UINT32
        word = (word ^ word >> 24) * _MIX & _UINT32
        mixed = (mixed * _MIX & _UINT32) ^ word
    if whole < size:
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MIX & _UINT32
    mixed = (mixed ^ mixed >> 13) * _MIX & _UINT32
    return mixed ^ mixed >> 15


def partition_of_key(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count


class StickyPartition:
    """The partition for records without a key. `first` spreads clients over the partitions."""

    def __init__(self, partitions: Sequence[int], *, sticky_bytes: int, first: int = 0) -> None:
        self._partitions = list(partitions)
        self._at = first % len(self._partitions)
        self._sticky_bytes = sticky_bytes
        self._used_bytes = 0

    def take(self, size: int) -> int:
        """The partition for a record of `size` bytes."""
        if self._used_bytes and self._used_bytes + size > self._sticky_bytes:
            self._at = (self._at + 1) % len(self._partitions)
            self._used_bytes = 0
        self._used_bytes += size
        return self._partitions[self._at]
