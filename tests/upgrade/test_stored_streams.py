"""Queries and pipelines of version 0.1.0 that were killed in the middle of a batch are continued, exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import flintmq.pipeline
from flintmq.lake.tables.factory import open_table_at
from support.pipeline.pipelines import records_of, rows_of_table
from support.upgrade.archives import expected, unpack
from support.upgrade.contents import read_topics
from support.upgrade.past_broker import PastBroker
from support.upgrade.stored_streams import ROWS, SOURCE, TARGET, rows, write_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

StartStored = Callable[[str], PastBroker]


@pytest.fixture
def start_stored(tmp_path: Path) -> Iterator[StartStored]:
    """A broker on a copy of an archive; what else the archive holds is in `tmp_path`."""
    with ExitStack() as brokers:

        def start(name: str) -> PastBroker:
            unpack(name, tmp_path)
            broker = PastBroker(tmp_path / "data", expected(name)["stopped_ms"])
            brokers.enter_context(broker)
            return broker

        yield start


def test_a_query_completes_the_batch_that_the_ledger_has_decided(
    spark: SparkSession, start_stored: StartStored, tmp_path: Path
) -> None:
    broker = start_stored("spark")
    before = read_topics(broker.address, {TARGET: 2})[TARGET]
    committed = sum(len(one["committed"]) for one in before.values())
    assert committed > ROWS, "rows of a batch are committed that Spark has not noted"
    stream = (
        spark.readStream.format("flintmq")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "50")
        .load()
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("flintmq")
        .option("kafka.bootstrap.servers", broker.address)
        .option("topic", TARGET)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = Counter(one.value for one in records_of(broker.address, TARGET))
    assert copied == Counter(b"v%d" % number for number in range(2 * ROWS))
    assert all(
        one["stable"] == one["end"] for one in read_topics(broker.address, {TARGET: 2})[TARGET].values()
    )


def test_a_pipeline_continues_with_its_checkpoint(
    spark: SparkSession, start_stored: StartStored, tmp_path: Path
) -> None:
    broker = start_stored("pipeline")
    for sink in ("rows", "table", "windows"):
        checkpoint = tmp_path / ".flint" / "orders" / "sinks" / sink
        planned, noted = (len(list((checkpoint / one).iterdir())) for one in ("offsets", "commits"))
        assert planned > noted, f"a batch of {sink} is planned, and Spark has not noted that it is done"
    file = write_pipeline(tmp_path, broker.address)
    flintmq.pipeline.run(spark, flintmq.pipeline.load(str(file)), once=True)
    orders = [one for one in rows() if isinstance(one, dict)]
    good = [one for one in orders if one["amount"] >= 0]
    ids = sorted(one["id"] for one in good)
    assert sorted(int(one.key or b"") for one in records_of(broker.address, "orders.rows")) == ids
    opened = open_table_at(str(tmp_path / "lake" / "rows"), "delta", {})
    assert sorted(row["id"] for row in rows_of_table(opened)) == ids
    dead = records_of(broker.address, "orders.dead")
    undecoded = sorted(one.value or b"" for one in dead if one.headers["flintmq.step"] == b"orders")
    assert undecoded == sorted(one for one in rows() if isinstance(one, bytes))
    refused = sorted(one.json["id"] for one in dead if one.headers["flintmq.step"] == b"good")
    assert refused == sorted(one["id"] for one in orders if one["amount"] < 0)
    totals: Counter[str] = Counter()
    for one in good[:-1]:
        totals[one["at"][:16]] += one["amount"]
    windows = [one.json for one in records_of(broker.address, "orders.windows")]
    assert {one["minute"][:16]: one["total"] for one in windows} == totals
    assert len(windows) == len(totals)
