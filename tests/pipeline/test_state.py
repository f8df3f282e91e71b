"""What keeps state equals the same thing computed at once: windows, joins of streams, deduplication, state by key."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.pipeline import Pipeline, SqlStep, TopicSource
from flintmq.pipeline.runtime.stateful import keeps_state
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import TableSource
from flintmq.pipeline.spec.sql import AGGREGATES
from support.pipeline.pipelines import Flow, as_records, records_of
from support.spark.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE_S = 60
BEGIN_S = 1_700_000_040  # the begin of a minute

_STATE = """
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor
    from pyspark.sql.types import LongType, StructField, StructType

    class Running(StatefulProcessor):
        def init(self, handle):
            self.total = handle.getValueState("total", StructType([StructField("total", LongType())]))

        def handleInputRows(self, key, rows, timerValues):
            total = self.total.get()[0] if self.total.exists() else 0
            for row in sorted(rows, key=lambda row: row.id):
                total += row.amount
            self.total.update((total,))
            yield Row(card=key[0], total=total)

        def close(self):
            pass
"""


def _rows(count: int) -> list[dict[str, Any]]:
    """Orders, some of them twice, over ten minutes, somewhat out of order."""
    chance = random.Random(7)
    found: list[dict[str, Any]] = []
    for number in range(count):
        at_s = BEGIN_S + number * 600 // count + chance.randrange(20)
        found.append(
            {"id": number, "card": f"c{number % 3}", "amount": chance.randrange(9), "at": _time(at_s)}
        )
        if chance.random() < 0.2:
            found.append(found[-1])
    return found


def _time(at_s: int) -> str:
    return f"2023-11-14T{at_s % 86400 // 3600:02d}:{at_s % 3600 // 60:02d}:{at_s % 60:02d}Z"


def test_all_aggregates_of_spark_are_known(spark: SparkSession) -> None:
    """A query with one keeps state, and is told from others by its words alone."""
    jvm: Any = spark._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    listed = registry.listFunction()
    names = [listed.apply(index) for index in range(listed.size())]
    aggregates = {
        str(name.funcName()).upper()
        for name in names
        if registry.lookupFunction(name).get().getGroup() == "agg_funcs"
    }
    assert "SUM" in aggregates
    assert aggregates <= AGGREGATES


@pytest.mark.parametrize(
    ("sql", "keeps"),
    [
        ("select value from a where value > 1", False),
        ("select value from a union all select value from b", False),
        ("select a.value from a join t on a.value = t.id", False),
        ("select value from a where value in (select id from t)", False),
        ("select value, (select count(*) from t) as n from a", False),
        ("select a.value from a, b where a.value = b.value", True),
        ("select value from a union select value from b", True),
        ("select distinct value from a", True),
        ("select count(*) as n from a", True),
        ("select id from t group by id", False),
    ],
)
def test_state_is_seen_in_the_words_and_in_the_plan(spark: SparkSession, sql: str, keeps: bool) -> None:
    own = spark.newSession()
    for name in "ab":
        own.readStream.format("rate").load().createOrReplaceTempView(name)
    own.range(3).createOrReplaceTempView("t")
    assert keeps_state(own.sql(sql)) == keeps
    streams = {name: TopicSource(name=name, topic=name) for name in "ab"}
    table = TableSource(name="t", table="t")
    step = SqlStep(name="s", sql=sql)
    made = Pipeline(name="x", sources={**streams, "t": table}, steps={"s": step}, sinks={})
    assert Graph(made).keeps_state(step) == (keeps or "count(*) from t" in sql)


def test_streams_equal_a_batch_recomputation(flow: Flow, topics: Topics, topic: str) -> None:
    orders = _rows(120)
    batch = len(orders) // 2 + 1
    paid = [{"order": one["id"], "paid_at": one["at"]} for one in orders[::3]]
    for name in (topic, f"{topic}.paid"):
        topics.create(name, partitions=2)
    flow.code("rules.py", _STATE)
    schema = "id long, card string, amount long, at timestamp"
    flow.write(
        f"""
        name: {topic}
        sources:
          orders:
            topic: {topic}
            decode: {{format: json, schema: "{schema}"}}
            watermark: {{column: at, delay: 1m}}
            max_records: {batch}
          payments:
            topic: {topic}.paid
            decode: {{format: json, schema: "`order` long, paid_at timestamp"}}
            watermark: {{column: paid_at, delay: 1 minute}}
        steps:
          per_minute:
            sql: |
              select window.start as minute, card, sum(amount) as total
              from orders group by window(at, '1 minute'), card
          joined:
            sql: |
              select id, card from orders join payments
              on id = `order` and paid_at between at - interval 1 minute and at + interval 1 minute
          once: {{from: orders, dedup: {{keys: [id], within: 1 minute}}}}
          running:
            from: once
            state: {{python: "rules.py:Running", keys: [card], output: "card string, total long", mode: update}}
        sinks:
          windows: {{from: per_minute, topic: {topic}.windows}}
          pairs: {{from: joined, topic: {topic}.pairs}}
          unique: {{from: once, topic: {topic}.unique}}
          totals: {{from: running, topic: {topic}.totals, key: card, mode: update}}
        """
    )
    late = {"id": 900, "card": "c0", "amount": 100, "at": _time(BEGIN_S)}
    # So late that everything before it is complete; what comes after its batch and is older is left out.
    far = {"id": 901, "card": "c0", "amount": 100, "at": _time(BEGIN_S + 3600)}
    topics.write(topic, as_records([*orders, *[far] * (batch * 2 - len(orders)), late]))
    topics.write(f"{topic}.paid", as_records(paid), partition=1)
    outcome = flow.run()
    assert outcome.figures.sinks["windows"].batches >= 3
    assert outcome.figures.sinks["unique"].state_rows > 0

    per_minute: Counter[tuple[str, str]] = Counter()
    for one in orders:
        per_minute[one["at"][:17], one["card"]] += one["amount"]
    windows = {(row["minute"][:17], row["card"]): row["total"] for row in flow.out(f"{topic}.windows")}
    assert windows == per_minute
    pairs = [(row["id"], row["card"]) for row in flow.out(f"{topic}.pairs")]
    expected_pairs = [(o["id"], o["card"]) for p in paid for o in orders if o["id"] == p["order"]]
    assert sorted(pairs) == sorted(expected_pairs)
    unique = {one["id"]: one for one in orders}
    assert sorted(row["id"] for row in flow.out(f"{topic}.unique")) == sorted([*unique, 901])
    totals: Counter[str] = Counter()
    for one in (*unique.values(), far):
        totals[one["card"]] += one["amount"]
    last: dict[str, int] = {}
    for card in totals:
        last[card] = max(row["total"] for row in _of_card(flow, f"{topic}.totals", card))
    assert last == totals


def _of_card(flow: Flow, topic: str, card: str) -> list[Any]:
    return [one.json for one in records_of(flow.address, topic) if one.key == card.encode()]
