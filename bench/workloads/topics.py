"""Many topics: created a hundred at a time, then one batch written to each."""

from __future__ import annotations

import itertools
import time
from typing import Final

from bench.figures import Figure, Kind, cpu
from bench.loads import BatchShape, ProduceLoad, Topic
from bench.process import METADATA_VERSION
from bench.wire import Connection
from bench.workloads.target import Target, Workload, create_topics, delete_topics
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import MetadataRequest, MetadataResponse

_TOPICS: Final = 1_000
_AT_ONCE: Final = 100
_SHAPE: Final = BatchShape(100, 1_100)
_WRITE_TIMEOUT_S: Final = 60.0
_NOT_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)

_runs = itertools.count(1)


def _many_topics(target: Target) -> list[Figure]:
    count = min(_TOPICS, target.scaled(_TOPICS, least=20))
    run = next(_runs)
    names = [f"bench-many-{run}-{index}" for index in range(count)]
    chunks = [names[start : start + _AT_ONCE] for start in range(0, count, _AT_ONCE)]
    with target.connect() as connection:
        try:
            with target.measured() as meter:
                began = time.monotonic()
                topics = [topic for chunk in chunks for topic in create_topics(connection, chunk, 1)]
                created_s = time.monotonic() - began
                for topic in topics:
                    _write_first(connection, topic)
            began = time.perf_counter()
            connection.call(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)
            metadata_s = time.perf_counter() - began
        finally:
            for chunk in chunks:
                delete_topics(connection, chunk)
    return [
        Figure("created and written", meter.cost.wall_s, "s", Kind.WALL, goal_ratio=0.05),
        Figure("created", created_s, "s", Kind.WALL),
        cpu("CPU", meter.cost.broker_cpu_s, per=1),
        Figure("Metadata of all", metadata_s * 1e3, "ms", Kind.WALL),
        Figure("topics", count, "", Kind.COUNT, lower_is_better=False),
    ]


def _write_first(connection: Connection, topic: Topic) -> None:
    """Creation may still be under way where the answer came early; then it is tried again."""
    load = ProduceLoad(topic, _SHAPE)
    deadline = time.monotonic() + _WRITE_TIMEOUT_S
    while True:
        try:
            load.run(connection, 1, in_flight=1)
            return
        except RequestError as error:
            if error.code not in _NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


WORKLOADS: Final = (
    Workload("topics-1000", "1000 topics created, 100 at a time, and a batch written to each", _many_topics),
)
