"""Spark's own Kafka connector against FlintMQ, unchanged: it reads, it streams over restarts, it writes (P2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.broker.broker_process import BrokerProcess
from support.wire.mixed_topic import Writer, grow_topic, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("connector"),
]


@pytest.fixture(scope="module")
def connector(spark: SparkSession) -> None:
    if "spark-sql-kafka" not in (spark.conf.get("spark.jars", "") or ""):
        pytest.skip("toolchain: the jars of Spark's Kafka connector are not here (SPARK_KAFKA_LIBS)")


def read(spark: SparkSession, broker: BrokerProcess, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address)
    return reader.option("subscribe", topic).options(**options).load()


def texts(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("cast(value as string)").collect())


def numbered(start: int, end: int) -> list[str]:
    return sorted(f"value {number}" for number in range(start, end))


def test_a_topic_is_read_whole_by_offsets_and_by_time(spark: SparkSession, broker: BrokerProcess) -> None:
    make_topic(broker.address, "whole", partitions=3)
    with Writer(broker.address) as writer:
        for number in range(3000):
            writer.send(
                "whole", b"value %d" % number, partition=number % 3, timestamp_ms=1_700_000_000_000 + number
            )
    assert texts(read(spark, broker, "whole")) == numbered(0, 3000)
    bounds = {
        "startingOffsets": json.dumps({"whole": {"0": 10, "1": 20, "2": -2}}),
        "endingOffsets": json.dumps({"whole": {"0": 12, "1": -1, "2": 1}}),
    }
    rows = read(spark, broker, "whole", **bounds).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(0, 10), (0, 11), *((1, at) for at in range(20, 1000)), (2, 0)]
    late = read(spark, broker, "whole", startingTimestamp="1700000002900", minPartitions="7")
    assert texts(late) == numbered(2900, 3000)


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Each run in pieces, a partition added between two of them: every record once."""
    make_topic(broker.address, "stream", partitions=2)

    def run() -> None:
        stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
        source = stream.options(
            subscribe="stream", startingOffsets="earliest", maxOffsetsPerTrigger="400"
        ).load()
        query = (
            source.selectExpr("cast(value as string) as value")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert len(query.recentProgress) > 1

    with Writer(broker.address) as writer:
        for number in range(1000):
            writer.send("stream", b"value %d" % number, partition=number % 2)
    run()
    assert texts(spark.read.parquet(str(tmp_path / "out"))) == numbered(0, 1000)
    grow_topic(broker.address, "stream", partitions=3)
    with Writer(broker.address) as writer:
        for number in range(1000, 2000):
            writer.send("stream", b"value %d" % number, partition=number % 3)
    run()
    assert texts(spark.read.parquet(str(tmp_path / "out"))) == numbered(0, 2000)


def test_frames_and_streams_are_written(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    make_topic(broker.address, "written", partitions=2)
    rows = spark.range(500).selectExpr(
        "cast(id as string) as key",
        "concat('value ', id) as value",
        "array(struct('h' as key, cast(concat('h', id) as binary) as value)) as headers",
    )
    options = {"kafka.bootstrap.servers": broker.address, "topic": "written"}
    rows.write.format("kafka").options(**options).option("includeHeaders", "true").save()
    found = read(spark, broker, "written", includeHeaders="true")
    assert texts(found) == numbered(0, 500)
    one = found.where("key = '7'").select("headers").collect()[0].headers
    assert [(header.key, bytes(header.value)) for header in one] == [("h", b"h7")]

    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    copy = source.options(subscribe="written", startingOffsets="earliest").load().select("key", "value")
    make_topic(broker.address, "copied", partitions=1)
    query = (
        copy.writeStream.format("kafka")
        .options(**{**options, "topic": "copied"})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert texts(read(spark, broker, "copied")) == numbered(0, 500)
