"""Dead letters go through again, once, to the sinks that have missed them; old records go to other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import flintmq.pipeline
from flintmq.errors import ConfigurationError
from flintmq.pipeline import PipelineError
from support.pipeline.pipelines import Flow, as_records, records_of
from support.spark.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = """
    name: {topic}
    sources:
      orders: {{topic: {topic}, decode: {{format: json, schema: "{schema}"}}}}
    steps:
      small:
        sql: select *, _offset as place from orders
        expect: {{small: {{that: id < {limit}, otherwise: dead-letter}}}}
    sinks:
      all_rows: {{from: orders, topic: {topic}.all}}
      small_rows: {{from: small, topic: {topic}.small}}
    dead_letters: {topic}.dead
"""


def test_dead_letters_reach_the_sinks_that_missed_them(
    flow: Flow, spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    values = [{"id": 1}, {"id": 11}, {"id": 2, "note": "words"}, {"id": 21}, b"never"]
    topics.write(topic, as_records(values))
    flow.write(_FILE.format(topic=topic, schema="id long, note long", limit=10))
    flow.run()
    assert [row["id"] for row in flow.out(f"{topic}.all")] == [1, 11, 21]
    assert [row["id"] for row in flow.out(f"{topic}.small")] == [1]
    assert len(records_of(flow.address, f"{topic}.dead")) == 4

    flow.write(_FILE.format(topic=topic, schema="id long, note string", limit=20))
    pipeline = flintmq.pipeline.load(str(flow.file))
    outcome = flintmq.pipeline.replay_dead_letters(spark, pipeline)
    # The record that can be decoded now goes to both; what failed the expectation goes to the one that has it.
    assert sorted(row["id"] for row in flow.out(f"{topic}.all")) == [1, 2, 11, 21]
    small = {row["id"]: row["place"] for row in flow.out(f"{topic}.small")}
    assert small == {1: 0, 11: 1, 2: 2}
    assert outcome.figures.dead_letters == 2
    dead = records_of(flow.address, f"{topic}.dead")
    again = [one for one in dead if one.told("attempt") == "2"]
    assert sorted((one.told("step"), one.told("offset")) for one in again) == [
        ("orders", "4"),
        ("small", "3"),
    ]

    flow.write(_FILE.format(topic=topic, schema="id long, note string", limit=50))
    flintmq.pipeline.replay_dead_letters(spark, flintmq.pipeline.load(str(flow.file)))
    assert sorted(row["id"] for row in flow.out(f"{topic}.small")) == [1, 2, 11, 21]
    assert sorted(row["id"] for row in flow.out(f"{topic}.all")) == [1, 2, 11, 21]
    attempts = [
        one.told("attempt") for one in records_of(flow.address, f"{topic}.dead") if one.value == b"never"
    ]
    assert attempts == ["1", "2", "3"]


@pytest.mark.long
def test_old_records_go_to_other_names(flow: Flow, spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, as_records([*({"id": n} for n in range(6)), b"bad"]))
    flow.write(_FILE.format(topic=topic, schema="id long", limit=10))
    pipeline = flintmq.pipeline.load(str(flow.file))
    with pytest.raises(ConfigurationError, match="--to-suffix"):
        flintmq.pipeline.replay_from(spark, pipeline, "earliest", suffix="")
    with pytest.raises(ConfigurationError, match="expected earliest, a time"):
        flintmq.pipeline.replay_from(spark, pipeline, "yesterday", suffix="-again")
    start = f'{{"{topic}": {{"0": 4}}}}'
    flintmq.pipeline.replay_from(spark, pipeline, start, suffix="-again", sinks=["small_rows"])
    assert [row["id"] for row in flow.out(f"{topic}.small-again")] == [4, 5]
    assert [one.value for one in records_of(flow.address, f"{topic}.dead-again")] == [b"bad"]
    assert records_of(flow.address, f"{topic}.small") == []


@pytest.mark.long
def test_letters_are_not_added_to_what_was_made_from_state(
    flow: Flow, spark: SparkSession, topic: str
) -> None:
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}
        steps:
          counted: {{sql: "select id, count(*) as n from orders group by id"}}
        sinks:
          counts: {{from: counted, topic: {topic}.out, mode: update}}
          files: {{from: orders, files: out}}
        dead_letters: {topic}.dead
        """
    )
    with pytest.raises(PipelineError) as caught:
        flintmq.pipeline.replay_dead_letters(spark, flintmq.pipeline.load(str(flow.file)))
    told = [one.message for one in caught.value.problems]
    assert told == [
        "`counts` is made from the state of `counted`, which a replay does not have",
        "`files`: Spark lets only one stream write to a folder",
    ]


