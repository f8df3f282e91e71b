"""`python -m bench.columnar`: rows per CPU-second from batches to columns, in this process alone.

Beside FlintMQ's decoder stands the plain reader of records, and, where numba is installed, the same decoder with a
walk compiled by it, and what it costs a process to have that: a Spark job's workers pay it each.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np

from flintmq.arrow.codec import record_ends, table
from flintmq.arrow.codec.decode import COLUMNS, decode
from flintmq.arrow.codec.record_spans import Spans
from flintmq.arrow.codec.varints import Positions, VarintPayload
from flintmq.records.batch import read_header
from flintmq.records.compression import Codec
from flintmq.records.record import Header, build_batch, records_of

_TIME_MS: Final = 1_700_000_000_000
_UNPACKED_MAX: Final = 1 << 30
_ALL_BUT_HEADERS: Final = COLUMNS[:-1]


class Shape(NamedTuple):
    name: str
    records: int
    """Of a batch."""
    value_size: int = 100
    key_size: int = 0
    headers: int = 0
    codec: Codec = Codec.NONE


SHAPES: Final = (
    Shape("16 KiB batches", 150),
    Shape("16 KiB batches, keys", 150, key_size=16),
    Shape("16 KiB batches, 2 headers", 130, headers=2),
    Shape("16 KiB batches, lz4", 150, codec=Codec.LZ4),
    Shape("16 KiB batches, zstd", 150, codec=Codec.ZSTD),
    Shape("1 MiB batches", 9500),
    Shape("1 MiB batches of 1 KiB", 1000, value_size=1024),
    Shape("single records", 1),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.columnar", description="Rows per CPU-second.")
    parser.add_argument("--mib", type=int, default=8, help="data that is decoded at once (8)")
    parser.add_argument("--rounds", type=int, default=10, help="how often; the best counts (10)")
    options = parser.parse_args(arguments)
    how = "compiled" if record_ends.IS_COMPILED else "not compiled"
    _say(f"Million rows per CPU-second, {options.mib} MiB at once, the one-by-one walk {how}.\n")
    readers = _readers()
    _say(f"| {'batches':26} | " + " | ".join(f"{name:>12}" for name in readers) + " |")
    _say(f"|{'-' * 28}|" + "|".join(f"{'-' * 13}:" for _ in readers) + "|")
    for shape in SHAPES:
        data, rows = _log(shape, options.mib << 20)
        figures = [rows / _best(read, data, options.rounds) / 1e6 for read in readers.values()]
        _say(f"| {shape.name:26} | " + " | ".join(f"{figure:12.2f}" for figure in figures) + " |")
    return 0


def _readers() -> dict[str, Callable[[bytes], object]]:
    readers: dict[str, Callable[[bytes], object]] = {
        "plain Python": _read_plainly,
        "all columns": lambda data: decode(data, topic="bench", partition=0),
        "no headers": lambda data: decode(data, topic="bench", partition=0, columns=_ALL_BUT_HEADERS),
        "value": lambda data: decode(data, topic="bench", partition=0, columns=("value",)),
        "offset": lambda data: decode(data, topic="bench", partition=0, columns=("offset",)),
    }
    if importlib.util.find_spec("numba") is not None:
        walk = _numba_walk()

        def with_numba(data: bytes) -> object:
            with patch.object(table, "walk", walk):
                return decode(data, topic="bench", partition=0, columns=_ALL_BUT_HEADERS)

        readers["with numba"] = with_numba
    return readers


def _read_plainly(data: bytes) -> object:
    columns: list[list[Any]] = [[], [], [], []]
    keys, values, offsets, times = columns
    position = 0
    while position < len(data):
        size = read_header(data, position).size
        for record in records_of(data[position : position + size], limit=_UNPACKED_MAX):
            keys.append(record.key)
            values.append(record.value)
            offsets.append(record.offset)
            times.append(record.timestamp)
        position += size
    return columns


def _numba_walk() -> Callable[[VarintPayload, Positions, Positions, Positions], Spans]:
    """The same walk without its checks, which flatters it."""
    started = time.process_time()
    compiled = importlib.import_module("numba").njit(nogil=True)(_walk_one_by_one)
    imported = time.process_time()

    def walk(payload: VarintPayload, starts: Positions, ends: Positions, counts: Positions) -> Spans:
        begins, behind = np.empty((2, int(counts.sum())), np.int64)
        compiled(payload.bytes, starts, counts, begins, behind)
        return Spans(begins, behind)

    none = np.zeros(0, np.int64)
    walk(VarintPayload(bytes(8)), none, none, none)
    _say(
        f"numba: {imported - started:.2f} CPU-s to import, {time.process_time() - imported:.2f} to compile.\n"
    )
    return walk


def _walk_one_by_one(data: Any, starts: Any, counts: Any, begins: Any, behind: Any) -> None:
    row = 0
    for batch in range(len(starts)):
        place = starts[batch]
        for _ in range(counts[batch]):
            begins[row] = place
            number = 0
            shift = 0
            byte = 0x80
            while byte >= 0x80:
                byte = int(data[place])
                place += 1
                number |= (byte & 0x7F) << shift
                shift += 7
            place += number >> 1
            behind[row] = place
            row += 1


def _log(shape: Shape, size: int) -> tuple[bytes, int]:
    """About `size` bytes of batches, and their count of records. Half of each value is noise."""
    source = Random(shape.name)
    headers: list[Header] = [(f"header-{number}", b"x" * 16) for number in range(shape.headers)]
    out = bytearray()
    offset = 0
    while len(out) < size:
        half = shape.value_size // 2
        out += build_batch(
            [
                (
                    source.randbytes(shape.key_size) if shape.key_size else None,
                    source.randbytes(half) + b"." * (shape.value_size - half),
                    _TIME_MS + offset + number,
                    headers,
                )
                for number in range(shape.records)
            ],
            base_offset=offset,
            codec=shape.codec,
        )
        offset += shape.records
    return bytes(out), offset


def _best(read: Callable[[bytes], object], data: bytes, rounds: int) -> float:
    read(data)
    times = []
    for _ in range(rounds):
        started = time.process_time()
        read(data)
        times.append(time.process_time() - started)
    return min(times)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
