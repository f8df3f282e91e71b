"""Start, memory, idleness and recovery: most of it on a broker started for the purpose.

Memory is resident anonymous memory: mapped files are the page cache's, which both brokers leave to the kernel.
"""

from __future__ import annotations

import resource
import time
from typing import Final

from bench.figures import GB, Figure, Kind, cpu
from bench.loads import BatchShape, ProduceLoad, Topic
from bench.process import METADATA_VERSION
from bench.wire import Connection
from bench.workloads.streams import IN_FLIGHT
from bench.workloads.target import PARTITIONS, Target, Workload, create_topics, end_offsets, wait_until_led
from flintmq.errors import ProtocolError
from flintmq.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

_MIB: Final = 1024 * 1024
_SETTLE_S: Final = 1.0
_IDLE_S: Final = 10.0
_IDLE_S_MIN: Final = 0.5
_CONNECTIONS: Final = 1_000
_RECORDS: Final = BatchShape(1024, 16 * 1024)
_RECOVERED: Final = BatchShape(1024, 128 * 1024)
_RECOVERY_TIMEOUT_S: Final = 600.0


def _start(target: Target) -> list[Figure]:
    with target.fresh() as (fresh, start_s):
        cpu_s = fresh.broker.cpu_s()
    return [
        Figure("to the first Metadata answer", start_s * 1e3, "ms", Kind.WALL, goal_ratio=0.05, goal=300.0),
        cpu("CPU", cpu_s, per=1),
    ]


def _memory(target: Target) -> list[Figure]:
    requests = target.scaled(GB / _RECORDS.payload_bytes, least=20)
    with target.fresh() as (fresh, _):
        _settle(target)
        before = fresh.broker.anonymous_bytes()
        with fresh.topic() as topic, fresh.connect() as connection:
            ProduceLoad(topic, _RECORDS).run(connection, requests, in_flight=IN_FLIGHT)
            after = fresh.broker.anonymous_bytes()
    return [
        Figure("fresh", before / _MIB, "MiB", Kind.MEMORY, goal_ratio=0.15),
        Figure("after the writes", after / _MIB, "MiB", Kind.MEMORY, goal_ratio=0.15),
        Figure("written", requests * _RECORDS.payload_bytes / GB, "GB", Kind.COUNT, lower_is_better=False),
    ]


def _idle(target: Target) -> list[Figure]:
    _settle(target)
    with target.measured() as meter:
        time.sleep(max(_IDLE_S_MIN, _IDLE_S * min(1.0, target.scale)))
    return [Figure("CPU", meter.cost.broker_cpu_s / meter.cost.wall_s * 100, "%", Kind.CPU, goal=0.2)]


def _idle_connections(target: Target) -> list[Figure]:
    count = min(_CONNECTIONS, target.scaled(_CONNECTIONS, least=20))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections: list[Connection] = []
    with target.fresh() as (fresh, _):
        # The first ones compile codecs and fill caches that every later one shares.
        _greet(fresh)[0].close()
        _settle(target)
        before = fresh.broker.anonymous_bytes()
        try:
            with fresh.measured() as meter:
                for _ in range(count):
                    connections += _greet(fresh)
            _settle(target)
            after = fresh.broker.anonymous_bytes()
        finally:
            for connection in connections:
                connection.close()
    return [
        Figure("memory for each", (after - before) / count / 1e3, "kB", Kind.MEMORY, goal=12.0),
        cpu("CPU to connect", meter.cost.broker_cpu_s, per=count / 1e6, unit="µs"),
        Figure("connections", count, "", Kind.COUNT, lower_is_better=False),
    ]


def _greet(target: Target) -> list[Connection]:
    """A client as it waits for work: it has asked for versions and for metadata."""
    connection = target.connect(buffer_bytes=4096)
    connection.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    connection.call(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
    return [connection]


def _recovery(target: Target) -> list[Figure]:
    """Fill, kill -9, start; ready when every partition tells the end it had."""
    requests = max(PARTITIONS, int(target.recovery_gb * GB / _RECOVERED.payload_bytes))
    with target.fresh() as (fresh, _):
        start_cpu_s = fresh.broker.cpu_s()
        with fresh.connect() as connection:
            (topic,) = create_topics(connection, ["bench-recovery"], PARTITIONS)
            wait_until_led(connection, topic)
            ProduceLoad(topic, _RECOVERED).run(connection, requests, in_flight=IN_FLIGHT)
            expected = end_offsets(connection, topic)
        if expected is None or sum(expected) != requests * _RECOVERED.count:
            raise AssertionError(f"the ends before the crash are {expected}")
        fresh.broker.kill()
        began = time.monotonic()
        fresh.broker.start()
        while _ends(fresh, topic) != expected:
            if time.monotonic() - began > _RECOVERY_TIMEOUT_S:
                raise TimeoutError("not all records came back")
            time.sleep(0.005)
        recovery_s = time.monotonic() - began
        cpu_s = fresh.broker.cpu_s()
    return [
        Figure("kill -9 to all ends known", recovery_s, "s", Kind.WALL, goal_ratio=0.5),
        cpu("CPU", cpu_s, per=1),
        # Waiting is not in it: Kafka lets its own earlier registration run out before it serves.
        cpu("CPU beyond a plain start", max(0.0, cpu_s - start_cpu_s), per=1, goal_ratio=0.5),
        Figure(
            "written before",
            requests * _RECOVERED.payload_bytes / GB,
            "GB",
            Kind.COUNT,
            lower_is_better=False,
        ),
    ]


def _ends(target: Target, topic: Topic) -> list[int] | None:
    try:
        with target.connect() as connection:
            return end_offsets(connection, topic)
    except (OSError, ProtocolError):
        return None


def _settle(target: Target) -> None:
    """Let what the start or the last workload left behind come to rest."""
    time.sleep(_SETTLE_S * min(1.0, target.scale * 4))


WORKLOADS: Final = (
    Workload("start", "from the start of the process to its first answer to Metadata", _start),
    Workload("memory", "resident anonymous memory, fresh and after 1 GB of 1 KiB records", _memory),
    Workload("idle", "CPU while nobody asks for anything", _idle),
    Workload("idle-connections", "1000 connections that have asked for metadata and wait", _idle_connections),
    Workload("recovery", "kill -9 after --recovery-gb of writes, then a start in the same folder", _recovery),
)