def test_letters_are_not_added_to_what_python_makes_from_state(
    flow: Flow, spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    flow.code("steps.py", "def counted(orders):\n    return orders.groupBy('id').count()\n")
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}
        steps:
          counted: {{python: "steps.py:counted", from: orders}}
        sinks:
          counts: {{from: counted, topic: {topic}.out, mode: update}}
        dead_letters: {topic}.dead
        """
    )
    with pytest.raises(PipelineError, match="`counts` is made from the state of `counted`"):
        flintmq.pipeline.replay_dead_letters(spark, flintmq.pipeline.load(str(flow.file)))


_TWO_SINKS = """
    name: {topic}
    sources:
      orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}}}
      names: {{topic: {topic}.names, stream: false, decode: {{format: json, schema: "id long, name string"}}}}
      plain: {{topic: {topic}}}
    steps:
      small:
        sql: select * from orders
        expect: {{small: {{that: id < {limit}, otherwise: dead-letter}}}}
      named: {{sql: "select id, name from small left join names using (id)"}}
      short:
        sql: select * from plain
        expect: {{short: {{that: length(value) < {limit}, otherwise: dead-letter}}}}
    sinks:
      a: {{from: named, topic: {topic}.a}}
      b: {{from: small, topic: {topic}.b}}
      c: {{from: short, topic: {topic}.c}}
    dead_letters: {topic}.dead
"""


def test_a_sink_gets_a_record_once_however_many_letters_it_has(
    flow: Flow, spark: SparkSession, topics: Topics, topic: str
) -> None:
    for name in (topic, f"{topic}.names"):
        topics.create(name)
    topics.write(topic, as_records([{"id": 1}, {"id": 11111111}]))
    topics.write(f"{topic}.names", as_records([{"id": 1, "name": "one"}, b"bad"]))
    flow.write(_TWO_SINKS.format(topic=topic, limit=10))
    flow.run()
    told = [("pipeline", topic), ("topic", topic), ("step", "small"), ("partition", "x"), ("offset", "y")]
    by_hand = tuple((f"flintmq.{name}", value.encode()) for name, value in told)
    topics.write(f"{topic}.dead", [(None, b"by hand", 0, by_hand)])

    def replay(*sinks: str) -> int:
        pipeline = flintmq.pipeline.load(str(flow.file))
        return flintmq.pipeline.replay_dead_letters(spark, pipeline, sinks=sinks).figures.dead_letters

    def letters() -> list[tuple[str, str]]:
        found = [one for one in records_of(flow.address, f"{topic}.dead") if one.value != b"by hand"]
        return sorted((one.told("step"), one.told("attempt")) for one in found)

    first = [("names", "1"), ("short", "1"), ("small", "1")]
    assert letters() == first
    # Still bad, and only one sink asks.
    assert replay("a") == 1
    assert letters() == [*first, ("small", "2")]
    flow.write(_TWO_SINKS.format(topic=topic, limit=100_000_000))
    assert replay() == 0
    assert letters() == [*first, ("small", "2")]
    assert sorted(row["id"] for row in flow.out(f"{topic}.a")) == [1, 11111111]
    assert sorted(row["id"] for row in flow.out(f"{topic}.b")) == [1, 11111111]
    assert len(records_of(flow.address, f"{topic}.c")) == 2
