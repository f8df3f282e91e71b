"""The control record that ends a transaction in a partition (KIP-98)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from flintmq.errors import CorruptionError
from flintmq.records.record import build_batch

ABORT, COMMIT = 0, 1

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class Marker(NamedTuple):
    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool


def marker_batch(marker: Marker, now_ms: int) -> bytes:
    key = _KEY.pack(_VERSION, COMMIT if marker.committed else ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [(key, value, now_ms, ())],
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
        is_transactional=True,
        is_control=True,
    )


def control_type(key: bytes | None) -> int:
    """ABORT, COMMIT or something that no reader needs to know. CorruptionError if the key is cut short."""
    if key is None or len(key) < _KEY.size:
        raise CorruptionError("A control record has no key that tells what it is.")
    return int(_KEY.unpack_from(key)[1])


def coordinator_epoch(value: bytes | None) -> int:
    """Of the one who wrote a marker. CorruptionError if the value is cut short."""
    if value is None or len(value) < _VALUE.size:
        raise CorruptionError("A marker has no value that tells who wrote it.")
    return int(_VALUE.unpack_from(value)[1])
