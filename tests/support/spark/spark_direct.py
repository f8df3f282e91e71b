"""The source `flintmq` asked as Spark asks it, but without a JVM: planned, pickled, read, all in this process.

direct = Direct(broker.address)
direct.rows("topic", startingOffsets="earliest")          a batch read
stream = direct.stream("topic", maxOffsetsPerTrigger=10)  micro-batches, one by one
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.segment_planner import Task
from flintmq.spark.source import FlintMQ
from flintmq.spark.stream import StreamReader

Rows = list[dict[str, Any]]


class Direct:
    def __init__(
        self, address: str, limits: ScanLimits | None = None, *, segments: str | None = None
    ) -> None:
        self._address = address
        self._limits = limits or ScanLimits()
        self.segments = segments
        """Unless the options name another mode."""

    def limited(self, **limits: int) -> Direct:
        return Direct(self._address, replace(self._limits, **limits), segments=self.segments)

    def options(self, topic: str | None, options: dict[str, Any]) -> dict[str, str]:
        """`kafka__x` stands for `kafka.x`; what is not a text is JSON."""
        named = {} if topic is None else {"subscribe": topic}
        given = {
            name.replace("__", "."): value if isinstance(value, str) else json.dumps(value)
            for name, value in options.items()
        }
        mode = {} if self.segments is None else {"segments": self.segments}
        return {"kafka.bootstrap.servers": self._address, **mode, **named, **given}

    def source(self, topic: str | None, options: dict[str, Any]) -> FlintMQ:
        made = FlintMQ(CaseInsensitiveDict(self.options(topic, options)))
        made.limits = self._limits
        return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]

    def plan(
        self, topic: str | None = None, *, filters: Sequence[Filter] = (), **options: Any
    ) -> tuple[list[OffsetRange], list[Filter]]:
        """The ranges of a batch read, and the filters that are left to Spark."""
        source = self.source(topic, options)
        reader = source.reader(source.schema())
        left = list(reader.pushFilters(list(filters)))
        return [range_of(one) for one in reader.partitions()], left

    def rows(self, topic: str | None = None, *, filters: Sequence[Filter] = (), **options: Any) -> Rows:
        """Of a batch read, before Spark evaluates what is left of the filters."""
        source = self.source(topic, options)
        reader = source.reader(source.schema())
        list(reader.pushFilters(list(filters)))
        partitions = reader.partitions()
        return read(pickle.loads(pickle.dumps(reader)), partitions)

    def offsets(self, topic: str | None = None, **options: Any) -> list[int]:
        return [row["offset"] for row in self.rows(topic, **options)]

    def stream(self, topic: str | None = None, **options: Any) -> DirectStream:
        source = self.source(topic, options)
        return DirectStream(source.streamReader(source.schema()))  # type: ignore[arg-type]


class DirectStream:
    """A query whose checkpoint is in `committed`: the offsets behind its last micro-batch."""

    def __init__(self, reader: StreamReader, committed: Any = None) -> None:
        self.reader = reader
        self.committed = reader.initialOffset() if committed is None else committed

    def next_end(self) -> Any:
        return through_json(self.reader.latestOffset(self.committed, self.reader.getDefaultReadLimit()))

    def all_there_is(self) -> Any:
        return through_json(self.reader.latestOffset(self.committed, ReadAllAvailable()))

    def run(self, end: Any = None) -> Rows:
        """One micro-batch; nothing if none is due."""
        end = self.next_end() if end is None else end
        found = self.rows(self.committed, end)
        self.committed = end
        self.reader.commit(end)
        return found

    def rows(self, start: Any, end: Any) -> Rows:
        return read(self.reader, self.reader.partitions(start, end))


def range_of(partition: InputPartition) -> OffsetRange:
    task: Task = partition.value
    return task if isinstance(task, OffsetRange) else task.wanted


def read(reader: Any, partitions: Iterable[InputPartition]) -> Rows:
    """As workers do, each from a pickled task."""
    return [
        row
        for one in partitions
        for batch in reader.read(pickle.loads(pickle.dumps(one)))
        for row in batch.to_pylist()
    ]


def through_json(offsets: Any) -> Any:
    return json.loads(json.dumps(offsets))
