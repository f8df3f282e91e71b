"""Compaction: what one clean of a topic costs, and what it does to the latency of another topic.

The broker cleans by itself, as it would in production: the topic's `min.cleanable.dirty.ratio` keeps the cleaner away
until everything is written and then lets it go, and `log.cleaner.backoff.ms` makes it look often. CPU is that of the
broker's process and its children from that moment to the last segment's swap, with whatever start a cleaner needs.
Afterwards all that is left is read and counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.figures import GB, Figure, Kind, cpu, percentile
from bench.keyed import BATCH_RECORDS, RECORD_BYTES, KeyedRecords
from bench.loads import COMMON_FETCH_VERSION, FetchLoad, Topic, produce_batches, refuse
from bench.wire import Connection
from bench.workloads.latency import ClosedLoop
from bench.workloads.streams import IN_FLIGHT
from bench.workloads.target import Target, Workload, alter_configs, end_offsets
from flintmq.protocol.messages import FetchRequest, FetchResponse
from flintmq.records.batch import read_header

_MIB: Final = 1024 * 1024
_SEGMENT_BYTES: Final = 64 * _MIB
_SEGMENT_BYTES_MIN: Final = _MIB
_SEGMENTS: Final = 16
_BATCH_BYTES_MAX: Final = 16_800
_TOPIC, _BROKER = 2, 4
_EVERY_BROKER: Final = ""
_BACKOFF: Final = {"log.cleaner.backoff.ms": "100"}
_RATIO: Final = "min.cleanable.dirty.ratio"
_CLEAN_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.05

_TRIPS: Final = 8_000
_WINDOW: Final = 200
"""Round trips between two looks at the cleaner."""
_BUSY_SHARE: Final = 0.75
"""Of a core: more than the round trips take by themselves."""
_RISE_MAX: Final = 1.2


@dataclass(frozen=True, slots=True)
class Dirty:
    """A topic of one partition that could be cleaned at once, but for its last batch."""

    topic: Topic
    last_sealed: int
    """Where the last segment begins that can be cleaned."""
    sealed_bytes: int
    left: int
    """Records, when it has been cleaned."""

    def let_go(self, connection: Connection) -> None:
        alter_configs(connection, _TOPIC, self.topic.name, {_RATIO: "0"})

    def is_clean(self, connection: Connection) -> bool:
        """Segments are cleaned in order, and none of them without losing records of its first batch."""
        wanted = FetchRequest.FetchPartition(
            partition=0, fetch_offset=self.last_sealed, partition_max_bytes=_BATCH_BYTES_MAX
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=_BATCH_BYTES_MAX,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=self.topic.name, partitions=[wanted])],
        )
        answer = connection.call(request, FetchResponse, COMMON_FETCH_VERSION)
        refuse(answer.error_code)
        (one,) = answer.responses[0].partitions
        refuse(one.error_code)
        return one.records is not None and read_header(one.records).record_count < BATCH_RECORDS

    def check(self, connection: Connection) -> None:
        """Exactly the records are left that must be."""
        (end,) = end_offsets(connection, self.topic) or [0]
        load = FetchLoad(self.topic)
        while load.offsets[0] < end:
            connection.send(load.next())
            load.take(connection.read())
        if load.records != self.left:
            raise AssertionError(f"{load.records} records are left, not {self.left}")


@contextmanager
def _dirty_topic(target: Target, distinct_share: float, total_bytes: float) -> Iterator[Dirty]:
    wanted = max(4 * _SEGMENT_BYTES_MIN, total_bytes * target.scale)
    segment_bytes = int(min(_SEGMENT_BYTES, max(_SEGMENT_BYTES_MIN, wanted / _SEGMENTS)))
    batch_bytes = len(next(KeyedRecords(1, 1.0).encoded(0)))
    per_segment = segment_bytes // batch_bytes
    segments = max(3, round(wanted / (per_segment * BATCH_RECORDS * RECORD_BYTES)))
    sealed = segments * per_segment
    # One batch more, which makes the last segment end.
    records = KeyedRecords(sealed + 1, distinct_share)
    settings = {"cleanup.policy": "compact", _RATIO: "1", "segment.bytes": str(segment_bytes)}
    with target.connect() as connection:
        alter_configs(connection, _BROKER, _EVERY_BROKER, _BACKOFF)
        try:
            with target.topic(1, settings) as topic:
                batches = records.encoded(int(time.time() * 1000))
                produce_batches(connection, topic, batches, in_flight=IN_FLIGHT)
                yield Dirty(
                    topic,
                    last_sealed=(sealed - per_segment) * BATCH_RECORDS,
                    sealed_bytes=sealed * BATCH_RECORDS * RECORD_BYTES,
                    left=records.distinct(sealed) + BATCH_RECORDS,
                )
        finally:
            if target.broker.is_running:
                # By another connection: after a failure answers may still be on their way on this one.
                with target.connect() as another:
                    alter_configs(another, _BROKER, _EVERY_BROKER, dict.fromkeys(_BACKOFF))


def _clean(distinct_share: float, target: Target) -> list[Figure]:
    with _dirty_topic(target, distinct_share, GB) as dirty, target.connect() as connection:
        os.sync()
        deadline = time.monotonic() + _CLEAN_TIMEOUT_S
        with target.measured() as meter:
            dirty.let_go(connection)
            while not dirty.is_clean(connection):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{dirty.topic.name} is not clean after {_CLEAN_TIMEOUT_S} s")
                time.sleep(_POLL_S)
        dirty.check(connection)
    return [
        cpu("CPU per GB", meter.cost.broker_cpu_s, per=dirty.sealed_bytes / GB, goal_ratio=0.75),
        Figure("until clean", meter.cost.wall_s, "s", Kind.WALL),
        Figure("cleaned", dirty.sealed_bytes / GB, "GB", Kind.COUNT, lower_is_better=False),
    ]


def _latency(target: Target) -> list[Figure]:
    """The same closed loop twice, at rest and while another topic is cleaned."""
    trips = target.scaled(_TRIPS, least=_WINDOW)
    with _dirty_topic(target, 0.5, GB) as dirty, target.connect() as connection:
        with target.topic(1) as topic, ClosedLoop(target, topic, acks=1) as loop:
            loop.run(min(2_000, trips))
            rest = loop.run(trips)
            busy = _while_cleaning(target, dirty, loop, connection)
        dirty.check(connection)
    figures = []
    for name, at_rest, meanwhile in (
        ("acknowledged", rest.acknowledged_s, busy.acknowledged_s),
        ("end to end", rest.delivered_s, busy.delivered_s),
    ):
        before, after = percentile(at_rest, 0.99), percentile(meanwhile, 0.99)
        figures += [
            Figure(f"{name}: p99 at rest", before * 1e6, "µs", Kind.WALL),
            Figure(f"{name}: p99 while cleaning", after * 1e6, "µs", Kind.WALL),
            Figure(f"{name}: p99 rises to", after / before, "×", Kind.WALL, goal=_RISE_MAX),
        ]
    return figures


def _while_cleaning(
    target: Target, dirty: Dirty, loop: ClosedLoop, connection: Connection
) -> ClosedLoop.Times:
    """Of round trips from the cleaner's start, as the broker's CPU shows it, to its end."""
    os.sync()
    dirty.let_go(connection)
    times, has_begun = ClosedLoop.Times(), False
    began, spent = time.monotonic(), target.broker.cpu_s()
    deadline = began + _CLEAN_TIMEOUT_S
    while not dirty.is_clean(connection):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{dirty.topic.name} is not clean after {_CLEAN_TIMEOUT_S} s")
        window = loop.run(_WINDOW)
        now, spent_now = time.monotonic(), target.broker.cpu_s()
        is_busy = (spent_now - spent) / (now - began) > _BUSY_SHARE
        began, spent = now, spent_now
        if is_busy and not has_begun:
            has_begun, times = True, ClosedLoop.Times()
        times.extend(window)
    # One that is over before it shows was at work somewhere in what there is.
    return times if times.acknowledged_s else loop.run(_WINDOW)


WORKLOADS: Final = (
    Workload(
        "clean-1", "1 GB of 100 B records, one in a hundred keys distinct, compacted", partial(_clean, 0.01)
    ),
    Workload("clean-50", "the same, every other key distinct", partial(_clean, 0.5)),
    Workload("latency-clean", "the closed loop of `latency`, at rest and while clean-50 runs", _latency),
)
