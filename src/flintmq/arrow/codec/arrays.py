"""Arrow arrays of what was found in a payload.

Everything is copied out of the payload, so that an array outlives the buffer that a batch was read from.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.arrow.codec.fields import Strings
from flintmq.arrow.codec.headers import Headers
from flintmq.arrow.codec.varints import Flags, VarintPayload

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS: Final = pa.list_(HEADER)
TIMESTAMP: Final = pa.timestamp("us", "UTC")

# Microseconds in 64 bits; a time outside of it becomes the nearest one.
_TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // 1000


def binary(payload: VarintPayload, strings: Strings) -> Any:
    count = len(strings.nulls)
    if strings.nulls.all():
        return pa.nulls(count, pa.binary())
    # What is wanted, and in turn what lies between: every second element is taken.
    positions = pa.py_buffer(strings.positions)
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, positions, pa.py_buffer(payload.bytes)])
    every_second = numbers(np.arange(0, 2 * count, 2, dtype=np.int32))
    taken = pc.take(both, every_second, boundscheck=False)
    if not strings.nulls.any():
        return taken
    _, offsets, content = taken.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [_validity(strings.nulls), offsets, content])


def numbers(values: npt.NDArray[Any]) -> Any:
    """`pa.array` does the same, but imports pandas first, which takes a worker longer than many a task."""
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, content])


def text(content: Any) -> Any:
    """Binary as strings; what is not UTF-8 is replaced, as Java does it."""
    try:
        return content.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", "replace") for one in content.to_pylist()], pa.string())


def headers(payload: VarintPayload, counts: npt.NDArray[np.int64], found: Headers) -> Any:
    """A list for each record; null if it has no header, as in Spark's Kafka source."""
    entries = pa.StructArray.from_arrays(
        [text(binary(payload, found.keys)), binary(payload, found.values)], fields=list(HEADER)
    )
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    buffers = [_validity(counts == 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(HEADERS, len(counts), buffers, children=[entries])


def repeated_text(value: str, count: int) -> Any:
    content = value.encode()
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(len(content)))
    return pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(content * count)])


def timestamps(milliseconds: npt.NDArray[np.int64]) -> Any:
    if len(milliseconds) and (
        milliseconds.max() > _TIMESTAMP_MS_MAX or milliseconds.min() < -_TIMESTAMP_MS_MAX
    ):
        milliseconds = milliseconds.clip(-_TIMESTAMP_MS_MAX, _TIMESTAMP_MS_MAX)
    return pa.Array.from_buffers(TIMESTAMP, len(milliseconds), [None, pa.py_buffer(milliseconds * 1000)])


def _validity(nulls: Flags) -> Any:
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))
