"""Batch and streaming writes of real Spark: what is written is what was given, and once where that is promised."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flintmq.client.consumer import Consumer
from flintmq.client.partitioner import partition_of_key
from flintmq.records.compression import Codec
from flintmq.records.record import Record
from support.broker.broker_process import BrokerProcess
from support.spark.spark_topics import Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HEADERS = "array<struct<key:string,value:binary>>"
PARTITIONS = 3
WAIT_S = 60


def records_of(topics: Topics, topic: str) -> dict[int, list[Record]]:
    """What a consumer gets, of every partition."""
    view = topics.client.topic(topic)
    consumer = Consumer(topics.client, view, dict.fromkeys(view.partitions, 0))
    found: dict[int, list[Record]] = {partition: [] for partition in view.partitions}
    while polled := consumer.poll(0):
        for partition, record in polled:
            found[partition].append(record)
    return found


def write(frame: DataFrame, broker: BrokerProcess, **options: Any) -> None:
    given = {name.replace("__", "."): value for name, value in options.items()}
    frame.write.format("flintmq").options(**{"kafka.bootstrap.servers": broker.address, **given}).mode(
        "append"
    ).save()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.label)
def test_rows_are_written_as_they_are(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, codec: Codec
) -> None:
    topics.create(topic, partitions=PARTITIONS)
    given = [
        (b"a", b"1", None, [("h", b"x"), ("h", None)]),
        (b"b", None, 2, []),
        (None, b"3", 1, None),
        (b"", b"", None, [("", b"")]),
    ]
    frame = spark.createDataFrame(
        given, f"key binary, value binary, partition int, headers {HEADERS}"
    ).coalesce(1)
    write(frame, broker, topic=topic, kafka__compression__type=codec.label)
    written = [
        (partition, record.key, record.value, list(record.headers))
        for partition, records in records_of(topics, topic).items()
        for record in records
    ]
    expected = [
        (
            partition_of_key(key or b"", PARTITIONS) if partition is None else partition,
            key,
            value,
            headers or [],
        )
        for key, value, partition, headers in given
    ]
    assert sorted(written, key=repr) == sorted(expected, key=repr)


def test_texts_are_written_in_utf8_and_rows_of_a_partition_keep_their_order(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=PARTITIONS)
    frame = spark.range(20_000, numPartitions=1).selectExpr(
        "concat('ключ-', id % 100) key", "cast(id as string) value"
    )
    write(frame, broker, topic=topic, kafka__batch__size=10_000)
    found = records_of(topics, topic)
    for partition, records in found.items():
        numbers = [int(record.value or b"") for record in records]
        assert numbers == sorted(numbers)
        assert all(partition_of_key(record.key or b"", PARTITIONS) == partition for record in records)
        assert all(record.key == f"ключ-{int(record.value or b'') % 100}".encode() for record in records)
    assert sum(map(len, found.values())) == 20_000


def test_rows_without_keys_reach_every_partition(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=PARTITIONS)
    write(
        spark.range(10_000).selectExpr("repeat('x', 100) value"),
        broker,
        topic=topic,
        kafka__batch__size=16384,
    )
    counts = [len(records) for records in records_of(topics, topic).values()]
    assert sum(counts) == 10_000
    assert min(counts) > 2000


def test_a_topic_column_chooses_the_topic_and_the_option_stands_above_it(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    names = [f"{topic}-{number}" for number in range(2)]
    for name in (*names, topic):
        topics.create(name)
    frame = spark.range(100, numPartitions=2).selectExpr(
        f"concat('{topic}-', id % 2) topic", "cast(id as string) value"
    )
    write(frame, broker)
    for number, name in enumerate(names):
        values = {int(record.value or b"") for record in records_of(topics, name)[0]}
        assert values == set(range(number, 100, 2))
    write(frame, broker, topic=topic)
    assert len(records_of(topics, topic)[0]) == 100


def test_a_topic_that_takes_small_batches_only_gets_small_batches(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, configs={"max.message.bytes": "2000"})
    write(spark.range(1000).selectExpr("repeat('x', 100) value"), broker, topic=topic)
    assert len(records_of(topics, topic)[0]) == 1000


def test_a_write_with_an_id_is_written_once_however_often_it_is_run(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=2)
    frame = spark.range(50, numPartitions=2).selectExpr("cast(id as string) value")
    for _ in range(2):
        write(frame, broker, topic=topic, writeId=topic)
    found = Counter(record.value for records in records_of(topics, topic).values() for record in records)
    assert found == Counter(b"%d" % number for number in range(50))


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        (
            "cast(id as string) value, id offset",
            {},
            "no column offset; it takes key .binary or string., value",
        ),
        ("id value", {}, "value is bigint and should be binary or string"),
        ("cast(id as string) key", {}, "no column value"),
        ("cast(id as string) value", {"topik": "x"}, "did you mean topic"),
        ("cast(id as string) value", {"kafka__compression__type": "lzma"}, "none or gzip or snappy"),
        ("cast(id as string) value, cast(7 as int) partition", {}, "has no partition 7, only 0 to 0"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_right(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    columns: str,
    options: dict[str, str],
    reason: str,
) -> None:
    topics.create(topic)
    with pytest.raises(Exception, match=reason):
        write(spark.range(3).selectExpr(*columns.split(", ")), broker, topic=topic, **options)


# ---- streams


class Copying:
    """A query that copies one topic into another, a few records in each batch."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, topic: str, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self._spark = spark
        self._address = broker.address
        self._topic = topic

    def run(self) -> StreamingQuery:
        source = self._spark.readStream.format("flintmq").options(
            **{
                "kafka.bootstrap.servers": self._address,
                "subscribe": f"{self._topic}-in",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "40",
            }
        )
        sink = source.load().select("key", "value").writeStream.format("flintmq")
        query = (
            sink.options(**{"kafka.bootstrap.servers": self._address, "topic": self._topic})
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)
        return query


@pytest.fixture
def copying(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> Copying:
    topics.create(f"{topic}-in", partitions=2)
    topics.create(topic, partitions=PARTITIONS)
    return Copying(spark, broker, topic, tmp_path)


def keys_of(topics: Topics, topic: str) -> Counter[bytes | None]:
    return Counter(record.key for records in records_of(topics, topic).values() for record in records)


def keys(count: int) -> Counter[bytes]:
    return Counter(b"k%d" % number for number in range(count))


def test_a_stream_goes_on_where_it_was_and_writes_every_row_once(
    copying: Copying, topics: Topics, topic: str
) -> None:
    topics.write(f"{topic}-in", numbered(0, 60))
    copying.run()
    topics.write(f"{topic}-in", numbered(60, 60), partition=1)
    copying.run()
    assert keys_of(topics, topic) == keys(120)


def test_a_batch_that_spark_runs_again_is_not_written_again(
    copying: Copying, topics: Topics, topic: str
) -> None:
    topics.write(f"{topic}-in", numbered(0, 60))
    copying.run()
    # As after a driver that died when the sink had committed the batch and Spark had not noted it yet.
    last = max((copying.checkpoint / "commits").iterdir(), key=lambda file: file.name)
    assert last.name == "1"
    for file in (last, last.with_name(f".{last.name}.crc")):
        if file.exists():
            os.remove(file)
    topics.write(f"{topic}-in", numbered(60, 20))
    query = copying.run()
    assert keys_of(topics, topic) == keys(80)
    assert [progress.batchId for progress in query.recentProgress if progress.numInputRows][:1] == [1]
