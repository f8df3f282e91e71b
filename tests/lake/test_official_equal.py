"""Tables hold what Spark's own Kafka connector reads of the topic, record for record, whoever reads them.

One topic holds headers, nulls, every codec, both kinds of timestamps, gaps that compaction left, records of 1 MB, and
transactions: committed, aborted, entangled, and one that is still open. It is synced twice, so that a table has files
of more than one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.spark.lazy_session import session_of
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import FORMATS, Lake, Rows, ordered
from support.spark.spark_topics import TIME_MS, Topics
from support.wire.mixed_topic import BIG_BYTES, CODECS, Writer, write_mixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "official-mixture"


@pytest.fixture(scope="module")
def mixed_lake(
    spark_session: SparkSession, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Lake]]:
    """The topic in a table of each format, in a directory each."""
    if "spark-sql-kafka" not in (spark_session.conf.get("spark.jars", "") or ""):
        pytest.skip("toolchain: the jars of Spark's Kafka connector are not here (SPARK_KAFKA_LIBS)")
    root = tmp_path_factory.mktemp("lake")
    lakes = {format: Lake(spark_session, broker.address, str(root / format)) for format in FORMATS}
    with Writer(broker.address, transactional=True) as unfinished, Topics(broker.address) as topics:
        write_mixture(broker.address, TOPIC, unfinished)
        for format, lake in lakes.items():
            lake.sync(TOPIC, format=format, piece_bytes=500_000)
        topics.write(TOPIC, [(b"late", b"later", TIME_MS, (("h", b"1"),))], partition=1)
        for format, lake in lakes.items():
            lake.sync(TOPIC, format=format)
        yield lakes
        unfinished.abort()


@pytest.fixture(scope="module")
def official(spark_session: SparkSession, mixed_lake: dict[str, Lake]) -> Rows:
    """What the connector reads."""
    reader = spark_session.read.format("kafka").option(
        "kafka.bootstrap.servers", mixed_lake["parquet"].address
    )
    reader = reader.options(subscribe=TOPIC, includeHeaders="true")
    frame = reader.option("kafka.isolation.level", "read_committed").load()
    return ordered(frame.toArrow().to_pylist())


def by_spark(lake: Lake, format: str) -> Rows:
    paths = [f"{lake.root}/{TOPIC}/{path}" for path in lake.paths(TOPIC, format)]
    return ordered(session_of(lake.spark).read.parquet(*paths).toArrow().to_pylist())


def by_its_own(lake: Lake, format: str) -> Rows:
    """DuckDB, pyiceberg or deltalake."""
    return lake.rows(TOPIC, format)


@pytest.mark.parametrize(
    ("format", "read"),
    [
        pytest.param("parquet", by_its_own, id="parquet-duckdb"),
        pytest.param("parquet", by_spark, id="parquet-spark"),
        pytest.param("iceberg", by_its_own, id="iceberg-pyiceberg"),
        pytest.param("delta", by_its_own, id="delta-deltalake"),
    ],
)
def test_a_table_is_what_the_connector_reads(
    mixed_lake: dict[str, Lake], official: Rows, format: str, read: Callable[[Lake, str], Rows]
) -> None:
    rows = read(mixed_lake[format], format)
    assert len(rows) == len(official)
    for row, expected in zip(rows, official, strict=True):
        assert row == expected


def test_the_topic_holds_what_tables_are_to_be_equal_about(official: Rows) -> None:
    values = [row["value"] for row in official if row["value"] is not None]
    assert sum(len(value) > BIG_BYTES * 0.9 for value in values) == len(CODECS)
    assert {codec for codec in CODECS if any(value.startswith(codec.encode()) for value in values)} == set(
        CODECS
    )
    assert (b"dropped 0/0" in values, b"open" in values, b"kept 0/0" in values) == (False, False, True)
    assert b"later" in values
    assert {row["timestampType"] for row in official} == {0, 1}
    for name in ("key", "value", "headers"):
        assert {row[name] is None for row in official} == {True, False}, name
    assert {header["value"] is None for row in official for header in row["headers"] or ()} == {True, False}
    compacted: list[Any] = [row["offset"] for row in official if row["partition"] == 0]
    assert len(compacted) < compacted[-1] + 1
    assert {row["partition"] for row in official} == {0, 1, 2}


@pytest.mark.parametrize("format", FORMATS)
def test_the_table_has_files_of_complete_segments_and_of_more_commits(
    mixed_lake: dict[str, Lake], format: str
) -> None:
    assert len(mixed_lake[format].paths(TOPIC, format)) > 4
