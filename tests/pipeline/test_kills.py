"""Whoever is killed, and wherever: the output is that of a run that nobody disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import support.pipeline.pipeline_program
from flintmq.client.errors import ClientError
from flintmq.lake.tables.factory import open_table_at
from flintmq.pipeline.dead_letters.publisher import DeadLetterPublisher
from support.pipeline.pipeline_program import POINTS
from support.pipeline.pipelines import Flow, as_records, records_of, rows_of_table
from support.spark.spark_topics import Topics

_COUNT = 90
_PATIENCE_S = 300.0


def _rows() -> list[Any]:
    """A record a second; each seventh cannot be decoded, each fifth is refused by an expectation."""
    found: list[Any] = []
    for number in range(_COUNT):
        at = f"2023-11-14T10:{number // 60:02d}:{number % 60:02d}Z"
        amount = -1 if number % 5 == 0 else number
        found.append(b"bad %d" % number if number % 7 == 0 else {"id": number, "amount": amount, "at": at})
    # Windows before it are complete.
    found.append({"id": 1000, "amount": 1000, "at": "2023-11-14T12:00:00Z"})
    return found


def _write(flow: Flow, topics: Topics, topic: str, *, step: str = "sql: select * from orders") -> None:
    topics.create(topic, partitions=2)
    rows = _rows()
    topics.write(topic, as_records(rows[::2]))
    topics.write(topic, as_records(rows[1::2]), partition=1)
    flow.write(
        f"""
        name: {topic}
        sources:
          orders:
            topic: {topic}
            decode: {{format: json, schema: "id long, amount long, at timestamp"}}
            watermark: {{column: at, delay: 1 second}}
            max_records: 40
        steps:
          good:
            {step}
            expect: {{positive: {{that: amount >= 0, otherwise: dead-letter}}}}
          per_minute:
            sql: >
              select window.start as minute, count(*) as n, sum(amount) as total
              from good group by window(at, '1 minute')
        sinks:
          rows: {{from: good, topic: {topic}.rows, key: id}}
          table: {{from: good, table: lake/rows, format: delta}}
          windows: {{from: per_minute, topic: {topic}.windows}}
        dead_letters: {topic}.dead
        """
    )


def _check(flow: Flow, topic: str) -> None:
    orders = [one for one in _rows() if isinstance(one, dict)]
    good = [one for one in orders if one["amount"] >= 0]
    ids = sorted(one["id"] for one in good)
    assert sorted(int(one.key or b"") for one in records_of(flow.address, f"{topic}.rows")) == ids
    opened = open_table_at(str(flow.folder / "lake" / "rows"), "delta", {})
    assert sorted(row["id"] for row in rows_of_table(opened)) == ids
    dead = records_of(flow.address, f"{topic}.dead")
    assert sorted(one.value or b"" for one in dead if one.told("step") == "orders") == sorted(
        one for one in _rows() if isinstance(one, bytes)
    )
    refused = sorted(one.json["id"] for one in dead if one.told("step") == "good")
    assert refused == sorted(one["id"] for one in orders if one["amount"] < 0)
    assert len(dead) + len(ids) == _COUNT + 1
    expected: Counter[str] = Counter()
    for one in good[:-1]:
        expected[one["at"][:16]] += one["amount"]
    windows = flow.out(f"{topic}.windows")
    assert {row["minute"][:16]: row["total"] for row in windows} == expected
    assert len(windows) == len(expected)


def _killed(file: Path, point: str, number: int) -> bool:
    """Whether the process came so far."""
    program = str(support.pipeline.pipeline_program.__file__)
    paths = os.pathsep.join(path for path in sys.path if path)
    process = subprocess.run(
        [sys.executable, program, str(file), point, str(number)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr.decode()[-3000:]
    return process.returncode != 0


def test_a_run_goes_on_where_another_was_killed(flow: Flow, topics: Topics, topic: str) -> None:
    _write(flow, topics, topic)
    assert _killed(flow.file, "files of a table committed", 1)
    flow.run()
    _check(flow, topic)


@pytest.mark.parametrize("sink", ["table: out, format: delta", "files: out, format: parquet"])
def test_letters_of_a_batch_that_a_sink_has_and_skips_are_published(
    flow: Flow, topics: Topics, topic: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    flow.write(
        f"""
        name: {topic}
        sources:
          orders: {{topic: {topic}, decode: {{format: json, schema: "id long"}}, max_records: 3}}
        sinks:
          out: {{from: orders, {sink}}}
        dead_letters: {topic}.dead
        """
    )
    topics.write(topic, as_records([{"id": 1}, b"bad 1", {"id": 2}]))
    with monkeypatch.context() as patched:
        patched.setattr(DeadLetterPublisher, "publish", _no_broker)
        with pytest.raises(ClientError):
            flow.run()
    # As if the run had died when the sink had the batch and Spark had not committed it.
    commits = list((flow.folder / ".flint").glob("**/commits/*0*"))
    assert commits
    for file in commits:
        file.unlink()
    topics.write(topic, as_records([b"bad 2", {"id": 3}, {"id": 4}]))
    flow.run()
    assert [one.value for one in records_of(flow.address, f"{topic}.dead")] == [b"bad 1", b"bad 2"]


def _no_broker(*args: Any) -> int:
    raise ClientError("there is no broker")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("point", POINTS)
def test_kills_at_each_point_leave_no_trace(flow: Flow, topics: Topics, topic: str, point: str) -> None:
    _write(flow, topics, topic)
    assert _killed(flow.file, point, 1)
    _killed(flow.file, point, 2)
    flow.run()
    _check(flow, topic)


_DYING_WORKER = """
    import os, signal
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf

    def dying(orders):
        marker = {marker!r}

        @arrow_udf("long")
        def once(ids: pa.Array) -> pa.Array:
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return ids
            os.kill(os.getpid(), signal.SIGKILL)

        return orders.withColumn("id", once(orders.id))
"""


@pytest.mark.long
def test_a_worker_that_is_killed_changes_nothing(flow: Flow, topics: Topics, topic: str) -> None:
    flow.code("steps.py", _DYING_WORKER.format(marker=str(flow.folder / "died")))
    _write(flow, topics, topic, step="python: steps.py:dying\n            from: orders")
    flow.run()
    assert (flow.folder / "died").exists()
    _check(flow, topic)
