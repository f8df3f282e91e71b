"""Backfill, rebuild and replay from quarantine in Spark's workers; other tests of them work without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.lake.audit.audit import audit
from flintmq.lake.backfill.backfill import backfill
from flintmq.lake.quarantine.open import open_quarantined
from flintmq.lake.quarantine.replay import replay_quarantined
from flintmq.lake.rebuild import rebuild
from flintmq.lake.replay.replay import replay
from flintmq.lake.syncing.options import make_options
from support.lake.synced_lake import Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics, numbered


def test_a_table_is_filled_repaired_and_rebuilt_by_workers(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)

    def write(*values: dict[str, Any]) -> None:
        topics.write(topic, [(b"k", json.dumps(value).encode(), TIME_MS, ()) for value in values])

    write({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"name": "c"})
    lake.sync(topic, decode="json", schema="id long not null")
    lake.sync(topic, decode="json", schema="id long, name string")
    options = make_options([topic], to=lake.root, bootstrap_servers=lake.address)
    (filled,) = backfill(lake.spark, options)
    replayed = replay_quarantined(lake.spark, open_quarantined(lake.root, topic, "parquet"))
    assert (filled.filled, replayed.replayed) == (2, 1)
    expected = [(1, "a"), (2, "b"), (None, "c")]
    assert [(row["id"], row["name"]) for row in lake.rows(topic)] == expected
    assert rebuild(lake.spark, options).rows == 3
    assert [(row["id"], row["name"]) for row in lake.rows(topic)] == expected
    (found,) = audit(lake.spark, options)
    assert (found.is_good, found.compared) == (True, 3)


def test_rows_are_replayed_into_a_topic_by_workers(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2)
    topics.create(f"{topic}-again", partitions=2)
    for partition in range(2):
        topics.write(topic, numbered(10 * partition, 5), partition=partition)
    lake.sync(topic)
    options = make_options([topic], to=lake.root, bootstrap_servers=lake.address)
    assert replay(lake.spark, options, to_topic=f"{topic}-again").rows == 10
    replayed = topic_rows(lake.address, f"{topic}-again")
    written = topic_rows(lake.address, topic)
    assert [(row["partition"], row["key"], row["value"]) for row in replayed] == [
        (row["partition"], row["key"], row["value"]) for row in written
    ]
