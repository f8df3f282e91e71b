"""FlintMQ's sources give what Spark's own Kafka connector gives, row for row and column for column (P1, P2).

One topic holds headers, nulls, every codec, both kinds of timestamps, gaps that compaction left, records of 1 MB, and
transactions: committed, aborted, entangled, and one that is still open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.broker.broker_process import BrokerProcess
from support.wire.mixed_topic import BIG_BYTES, CODECS, Writer, write_mixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

TOPIC = "mixed"
ISOLATION = ("read_uncommitted", "read_committed")
OURS = {
    "wire": ("flintmq", {"segments": "never"}),
    "segments": ("flintmq_segments", {}),
}


@pytest.fixture(scope="module", autouse=True)
def mixture(spark: SparkSession, broker: BrokerProcess) -> Iterator[None]:
    if "spark-sql-kafka" not in (spark.conf.get("spark.jars", "") or ""):
        pytest.skip("toolchain: the jars of Spark's Kafka connector are not here (SPARK_KAFKA_LIBS)")
    with Writer(broker.address, transactional=True) as unfinished:
        write_mixture(broker.address, TOPIC, unfinished)
        yield
        unfinished.abort()


def rows(
    spark: SparkSession, broker: BrokerProcess, kind: str, *, where: str = "true", **options: str
) -> list[Any]:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", broker.address)
    frame = reader.options(subscribe=TOPIC, includeHeaders="true").options(**options).load().where(where)
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


@pytest.mark.parametrize("isolation", ISOLATION)
@pytest.mark.parametrize("way", OURS)
def test_the_rows_are_the_connector_s(
    spark: SparkSession, broker: BrokerProcess, way: str, isolation: str
) -> None:
    kind, own = OURS[way]
    level = {"kafka.isolation.level": isolation}
    theirs = rows(spark, broker, "kafka", **level)
    ours = rows(spark, broker, kind, **level, **own)
    assert ours == theirs
    values = [bytes(row.value) for row in ours if row.value is not None]
    # That the topic really holds what the rows are to be equal about.
    assert sum(len(value) > BIG_BYTES * 0.9 for value in values) == len(CODECS)
    assert (b"dropped 0/0" in values, b"open" in values) == ((isolation == "read_uncommitted",) * 2)
    assert {row.timestampType for row in ours} == {0, 1}
    compacted = [row.offset for row in ours if row.partition == 0]
    assert len(compacted) < compacted[-1] + 1
    assert {header.value is None for row in ours for header in row.headers or ()} == {True, False}
    assert {row.headers is None for row in ours} == {True, False}


def test_the_topic_has_complete_segments_in_every_partition(broker: BrokerProcess) -> None:
    """Else there would be nothing to read from files."""
    for partition in range(3):
        assert len(list(broker.data_dir.glob(f"**/{TOPIC}-{partition}/*.log"))) > 1


def test_the_schema_is_the_connector_s(spark: SparkSession, broker: BrokerProcess) -> None:
    schemas = [
        spark.read.format(kind)
        .option("kafka.bootstrap.servers", broker.address)
        .options(subscribe=TOPIC, includeHeaders=headers)
        .load()
        .schema.simpleString()
        for headers in ("true", "false")
        for kind in ("kafka", "flintmq")
    ]
    assert schemas[0] == schemas[1]
    assert schemas[2] == schemas[3]


@pytest.mark.parametrize(
    "where",
    [
        "partition = 1 and offset between 90 and 210",
        "timestamp >= timestamp_millis(1700000050000) and timestamp < timestamp_millis(1700000060000)",
        "partition in (0, 2) and offset > 100 and offset != 120 and key is null",
    ],
)
def test_the_rows_through_a_filter_are_the_connector_s(
    spark: SparkSession, broker: BrokerProcess, where: str
) -> None:
    theirs, ours = (rows(spark, broker, kind, where=where) for kind in ("kafka", "flintmq"))
    assert ours == theirs
    assert ours
