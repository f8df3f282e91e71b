"""Pipelines in tests: files that are written, topics that are filled, runs, and what is in a topic afterwards.

flow = Flow(spark, broker.address, tmp_path)
flow.write("name: …")
flow.run()
records_of(broker.address, "out")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

import flintmq.pipeline
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions, TopicSelection
from flintmq.arrow.scan.range_reader import read_range
from flintmq.client.addresses import parse_addresses
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.lake.tables.factory import OpenedTable
from flintmq.pipeline.runtime.runner import RunOptions, RunOutcome, run
from flintmq.records.record import NewRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_MS = 1_700_000_000_000


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]
    partition: int
    offset: int

    @property
    def json(self) -> Any:
        assert self.value is not None
        return json.loads(self.value)

    def told(self, name: str) -> str:
        """A header of a dead letter."""
        value = self.headers[f"flintmq.{name}"]
        assert value is not None
        return value.decode()


def records_of(address: str, topic: str) -> list[Record]:
    """All committed records of a topic, by partition and offset; none if there is no such topic."""
    bootstrap = tuple(parse_addresses(address))
    found: list[Record] = []
    with ClusterClient(bootstrap) as client:
        try:
            view = client.topic(topic)
        except NoSuchTopic:
            return []
        places = [(topic, index) for index in sorted(view.partitions)]
        starts = offsets(client, places, EARLIEST)
        ends = offsets(client, places, LATEST, read_committed=True)
    options = SourceOptions(bootstrap, TopicSelection(), (), read_committed=True)
    for place in places:
        if ends[place] <= starts[place]:
            continue
        wanted = OffsetRange(topic, view.id, place[1], starts[place], ends[place])
        for batch in read_range(wanted, ("key", "value", "headers", "offset"), options):
            for row in batch.to_pylist():
                headers = {one["key"]: one["value"] for one in row["headers"] or ()}
                found.append(Record(row["key"], row["value"], headers, place[1], row["offset"]))
    return found


def rows_of_table(opened: OpenedTable) -> list[dict[str, Any]]:
    """What the files that count hold."""
    state = opened.table.state()
    assert state is not None
    rows: list[dict[str, Any]] = []
    for one in opened.table.files(state):
        with opened.store.open(one.path) as file:
            rows += pq.ParquetFile(file).read().to_pylist()
    return rows


def as_records(values: Iterable[object], *, key: str | None = None) -> list[NewRecord]:
    """JSON of what is no bytes, a second apart."""
    found: list[NewRecord] = []
    for number, value in enumerate(values):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        name = str(value[key]).encode() if key is not None and isinstance(value, dict) else None
        found.append((name, data, TIME_MS + number * 1000, ()))
    return found


class Flow:
    """A pipeline's file in a folder, and its runs."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.folder = folder
        self.file = folder / "pipeline.yaml"

    def write(self, text: str) -> Path:
        """With the broker's address."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file.write_text(dedent(text) + f"\nbootstrap_servers: {self.address}\n")
        return self.file

    def code(self, name: str, text: str) -> None:
        (self.folder / name).write_text(dedent(text))

    def run(self, **options: Any) -> RunOutcome:
        asked = RunOptions(once=True, **options)
        return run(self.spark, flintmq.pipeline.load(str(self.file)), options=asked)

    def out(self, topic: str) -> list[Any]:
        return [one.json for one in records_of(self.address, topic)]


def by(rows: Iterable[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in names))
