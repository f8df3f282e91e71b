"""A pipeline from its topics to its sinks: rows arrive once, bad records become dead letters, runs go on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import deltalake
import pyarrow as pa

from flintmq.lake.tables.factory import open_table_at
from flintmq.pipeline import PipelineError
from support.pipeline.pipelines import Flow, as_records, records_of, rows_of_table
from support.spark.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
"""The database that comes with Spark."""


def test_good_and_dead_letters_together_are_the_input(flow: Flow, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2)
    rows = [{"id": number, "amount": number - 3.0} for number in range(20)]
    topics.write(topic, as_records(rows[:10], key="id"))
    topics.write(topic, [(b"k", b"no json", 1_700_000_000_000, [("of", b"theirs")])])
    topics.write(topic, as_records(rows[10:], key="id"), partition=1)
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long, amount double"}}}}
        steps:
          good:
            sql: select * from orders
            expect:
              positive: {{that: amount > 0, otherwise: dead-letter}}
              small: {{that: id < 19, otherwise: drop}}
        sinks:
          out: {{from: good, topic: {topic}.out, key: id}}
        dead_letters: {topic}.dead
        """
    )
    outcome = flow.run()
    assert sorted(one["amount"] for one in flow.out(f"{topic}.out")) == [float(n) for n in range(1, 16)]
    dead = records_of(flow.address, f"{topic}.dead")
    assert [one for one in dead if one.told("step") == "orders"] == [
        one for one in dead if one.value == b"no json"
    ]
    by_step = {one.told("offset"): one for one in dead if one.told("step") == "good"}
    assert sorted(by_step) == ["0", "1", "2", "3"]
    assert by_step["1"].json == {"id": 1, "amount": -2.0}
    assert by_step["1"].key == b"1"
    assert by_step["1"].told("error") == "positive: amount > 0"
    (undecodable,) = [one for one in dead if one.told("step") == "orders"]
    assert undecodable.key == b"k"
    assert undecodable.headers["of"] == b"theirs"
    assert (undecodable.told("topic"), undecodable.told("partition"), undecodable.told("offset")) == (
        topic,
        "0",
        "10",
    )
    assert undecodable.told("pipeline") == topic
    assert outcome.figures.dead_letters == 5
    assert outcome.figures.sinks["out"].failed == {"good.positive": 4, "good.small": 1}
    topics.write(topic, as_records([{"id": 7, "amount": 70.0}, {"id": 8, "amount": -1.0}]))
    assert flow.run().figures.dead_letters == 1
    assert len(flow.out(f"{topic}.out")) == 16
    assert len(records_of(flow.address, f"{topic}.dead")) == 6


def test_tables_and_files_get_each_row_once_over_several_runs(
    flow: Flow, spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.write(
            topic,
            as_records([{"id": partition * 10 + n, "country": "at" if n % 2 else "de"} for n in range(10)]),
            partition=partition,
        )
    lake = flow.folder / "lake"
    seed = pa.table({"country": ["at", "de"], "name": ["Austria", "Germany"]})
    countries = open_table_at(str(lake / "countries"), "delta", {}).table
    countries.create(seed.schema)
    deltalake.write_deltalake(str(lake / "countries"), seed, mode="append")
    base = f"jdbc:derby:{flow.folder}/base;create=true"
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long, country string"}}}}
          countries: {{table: lake/countries, format: delta}}
        steps:
          named: {{sql: "select id, name, country from orders join countries using (country)"}}
        sinks:
          plain: {{from: named, table: lake/plain, partition_by: country}}
          delta: {{from: named, table: lake/delta, format: delta}}
          iceberg: {{from: named, table: lake/iceberg, format: iceberg}}
          files: {{from: named, files: out}}
          base: {{from: named, jdbc: "{base}", into: named, driver: {_DERBY}}}
        """
    )
    flow.run()
    topics.write(topic, as_records([{"id": 20, "country": "at"}]))
    flow.run()
    expected = sorted((n, "Austria" if n % 2 or n == 20 else "Germany") for n in range(21))
    for format in ("plain", "delta", "iceberg"):
        opened = open_table_at(str(lake / format), "parquet" if format == "plain" else format, {})
        rows = rows_of_table(opened)
        assert sorted((row["id"], row["name"]) for row in rows) == expected, format
    files = spark.read.parquet(str(flow.folder / "out")).select("id", "name").collect()
    assert sorted(tuple(row) for row in files) == expected
    in_base = spark.read.jdbc(base, "named", properties={"driver": _DERBY}).select("id", "name").collect()
    assert sorted(tuple(row) for row in in_base) == expected


def test_a_changed_file_and_a_lost_checkpoint_are_told_before_anything_runs(
    flow: Flow, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, as_records([{"id": 1}]))
    text = f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}
        sinks:
          table: {{from: orders, table: lake/orders}}
        """
    flow.write(text)
    flow.run()
    flow.write(text.replace(f"topic: {topic},", "topic: another,"))
    with pytest.raises(PipelineError, match=r"pipeline.yaml:4:\d+: error: `orders`: topic: .* became"):
        flow.run()
    flow.write(text)
    shutil.rmtree(flow.folder / ".flint")
    with pytest.raises(PipelineError, match="1 batches of this sink under another checkpoint"):
        flow.run()
    flow.run(accepts_new_checkpoint=True)
    opened = open_table_at(str(flow.folder / "lake" / "orders"), "parquet", {})
    assert len(rows_of_table(opened)) == 2
