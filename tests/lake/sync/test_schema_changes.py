"""Schemas that change under a table: no column and no field is ever lost without a word (P4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.errors import ConfigurationError
from flintmq.lake.status import TableStatus, status
from flintmq.lake.syncing.metrics import SyncMetrics, TableCommit
from flintmq.lake.syncing.options import make_options
from flintmq.lake.syncing.planner import SyncError
from flintmq.lake.syncing.sync import Sync
from flintmq.lake.tables.factory import NAMESPACE
from flintmq.lake.tables.iceberg.catalogs import open_catalog
from flintmq.lake.tables.table import TableError
from flintmq.records.record import NewRecord
from support.lake.synced_lake import FORMATS, Lake
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True

COLUMNS = "id long"


def records(*values: dict[str, Any]) -> list[NewRecord]:
    return [(b"k", json.dumps(value).encode(), TIME_MS, ()) for value in values]


def synced(lake: Lake, topic: str, **options: Any) -> TableCommit:
    (commit,) = lake.sync(topic, decode="json", **options).commits
    return commit


def status_of(lake: Lake, topic: str, format: str = "parquet") -> TableStatus:
    options = make_options([topic], to=lake.root, format=format, bootstrap_servers=lake.address)
    (found,) = status(options)
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_a_new_column_is_there_although_no_record_is_new(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "name": "a"}))
    synced(lake, topic, format=format, schema=COLUMNS)
    commit = synced(lake, topic, format=format, schema="id long, name string")
    assert (commit.rows, commit.columns_added) == (0, ("name",))
    assert lake.sync(topic, format=format, decode="json", schema="id long, name string").commits == []
    assert lake.sync(topic, format=format, decode="json").commits == []
    topics.write(topic, records({"id": 2, "name": "b"}))
    # Nobody names the column any more: the table knows it.
    assert synced(lake, topic, format=format).extra == {}
    assert [(row["id"], row["name"]) for row in lake.rows(topic, format)] == [(1, None), (2, "b")]


def test_a_column_that_a_later_schema_does_not_name_is_filled_all_the_same(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "name": "a"}))
    synced(lake, topic, schema="id long not null, name string")
    topics.write(topic, records({"id": 2, "name": "b", "more": 1}, {"name": "c"}))
    commit = synced(lake, topic, schema="id long, more long")
    assert (commit.columns_added, commit.quarantined) == (("more",), 0)
    assert [(row["id"], row["name"], row["more"]) for row in lake.rows(topic)] == [
        (1, "a", None),
        (2, "b", 1),
        (None, "c", None),
    ]


def test_fields_without_a_column_are_counted_named_and_told(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2)
    topics.write(topic, records({"id": 1, "note": "x"}, {"id": 2}))
    topics.write(topic, records({"id": 3, "note": "y", "place": {"zip": 1}}), partition=1)
    metrics = SyncMetrics()
    options = make_options(
        [topic], to=lake.root, bootstrap_servers=lake.address, decode="json", schema=COLUMNS
    )
    with Sync(lake.spark, options, metrics=metrics) as sync:
        (commit,) = sync.run().commits
    assert commit.extra == {"note": 2, "place": 1}
    assert f'flintmq_lake_extra_fields_total{{topic="{topic}",' in metrics.text()
    topics.write(topic, records({"id": 4, "note": "z"}))
    assert synced(lake, topic).extra == {"note": 1}
    assert status_of(lake, topic).extra_fields == {"note": 3, "place": 1}
    synced(lake, topic, schema="id long, note string")
    assert status_of(lake, topic).extra_fields == {"place": 1}


def test_one_record_of_many_is_enough_to_be_named(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records(*({"id": number} for number in range(20_000)), {"id": 1, "rare": True}))
    assert synced(lake, topic, schema=COLUMNS).extra == {"rare": 1}


def test_a_sync_that_is_to_fail_for_such_fields_commits_nothing(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1}))
    synced(lake, topic, schema=COLUMNS, evolve="fail")
    topics.write(topic, records({"id": 2, "note": "x"}))
    with pytest.raises(SyncError, match=r"note \(1 record\).*--evolve add"):
        lake.sync(topic, decode="json", evolve="fail")
    assert len(lake.rows(topic)) == 1
    synced(lake, topic, schema="id long, note string", evolve="fail")
    assert [row["note"] for row in lake.rows(topic)] == [None, "x"]


@pytest.mark.parametrize("format", FORMATS)
def test_columns_are_added_for_new_fields(lake: Lake, topics: Topics, topic: str, format: str) -> None:
    topics.create(topic, partitions=2)
    topics.write(topic, records({"id": 1}))
    synced(lake, topic, format=format, schema=COLUMNS, evolve="add")
    topics.write(topic, records({"id": 2, "total": 5, "mixed": 1, "offset": 7, "nothing": None}))
    topics.write(topic, records({"id": 3, "mixed": "x", "place": {"zip": "9"}}), partition=1)
    commit = synced(lake, topic, format=format, evolve="add")
    assert sorted(commit.columns_added) == ["mixed", "place", "total"]
    # A column of where the record comes from has the name already, and of null no type is known.
    assert commit.extra == {"nothing": 1, "offset": 1}
    # No row before had these fields, so none lacks a column.
    assert status_of(lake, topic, format).backfill == {}
    topics.write(topic, records({"id": 4, "place": {"zip": "8", "city": "B"}}))
    assert synced(lake, topic, format=format, evolve="add").columns_added == ("place.city",)
    rows = {row["id"]: row for row in lake.rows(topic, format)}
    assert [rows[number]["total"] for number in (1, 2, 3, 4)] == [None, 5, None, None]
    assert (rows[2]["mixed"], rows[3]["mixed"]) == ("1", '"x"')
    assert rows[4]["place"] == {"zip": "8", "city": "B"}


def test_older_rows_lack_a_column_whose_field_was_met_before(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "note": "x"}))
    synced(lake, topic, schema=COLUMNS)
    topics.write(topic, records({"id": 2, "note": "y", "more": 1}))
    assert sorted(synced(lake, topic, evolve="add").columns_added) == ["more", "note"]
    assert status_of(lake, topic).backfill == {"note": {0: (0, 1)}}


def test_the_rest_is_kept_in_a_column(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "note": "x", "deep": {"a": [1]}}, {"id": 2}))
    assert synced(lake, topic, schema=COLUMNS, rest="others").extra == {"deep": 1, "note": 1}
    topics.write(topic, records({"id": 3, "more": 1.50}))
    synced(lake, topic)
    assert [row["others"] for row in lake.rows(topic)] == [
        '{"note":"x","deep":{"a": [1]}}',
        None,
        '{"more":1.5}',
    ]
    with pytest.raises(ConfigurationError, match="others"):
        lake.sync(topic, decode="json", rest="elsewhere")


def test_a_column_may_be_given_for_the_rest_later(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "note": "x"}))
    synced(lake, topic, schema=COLUMNS)
    assert synced(lake, topic, rest="others").columns_added == ("others",)


def test_two_syncs_with_different_schemas_both_get_their_columns(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1}))
    synced(lake, topic, schema=COLUMNS)
    with lake.open(topic, decode="json", schema="id long, a long") as first:
        first.run()
        with lake.open(topic, decode="json", schema="id long, b long") as second:
            second.run()
        topics.write(topic, records({"id": 2, "a": 1, "b": 2}))
        # It was opened before the other column came.
        first.run()
    (_, row) = lake.rows(topic)
    assert (row["a"], row["b"]) == (1, 2)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id string", "id"),
        ("id struct<x: long>", "id"),
        ("ID long", "case only"),
        ("id long, id long", "id"),
        ("id long, place struct<x: string>", "place"),
    ],
    ids=["type", "nested", "case", "twice", "within"],
)
def test_a_column_that_changes_otherwise_is_refused_by_name_and_nothing_happens(
    lake: Lake, topics: Topics, topic: str, schema: str, words: str
) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "place": {"x": 1}}))
    synced(lake, topic, schema="id long, place struct<x: long>")
    topics.write(topic, records({"id": 2, "place": {"x": 2}}))
    with pytest.raises((TableError, ConfigurationError), match=words):
        lake.sync(topic, decode="json", schema=schema)
    synced(lake, topic)
    assert [(row["id"], row["place"]) for row in lake.rows(topic)] == [(1, {"x": 1}), (2, {"x": 2})]


def test_a_field_that_is_renamed_or_removed_is_noticed(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1, "name": "a"}))
    synced(lake, topic, schema="id long, name string")
    topics.write(topic, records({"id": 2, "full_name": "b"}, {"id": 3}))
    assert synced(lake, topic).extra == {"full_name": 1}
    assert [row["name"] for row in lake.rows(topic)] == ["a", None, None]


def test_a_column_that_another_engine_added_stays_and_may_be_named(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, records({"id": 1}))
    synced(lake, topic, format="iceberg", schema=COLUMNS)
    from pyiceberg.types import StringType

    table = open_catalog(lake.root, None, {}).load_table((NAMESPACE, topic))
    with table.update_schema() as update:
        update.add_column("label", StringType())
    topics.write(topic, records({"id": 2, "label": "x"}))
    assert synced(lake, topic, format="iceberg").extra == {"label": 1}
    topics.write(topic, records({"id": 3, "label": "y"}))
    synced(lake, topic, format="iceberg", schema="id long, label string")
    assert [row["label"] for row in lake.rows(topic, "iceberg")] == [None, None, "y"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"evolve": "add"}, "--decode"),
        ({"decode": "json", "evolve": "perhaps"}, "expected one of"),
        ({"decode": "avro", "schema": "{}", "evolve": "add"}, "--schema"),
        ({"decode": "avro", "registry": "http://127.0.0.1:1", "evolve": "warn"}, "add or fail"),
        ({"decode": "avro", "schema": "{}", "rest": "others"}, "--rest"),
        ({"decode": "json", "evolve": "fail", "rest": "others"}, "exclude each other"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_options(["t"], to="/nowhere", bootstrap_servers="localhost:9092", **options)
