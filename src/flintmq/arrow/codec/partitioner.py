"""Which partition each row goes to, as Java's client decides it, for a whole column at once.

Keys are hashed in lockstep: the first four bytes of every key in one step, then the next four of those that go on.
Rows without a key go to one partition for as many bytes as a batch takes, then to the next. This module must not
know topics.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.client.partitioner import murmur2

Hashes = npt.NDArray[np.uint32]
Partitions = npt.NDArray[np.int64]

NO_KEY: Final = -1

_SEED: Final = np.uint32(0x9747B28C)
_MIX: Final = np.uint32(0x5BD1E995)
_WORD: Final = 4
# Longer keys are hashed one by one: a step for all is wasted where only a few go on.
_LOCKSTEP_BYTES_MAX: Final = 256


def partitions_of_keys(keys: pa.Array, count: int) -> Partitions:
    """The partition of each key, of `count`; NO_KEY where there is none."""
    found = (murmur2_of(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    if keys.null_count:
        found[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return found


def murmur2_of(keys: pa.Array) -> Hashes:
    """The hash of each binary value; of a null, anything."""
    _, ends, data = keys.buffers()
    edges = np.frombuffer(ends, np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    starts, sizes = edges[:-1], np.diff(edges)
    words = _words(data)
    hashes = _SEED ^ sizes.astype(np.uint32)
    # The longest first, so that those that go on are always the front ones.
    short = np.flatnonzero(sizes <= _LOCKSTEP_BYTES_MAX)
    order = short[np.argsort(-(sizes[short] // _WORD), kind="stable")]
    counts = sizes[order] // _WORD
    mixed, positions = hashes[order], starts[order]
    for step in range(int(counts[0]) if len(counts) else 0):
        active = int(np.searchsorted(-counts, -step, side="left"))
        word = words[positions[:active] + step * _WORD] * _MIX
        word = (word ^ word >> np.uint32(24)) * _MIX
        mixed[:active] = mixed[:active] * _MIX ^ word
    rest = sizes[order] % _WORD
    tail = words[positions + counts * _WORD] & ((np.uint32(1) << (rest * 8).astype(np.uint32)) - np.uint32(1))
    mixed = np.where(rest > 0, (mixed ^ tail) * _MIX, mixed)
    hashes[order] = _finished(mixed)
    for at in np.flatnonzero(sizes > _LOCKSTEP_BYTES_MAX).tolist():
        hashes[at] = murmur2(data[int(edges[at]) : int(edges[at + 1])].to_pybytes())
    return hashes


def _words(data: pa.Buffer | None) -> Hashes:
    """The four bytes that begin at each byte of the buffer, and as many zeros behind its end."""
    content = b"" if data is None else data
    padded = np.zeros(len(content) + 2 * _WORD, np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    return np.ndarray((len(padded) - _WORD + 1,), "<u4", buffer=padded, strides=(1,))


def _finished(mixed: Hashes) -> Hashes:
    mixed = (mixed ^ mixed >> np.uint32(13)) * _MIX
    return mixed ^ mixed >> np.uint32(15)


class Spread:
    """Partitions for rows without a key: each takes about `batch_bytes`, then the next one's turn comes."""

    def __init__(self, count: int, *, batch_bytes: int, first: int) -> None:
        self._count = count
        self._batch_bytes = batch_bytes
        self._at = first % count

    def take(self, sizes: npt.NDArray[np.int64]) -> Partitions:
        """For rows of these sizes. The last partition of this call is not the first of the next one."""
        chunks = (np.cumsum(sizes) - sizes) // self._batch_bytes
        partitions = (self._at + chunks) % self._count
        self._at = int(self._at + chunks.max(initial=-1) + 1) % self._count
        return partitions
