"""`spark.readStream.format("flintmq")` in a real session: micro-batches, checkpoints, restarts, lag. What a stream
plans is in test_spark_stream_direct.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.broker.broker_process import BrokerProcess
from support.cli.command import run
from support.spark.spark_topics import Topics, numbered

# Python workers and a JVM take their time on a busy machine.
pytestmark = pytest.mark.timeout(300)

WAIT_S = 60


class Table:
    """A folder of micro-batches, one of each id: what a sink that can be asked twice makes of a stream."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def start(self, frame: Any, **trigger: Any) -> Any:
        writer = frame.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.foreachBatch(self._write).start()

    def _write(self, batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(self._folder / "rows" / f"batch={number}"))

    def offsets(self) -> dict[int, list[int]]:
        """By the number of the micro-batch."""
        found: dict[int, list[int]] = {}
        for row in self._spark.read.parquet(str(self._folder / "rows")).select("batch", "offset").collect():
            found.setdefault(row["batch"], []).append(row["offset"])
        return {number: sorted(found[number]) for number in sorted(found)}


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Table:
    return Table(spark, tmp_path)


def test_a_stream_restarts_from_its_checkpoint_and_shows_its_lag(
    reading: Any, broker: BrokerProcess, topics: Topics, topic: str, table: Table
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))

    def frame() -> Any:
        return reading.stream(
            topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, groupId=topic, columns="offset,value"
        )

    query = table.start(frame(), availableNow=True)
    assert query.awaitTermination(WAIT_S)
    assert table.offsets() == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7], 2: [8, 9]}
    topics.write(topic, numbered(10, 3))
    described = run("group", "describe", topic, "--bootstrap-server", broker.address, "--json").json
    (place,) = described["partitions"]
    assert (place["committed"], place["lag"]) == (10, 3)
    query = table.start(frame(), availableNow=True)
    assert query.awaitTermination(WAIT_S)
    assert table.offsets()[3] == [10, 11, 12]


def test_a_running_stream_follows_its_topic(
    spark: Any, reading: Any, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    frame = reading.stream(topic, columns="partition,offset")
    query = (
        frame.writeStream.format("memory")
        .queryName("following")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        # From latest: what was there before is not read.
        query.processAllAvailable()
        topics.write(topic, numbered(5, 2))
        topics.grow(topic, 2)
        topics.write(topic, numbered(0, 1), partition=1)
        query.processAllAvailable()
        assert sorted(tuple(row) for row in spark.table("following").collect()) == [(0, 5), (0, 6), (1, 0)]
        assert query.lastProgress["sources"][0]["latestOffset"] is not None
        topics.write(topic, numbered(7, 3))
        topics.delete_before(topic, 8)
        with pytest.raises(Exception, match=f"{topic}-0, offsets 7 to 7 cannot be read"):
            query.processAllAvailable()
    finally:
        query.stop()
