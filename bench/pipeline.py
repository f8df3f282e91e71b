"""Workloads of `python -m bench.spark` that are about pipelines: a declared one beside the same written by hand.

JSON orders are decoded, sums by country and minute are made and written to a topic. By hand that is Structured
Streaming on Spark's own connector, with `from_json` and `to_json`. Both read all there is in one go and end.
What dead letters cost is held against the same pipeline that drops what is bad: of its orders one in two hundred is
cut off, and as many have an amount that an expectation refuses.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.stage import OURS, Stage, Workload
from bench.wire import Connection
from bench.workloads.target import create_topics, delete_topics, end_offsets, wait_until_led

ROWS: Final = 2_000_000
DEAD_SHARE: Final = 0.15
BAD_EVERY: Final = 200

_ORDERS: Final = "bench-orders"
_SPOILED: Final = "bench-orders-spoiled"
_PARTITIONS: Final = 4
_SCHEMA: Final = "id long, country string, amount double, at timestamp"
_SUMS: Final = (
    "select country, window(at, '1 minute').start as minute, sum(amount) as total, count(*) as orders "
    "from {orders} group by country, window(at, '1 minute')"
)
_FILE: Final = """\
name: {name}
bootstrap_servers: {brokers}
checkpoint: {checkpoint}
sources:
  orders:
    topic: {orders}
    start: earliest
    decode: {{format: json, schema: "{schema}"{otherwise}}}
    watermark: {{column: at, delay: 1 minute}}
steps:
{expecting}  sums:
    sql: "{sums}"
sinks:
  out: {{from: sums, topic: {out}, key: country, mode: append}}
{dead_letters}trigger: available-now
"""
_EXPECTING: Final = """\
  good:
    sql: select * from orders
    expect: {{positive: {{that: amount >= 0, otherwise: {otherwise}}}}}
"""


def run_pipeline(stage: Stage, side: str) -> None:
    _fill(stage, _ORDERS, _GOOD)
    with _out(stage) as out, tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        if side == OURS:
            _declared(stage, out, folder, orders=_ORDERS)
        else:
            _by_hand(stage, out, folder)


def run_with_dead_letters(stage: Stage, side: str) -> None:
    _fill(stage, _SPOILED, _BAD)
    with (
        _out(stage) as out,
        _out(stage, at_least=2 * ROWS // BAD_EVERY if side == OURS else 0) as dead,
        tempfile.TemporaryDirectory(dir=stage.folder) as folder,
    ):
        _declared(
            stage,
            out,
            folder,
            orders=_SPOILED,
            otherwise="dead-letter" if side == OURS else "drop",
            dead=dead if side == OURS else None,
        )


WORKLOADS: Final = (
    Workload("pipeline", f"{ROWS} JSON orders, sums by country and minute to a topic", 1.0, run_pipeline),
    Workload(
        "pipeline-dead",
        "with a hundredth of its orders as dead letters, beside the same that drops them",
        1 + DEAD_SHARE,
        run_with_dead_letters,
    ),
)


def _declared(
    stage: Stage, out: str, folder: str, *, orders: str, otherwise: str | None = None, dead: str | None = None
) -> None:
    from flintmq.pipeline import load
    from flintmq.pipeline.runtime.runner import run

    path = os.path.join(folder, "pipeline.yaml")
    with open(path, "w") as file:
        file.write(
            _FILE.format(
                # Another one each time: what a pipeline has published it does not publish again.
                name=out,
                brokers=stage.broker.bootstrap,
                checkpoint=os.path.join(folder, "checkpoint"),
                orders=orders,
                schema=_SCHEMA,
                otherwise="" if otherwise is None else f", otherwise: {otherwise}",
                expecting="" if otherwise is None else _EXPECTING.format(otherwise=otherwise),
                sums=_SUMS.format(orders="orders" if otherwise is None else "good"),
                out=out,
                dead_letters="" if dead is None else f"dead_letters: {dead}\n",
            )
        )
    run(stage.spark, load(path))


def _by_hand(stage: Stage, out: str, folder: str) -> None:
    options = stage.options("kafka")
    read = stage.spark.readStream.format("kafka").options(
        **{**options, "subscribe": _ORDERS, "startingOffsets": "earliest"}
    )
    orders = (
        read.load()
        .selectExpr(f"from_json(cast(value as string), '{_SCHEMA}') as order")
        .selectExpr("order.*")
        .withWatermark("at", "1 minute")
    )
    orders.createOrReplaceTempView("bench_orders")
    sums = stage.spark.sql(_SUMS.format(orders="bench_orders"))
    query = (
        sums.selectExpr("country as key", "to_json(struct(*)) as value")
        .writeStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": stage.broker.bootstrap, "topic": out})
        .option("checkpointLocation", os.path.join(folder, "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


_GOOD: Final = (
    "to_json(named_struct('id', id, 'country', concat('country-', id % 50), 'amount', id % 1000 / 10.0, "
    "'at', timestamp_seconds(1700000000 + div(id, 2000)))) as value"
)
_BAD: Final = (
    f"case id % {BAD_EVERY} when 7 then substr(value, 1, 30) "
    f"when 9 then replace(value, '\"amount\":', '\"amount\":-1') else value end as value"
)


def _fill(stage: Stage, orders: str, value: str) -> None:
    """The topic is filled once, before anything counts."""

    def make(folder: str) -> None:
        with Connection(stage.broker.port) as connection:
            (topic,) = create_topics(connection, [orders], _PARTITIONS)
            wait_until_led(connection, topic)
        frame = stage.spark.range(0, ROWS, 1, _PARTITIONS).selectExpr("id", _GOOD)
        if value != _GOOD:
            frame = frame.selectExpr("id", value)
        to = {"kafka.bootstrap.servers": stage.broker.bootstrap, "topic": orders}
        frame.select("value").write.format("flintmq").options(**to).mode("append").save()
        os.mkdir(folder)

    stage.made(orders, make)


@contextmanager
def _out(stage: Stage, at_least: int = 50) -> Iterator[str]:
    """A topic that gets at least so many records."""
    with Connection(stage.broker.port) as connection:
        name = f"bench-sums-{time.monotonic_ns()}"
        (topic,) = create_topics(connection, [name], _PARTITIONS)
        wait_until_led(connection, topic)
        yield name
        written = sum(end_offsets(connection, topic) or [])
        delete_topics(connection, [name])
    # A marker of a transaction takes an offset too.
    if written < at_least:
        raise AssertionError(f"{written} records came, and not {at_least}")
