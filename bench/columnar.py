"""`python -m bench.columnar`: rows per CPU-second from batches to columns, in this process alone.

Beside FlintMQ's decoder stands the plain reader of records. With FLINTMQ_COMPILED the decoder is the compiled one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from flintmq.arrow.codec import record_fields
from flintmq.arrow.codec.decode import COLUMNS, decode
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
    how = "compiled" if record_fields.IS_COMPILED else "uncompiled"
    _say(f"Million rows per CPU-second, {options.mib} MiB at once, {how}.\n")
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
