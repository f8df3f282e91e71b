"""Streams of batches from raw sockets: produced with five requests in flight, then fetched back.

CPU per GB counts the payload of the records, uncompressed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.figures import GB, MB, Figure, throughput
from bench.loads import (
    COMMON_FETCH_VERSION,
    COMMON_PRODUCE_VERSION,
    NEWEST_FETCH_VERSION,
    NEWEST_PRODUCE_VERSION,
    BatchShape,
    FetchLoad,
    ProduceLoad,
)
from bench.workloads.target import Target, Workload, producer_identity
from flintmq.records.compression import Codec

IN_FLIGHT: Final = 5

_REQUESTS_MIN: Final = 20
_WARM_SHARE: Final = 0.15
_FETCH_PASSES: Final = 3
"""A fetch costs so little that once would be over in a few ticks of the CPU clock."""
_SMALL, _LARGE = 16 * 1024, 128 * 1024
_SMALL_GOAL, _LARGE_GOAL, _SAFE_GOAL, _FETCH_GOAL = 0.45, 0.4, 0.47, 1.25
_TLS_GOAL, _TLS_FETCH_GOAL = 0.5, 0.7


@dataclass(frozen=True, slots=True)
class Stream:
    shape: BatchShape
    total_bytes: float
    goal_ratio: float | None = None
    acks: int = 1
    idempotent: bool = False
    newest: bool = False
    tls: bool = False
    fetched: bool = True
    """Off where a fetch would only repeat another workload's: a broker does not look at what it sends."""


def run_stream(stream: Stream, target: Target) -> list[Figure]:
    shape = stream.shape
    requests = target.scaled(stream.total_bytes / shape.payload_bytes, least=_REQUESTS_MIN)
    warm = max(10, int(requests * _WARM_SHARE))
    with target.topic() as topic, target.connect(tls=stream.tls) as connection:
        load = ProduceLoad(
            topic,
            shape,
            version=NEWEST_PRODUCE_VERSION if stream.newest else COMMON_PRODUCE_VERSION,
            acks=stream.acks,
            identity=producer_identity(connection) if stream.idempotent else None,
        )
        load.run(connection, warm, in_flight=IN_FLIGHT)
        with target.measured() as meter:
            load.run(connection, requests, in_flight=IN_FLIGHT)
        records = requests * shape.count
        figures = throughput(
            meter.cost,
            prefix="produce",
            records=records,
            payload_bytes=requests * shape.payload_bytes,
            goal_ratio=stream.goal_ratio,
        )
        if stream.fetched:
            records += warm * shape.count
            loads = [
                FetchLoad(
                    topic,
                    version=NEWEST_FETCH_VERSION if stream.newest else COMMON_FETCH_VERSION,
                    sessions=stream.newest,
                )
                for _ in range(_FETCH_PASSES)
            ]
            with target.measured() as meter:
                for one in loads:
                    one.run(connection, records)
            fetched = sum(one.records for one in loads)
            figures += throughput(
                meter.cost,
                prefix="fetch",
                records=fetched,
                payload_bytes=fetched * shape.record_bytes,
                goal_ratio=_TLS_FETCH_GOAL if stream.tls else None,
                machine_goal_ratio=None if stream.tls else _FETCH_GOAL,
            )
    return figures


def _workload(name: str, summary: str, stream: Stream) -> Workload:
    return Workload(name, summary, partial(run_stream, stream), needs_tls=stream.tls)


WORKLOADS: Final = (
    _workload(
        "raw-16k",
        "100 B records in 16 KiB batches, 5 in flight, 6 partitions; fetched back, 1 MiB a partition",
        Stream(BatchShape(100, _SMALL), 600 * MB, _SMALL_GOAL),
    ),
    _workload(
        "raw-128k",
        "the same in 128 KiB batches",
        Stream(BatchShape(100, _LARGE), 600 * MB, _LARGE_GOAL),
    ),
    _workload(
        "newest-16k",
        "raw-16k in the newest versions: Produce 13 with topic ids, Fetch 18 with topic ids and a session",
        Stream(BatchShape(100, _SMALL), 600 * MB, _SMALL_GOAL, newest=True),
    ),
    _workload(
        "newest-128k",
        "raw-128k in the newest versions",
        Stream(BatchShape(100, _LARGE), 600 * MB, _LARGE_GOAL, newest=True),
    ),
    _workload(
        "tls-16k",
        "raw-16k over TLS 1.3",
        Stream(BatchShape(100, _SMALL), 300 * MB, _TLS_GOAL, tls=True),
    ),
    _workload(
        "tls-128k",
        "raw-128k over TLS 1.3",
        Stream(BatchShape(100, _LARGE), 600 * MB, _TLS_GOAL, tls=True),
    ),
    _workload("1k-16k", "1 KiB records in 16 KiB batches", Stream(BatchShape(1024, _SMALL), GB)),
    _workload("1k-128k", "1 KiB records in 128 KiB batches", Stream(BatchShape(1024, _LARGE), GB)),
    _workload(
        "idempotent",
        "an idempotent producer with acks=all, 16 KiB batches",
        Stream(BatchShape(100, _SMALL), 300 * MB, _SAFE_GOAL, acks=-1, idempotent=True, fetched=False),
    ),
    _workload(
        "lz4",
        "100 B records in batches of 128 KiB, compressed with lz4 by the producer",
        Stream(BatchShape(100, _LARGE, Codec.LZ4), GB, _SAFE_GOAL, fetched=False),
    ),
    _workload(
        "zstd",
        "the same with zstd",
        Stream(BatchShape(100, _LARGE, Codec.ZSTD), GB, _SAFE_GOAL, fetched=False),
    ),
)
