"""Produce requests of one record while threads of the broker wait for the disk: does the one hold up the other?

A broker in Python has one lock for all its threads, so a thread that comes back from the disk has to get it from the
loop, and the loop from the thread.
"""

from __future__ import annotations

import glob
import os
from typing import Final

from bench.figures import Figure, latencies
from bench.loads import ONE_RECORD, BatchShape, Driver, FetchLoad, ProduceLoad, Topic
from bench.workloads.requests import BusyConnection
from bench.workloads.streams import IN_FLIGHT
from bench.workloads.target import Target, Workload

_FLUSHED: Final = BatchShape(1024, 16 * 1024)
_COLD: Final = BatchShape(1024, 128 * 1024)
_COLD_BYTES: Final = 256 * 1024 * 1024


def _flushing(target: Target) -> list[Figure]:
    requests = target.scaled(20_000, least=200)
    took: list[float] = []
    flushes: list[float] = []
    with (
        target.topic(1) as topic,
        target.topic(1, {"flush.messages": "1"}) as flushed,
        target.connect() as connection,
        target.connect() as other,
    ):
        client = BusyConnection(ProduceLoad(topic, ONE_RECORD), took)
        flusher = BusyConnection(ProduceLoad(flushed, _FLUSHED), flushes)
        driver = Driver([(connection, client.answered), (other, flusher.answered)])
        connection.send(client.next())
        other.send(flusher.next())
        driver.run(lambda: len(took) >= requests and len(flushes) > 0)
    return [*latencies(took, name="request"), *latencies(flushes, name="flushed batch")]


def _cold_read(target: Target) -> list[Figure]:
    batches = target.scaled(_COLD_BYTES / _COLD.payload_bytes, least=8)
    requests = target.scaled(10_000, least=200)
    took: list[float] = []
    with (
        target.topic(1) as topic,
        target.topic(1) as cold,
        target.connect() as connection,
        target.connect() as other,
    ):
        ProduceLoad(cold, _COLD).run(other, batches, in_flight=IN_FLIGHT)
        client = BusyConnection(ProduceLoad(topic, ONE_RECORD), took)
        connection.send(client.next())
        while len(took) < requests:
            _drop_from_memory(target, cold)
            fetch = _WholeTopic(cold, batches)
            other.send(fetch.next())
            Driver([(connection, client.answered), (other, fetch.answered)]).run(fetch.is_over)
    return latencies(took, name="request")


class _WholeTopic(FetchLoad):
    """Fetched once from its start to its end."""

    def __init__(self, topic: Topic, batches: int) -> None:
        super().__init__(topic)
        self._batches = batches

    def answered(self, answer: memoryview) -> bytearray | None:
        self.take(answer)
        return None if self.is_over() else self.next()

    def is_over(self) -> bool:
        return self.batches == self._batches


def _drop_from_memory(target: Target, topic: Topic) -> None:
    """Take the topic's files out of the page cache."""
    files = glob.glob(f"{target.broker.home.folder}/**/{topic.name}-0/*.log", recursive=True)
    if not files:
        raise FileNotFoundError(f"the broker has no files of {topic.name}")
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


WORKLOADS: Final = (
    Workload("flushing", "requests of one record beside batches that are flushed one by one", _flushing),
    Workload("cold-read", "the same beside a fetch of what is on the disk only", _cold_read),
)
