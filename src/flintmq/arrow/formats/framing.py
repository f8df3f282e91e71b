"""The frame that Confluent's serializers put before a value: a zero, and the id of its schema. Pure.

Behind those five bytes Protobuf has the way to the message in its file, as numbers: `unpack_indexes`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flintmq.records.varint import read_varint

PREFIX_SIZE: Final = 5
_INDEXES_MAX: Final = 64
NO_FRAME: Final = -1
NO_VALUE: Final = -2


def ids_of(values: pa.BinaryArray) -> npt.NDArray[np.int64]:
    """The schema's id of each value; NO_FRAME where there is no frame, NO_VALUE where the value is null."""
    _, value_offsets, data = values.buffers()
    offsets = np.frombuffer(value_offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    ids = np.full(len(values), NO_FRAME, np.int64)
    is_there = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
    ids[~is_there] = NO_VALUE
    long_enough = np.flatnonzero(is_there & (np.diff(offsets) >= PREFIX_SIZE))
    if len(long_enough):
        content = np.frombuffer(data, np.uint8)
        framed = long_enough[content[offsets[long_enough]] == 0]
        starts = offsets[framed]
        ids[framed] = (
            content[starts + 1].astype(np.int64) << 24
            | content[starts + 2].astype(np.int64) << 16
            | content[starts + 3].astype(np.int64) << 8
            | content[starts + 4]
        )
    return ids


def bodies_of(values: pa.BinaryArray) -> pa.BinaryArray:
    """What is behind the frames, of values that all have one."""
    # Not `binary_slice`: Arrow 26 refuses some arrays there, with "Negative buffer resize".
    _, value_offsets, data = values.buffers()
    offsets = np.frombuffer(value_offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    is_body = np.ones(len(content), np.bool_)
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    is_body[(starts[:, None] + np.arange(PREFIX_SIZE)).ravel()] = False
    ends = offsets - offsets[0] - np.arange(len(offsets), dtype=np.int32) * PREFIX_SIZE
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(content[is_body])]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)


def unpack_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """The message's place in its file, and where the message begins. ValueError if there is no such place."""
    try:
        count, at = read_varint(body, 0, 32)
        if count == 0:
            return (0,), at
        if not 0 < count <= _INDEXES_MAX:
            raise ValueError(f"the place of its message has {count} parts")
        indexes = []
        for _ in range(count):
            index, at = read_varint(body, at, 32)
            indexes.append(index)
    except (IndexError, OverflowError):
        raise ValueError("the place of its message is cut off") from None
    return tuple(indexes), at
