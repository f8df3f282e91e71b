"""Values decoded on their way into a table, tables by time or column, and what becomes of records that are poison."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import fastavro

from flintmq.errors import ConfigurationError
from flintmq.lake.limits import SyncLimits
from flintmq.lake.syncing.range_runner import RangeRunner
from flintmq.lake.syncing.sync import SyncUnavailable
from flintmq.lake.tables.table import Conflict, TableChange, TableError
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True

DAY_MS = 86_400_000
COLUMNS = "id long, name string"


def json_records(first: int, count: int, **more: Any) -> list[Any]:
    return [
        (
            b"k%d" % number,
            json.dumps({"id": number, "name": f"n{number}", **more}).encode(),
            TIME_MS + number,
            (),
        )
        for number in range(first, first + count)
    ]


BAD = (b"bad", b"{not json", TIME_MS, (("h", b"1"),))


@pytest.mark.parametrize("format", FORMATS)
def test_decoded_values_are_columns_and_poison_is_quarantined(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, [*json_records(0, 3), BAD, (b"k", None, TIME_MS, ()), *json_records(5, 2)])
    outcome = lake.sync(topic, format=format, decode="json", schema=COLUMNS)
    assert (outcome.rows, outcome.quarantined) == (6, 1)
    rows = lake.rows(topic, format)
    assert [(row["offset"], row["key"], row["id"], row["name"]) for row in rows] == [
        (0, b"k0", 0, "n0"),
        (1, b"k1", 1, "n1"),
        (2, b"k2", 2, "n2"),
        (4, b"k", None, None),
        (5, b"k5", 5, "n5"),
        (6, b"k6", 6, "n6"),
    ]
    (poison,) = lake.rows(f"{topic}__quarantine", format)
    assert (poison["topic"], poison["partition"], poison["offset"]) == (topic, 0, 3)
    assert (poison["key"], poison["value"]) == (b"bad", b"{not json")
    assert poison["headers"] == [{"key": "h", "value": b"1"}]
    assert poison["error"]
    # A second sync finds the quarantine settled.
    topics.write(topic, [BAD])
    lake.sync(topic, format=format, decode="json", schema=COLUMNS)
    assert [row["offset"] for row in lake.rows(f"{topic}__quarantine", format)] == [3, 7]
    assert len(lake.rows(topic, format)) == 6


def test_poison_may_go_to_a_topic(lake: Lake, broker: BrokerProcess, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.create(f"{topic}-poison")
    options: dict[str, Any] = {"decode": "json", "schema": COLUMNS, "quarantine": f"topic:{topic}-poison"}
    topics.write(topic, [*json_records(0, 3), BAD])
    lake.sync(topic, **options)
    topics.write(topic, [BAD, BAD])
    lake.sync(topic, **options)
    lake.sync(topic, **options)
    found = topic_rows(broker.address, f"{topic}-poison")
    assert [(row["key"], row["value"]) for row in found] == [(b"bad", b"{not json")] * 3
    headers = [{one["key"]: one["value"] for one in row["headers"]} for row in found]
    assert [one["flintmq.lake.offset"] for one in headers] == [b"3", b"4", b"5"]
    assert headers[0]["h"] == b"1"
    assert headers[0]["flintmq.lake.topic"] == topic.encode()
    assert headers[0]["flintmq.lake.timestamp"] == str(TIME_MS).encode()
    assert headers[0]["flintmq.lake.error"]


def test_columns_of_json_are_inferred_if_nobody_names_them(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, json_records(0, 3, tags=["a"]))
    lake.sync(topic, decode="json")
    assert lake.rows(topic)[0]["tags"] == ["a"]
    # What was inferred is kept: the next sync needs no word of it.
    topics.write(topic, json_records(3, 1, tags=["b"]))
    lake.sync(topic, decode="json")
    assert [row["tags"] for row in lake.rows(topic)] == [["a"], ["a"], ["a"], ["b"]]


@pytest.mark.parametrize("format", FORMATS)
def test_columns_may_be_added_and_widened_and_nothing_else(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, json_records(0, 2))
    # deltalake 1.6 does not read tables with a column that was widened.
    narrow = "long" if format == "delta" else "int"
    lake.sync(topic, format=format, decode="json", schema=f"id {narrow}, name string")
    topics.write(topic, json_records(2, 2, extra=1.5))
    lake.sync(topic, format=format, decode="json", schema="id long, name string, extra double")
    rows = lake.rows(topic, format)
    assert [(row["id"], row["extra"]) for row in rows] == [(0, None), (1, None), (2, 1.5), (3, 1.5)]
    with pytest.raises(TableError, match="name"):
        lake.sync(topic, format=format, decode="json", schema="id long, name boolean")


def test_avro_and_one_column_for_all(lake: Lake, topics: Topics, topic: str) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "offset", "type": "long"}]}
    written = BytesIO()
    fastavro.schemaless_writer(written, schema, {"offset": 17})
    topics.create(topic)
    topics.write(topic, [(b"k", written.getvalue(), TIME_MS, ()), (b"k", b"", TIME_MS, ())])
    with pytest.raises(ConfigurationError, match=r"offset.*--into"):
        lake.sync(topic, decode="avro", schema=json.dumps(schema))
    outcome = lake.sync(topic, decode="avro", schema=json.dumps(schema), into="body")
    assert outcome.quarantined == 1
    assert [(row["offset"], row["body"]) for row in lake.rows(topic)] == [(0, {"offset": 17})]


def test_protobuf_by_a_file_that_need_not_be_there_later(
    lake: Lake, topics: Topics, topic: str, tmp_path: Any
) -> None:
    proto = tmp_path / "event.proto"
    proto.write_text('syntax = "proto3"; message Event { int64 id = 1; string name = 2; }')
    topics.create(topic)
    topics.write(topic, [(None, b"\x08\x05\x12\x01x", TIME_MS, ())])
    lake.sync(topic, decode="protobuf", schema=str(proto))
    proto.unlink()
    topics.write(topic, [(None, b"\x08\x06", TIME_MS, ())])
    lake.sync(topic, decode="protobuf")
    assert [(row["id"], row["name"]) for row in lake.rows(topic)] == [(5, "x"), (6, "")]


def framed(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    written = BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    written.seek(0, SEEK_END)
    fastavro.schemaless_writer(written, schema, value)
    return written.getvalue()


def test_schemas_that_appear_later_bring_their_columns(
    lake: Lake, topics: Topics, topic: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    old: dict[str, Any] = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [*old["fields"], {"name": "city", "type": "string"}]}
    (folder / "1.avsc").write_text(json.dumps(old))
    topics.create(topic)
    topics.write(topic, [(b"k", framed(1, old, {"id": 1}), TIME_MS, ())])
    run = RangeRunner.run

    def while_one_comes(self: RangeRunner, *args: Any, **options: Any) -> Any:
        (folder / "2.avsc").write_text(json.dumps(new))
        return run(self, *args, **options)

    with lake.open(topic, decode="avro", registry=str(folder)) as sync:
        sync.run()
        assert lake.state(topic).schema.names[-1] == "id"
        values = [framed(2, new, {"id": 2, "city": "Oslo"}), framed(9, old, {"id": 3})]
        topics.write(topic, [(b"k", value, TIME_MS, ()) for value in values])
        # After the plan, which knows the first schema alone: the workers find the second.
        monkeypatch.setattr(RangeRunner, "run", while_one_comes)
        sync.run()
    rows = lake.rows(topic)
    assert [(row["id"], row["city"]) for row in rows] == [(1, None), (2, "Oslo")]
    (poison,) = lake.rows(f"{topic}__quarantine")
    assert "9" in poison["error"]


def test_a_table_keeps_the_shape_it_was_begun_with(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, json_records(0, 2))
    lake.sync(topic)
    with pytest.raises(
        ConfigurationError, match=r"made with --decode raw and cannot continue with --decode json"
    ):
        lake.sync(topic, decode="json")
    with pytest.raises(ConfigurationError, match="is partitioned by nothing"):
        lake.sync(topic, partition_by=["timestamp:day"])


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_by_days_has_the_rows_of_each_in_a_folder_of_its_own(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    records = [(b"k", b"v%d" % number, TIME_MS + number % 3 * DAY_MS, ()) for number in range(30)]
    topics.write(topic, records)
    lake.sync(topic, format=format, partition_by=["timestamp:day"])
    folders = sorted(path.split("/")[1] for path in lake.paths(topic, format))
    assert folders == [f"timestamp_day=2023-11-{day}" for day in (14, 15, 16)]
    expected = topic_rows(broker.address, topic)
    names = list(expected[0])
    assert [{name: row[name] for name in names} for row in lake.rows(topic, format)] == expected
    topics.write(topic, records)
    lake.sync(topic, format=format)
    assert len(lake.rows(topic, format)) == 60
    assert len(lake.paths(topic, format)) == 6


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_may_be_by_a_decoded_column(lake: Lake, topics: Topics, topic: str, format: str) -> None:
    topics.create(topic)
    values: list[Any] = ["a/b c", "ö", None, "a/b c"]
    topics.write(
        topic, [(b"k", json.dumps({"id": 1, "city": value}).encode(), TIME_MS, ()) for value in values]
    )
    lake.sync(topic, format=format, decode="json", schema="id long, city string", partition_by=["city"])
    assert len(lake.paths(topic, format)) == 3
    assert [row["city"] for row in lake.rows(topic, format)] == values


def test_a_kill_between_table_and_quarantine_is_made_up_for(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, [*json_records(0, 3), BAD])
    options: dict[str, Any] = {"decode": "json", "schema": COLUMNS}
    with lake.open(topic, **options) as sync, monkeypatch.context() as patched:
        patched.setattr("flintmq.lake.syncing.quarantine.TableQuarantine.complete", _die)
        with pytest.raises(KeyboardInterrupt):
            sync.run()
    assert len(lake.rows(topic)) == 3
    assert lake.paths(f"{topic}__quarantine") == []
    # Even if the record is none any more for the decoder of the next sync.
    (commit,) = lake.sync(topic, decode="json", schema=f"{COLUMNS}, more long").commits
    assert (commit.rows, commit.quarantined, commit.columns_added) == (0, 0, ("more",))
    assert [row["offset"] for row in lake.rows(f"{topic}__quarantine")] == [3]


def test_poison_for_a_topic_is_written_once_whoever_dies(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-poison")
    topics.write(topic, [*json_records(0, 3), BAD])
    options: dict[str, Any] = {"decode": "json", "schema": COLUMNS, "quarantine": f"topic:{topic}-poison"}
    # Written and not ended; ended, and its files still there.
    for step in (
        "flintmq.arrow.write.side_topic.end",
        "flintmq.lake.store.local.LocalFileStore.delete",
    ):
        with lake.open(topic, **options) as sync, monkeypatch.context() as patched:
            patched.setattr(step, _die)
            with pytest.raises(KeyboardInterrupt):
                sync.run()
    lake.sync(topic, **options)
    assert len(topic_rows(broker.address, f"{topic}-poison")) == 1
    assert len(lake.rows(topic)) == 3


def _die(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_killed", [False, True])
def test_two_tables_of_one_topic_both_have_their_poison_in_the_quarantine_topic(
    lake: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
) -> None:
    """P4: a record is in the table or in the quarantine, of each of the tables."""
    topics.create(topic)
    topics.create(f"{topic}-poison")
    topics.write(topic, [*json_records(0, 3), BAD])
    options: dict[str, Any] = {"decode": "json", "schema": COLUMNS, "quarantine": f"topic:{topic}-poison"}
    other = Lake(lake.spark, lake.address, str(tmp_path / "other"))
    lake.sync(topic, **options)
    if is_killed:
        with other.open(topic, **options) as sync, monkeypatch.context() as patched:
            patched.setattr("flintmq.lake.store.local.LocalFileStore.delete", _die)
            with pytest.raises(KeyboardInterrupt):
                sync.run()
    other.sync(topic, **options)
    for one in (lake, other, lake):
        one.sync(topic, **options)
    rows = topic_rows(broker.address, f"{topic}-poison")
    headers = [{one["key"]: one["value"] for one in row["headers"]} for row in rows]
    assert sorted(
        (one["flintmq.lake.table"].decode(), one["flintmq.lake.offset"]) for one in headers
    ) == sorted((one.table(topic).location, b"3") for one in (lake, other))


@pytest.mark.parametrize("is_written", [False, True])
def test_poison_that_an_earlier_version_left_pending_is_written_once(
    lake: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_written: bool,
) -> None:
    """P4: the group of earlier versions was of all tables of a topic, and does not say whose records are there."""
    topics.create(topic)
    topics.create(f"{topic}-poison")
    topics.write(topic, [*json_records(0, 3), BAD])
    options: dict[str, Any] = {"decode": "json", "schema": COLUMNS, "quarantine": f"topic:{topic}-poison"}
    other = Lake(lake.spark, lake.address, str(tmp_path / "other"))
    step = (
        "store.local.LocalFileStore.delete"
        if is_written
        else "syncing.quarantine_topic.TopicQuarantine.complete"
    )
    with monkeypatch.context() as patched:
        module = "flintmq.lake.syncing.quarantine_topic"
        patched.setattr(f"{module}.quarantine_group", lambda shared, location: shared)
        patched.setattr(f"{module}._metadata", lambda pending: pending.progress.topic_id)
        other.sync(topic, **options)
        with lake.open(topic, **options) as sync:
            if is_written:
                # In the version before, this table's transaction came first.
                patched.setattr(f"{module}.TopicQuarantine._is_complete", lambda *_: False)
            patched.setattr(f"flintmq.lake.{step}", _die)
            with pytest.raises(KeyboardInterrupt):
                sync.run()
    assert len(topic_rows(broker.address, f"{topic}-poison")) == 1 + is_written
    for _ in range(2):
        lake.sync(topic, **options)
        other.sync(topic, **options)
    assert len(topic_rows(broker.address, f"{topic}-poison")) == 2


def test_a_table_changed_between_plan_and_commit_is_planned_again(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, json_records(0, 10))
    lake.sync(topic)
    topics.write(topic, json_records(10, 10))
    with lake.open(topic) as sync:
        meddle = _before_next_commit(sync, lambda: _set_property(lake, topic), monkeypatch)
        outcome = sync.run()
    assert meddle == ["done"]
    assert outcome.rows == 10
    assert "flintmq_lake_conflicts_total" in sync.metrics.text()
    assert len(lake.rows(topic)) == 20
    assert lake.state(topic).properties["flintmq.test"] == "1"


def test_of_two_syncs_at_once_one_wins_and_nothing_is_twice(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, json_records(0, 10))
    with lake.open(topic) as sync:
        _before_next_commit(sync, lambda: lake.sync(topic), monkeypatch)
        assert sync.run().commits == []
    assert [row["offset"] for row in lake.rows(topic)] == list(range(10))


def _before_next_commit(sync: Any, do: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Something that happens when the files are written and not committed; once."""
    from flintmq.lake.syncing.synced_table import PreparedTable

    commit = PreparedTable.commit
    did: list[str] = []

    def after_meddling(self: PreparedTable, *args: Any) -> None:
        if not did:
            did.append("done")
            do()
        commit(self, *args)

    monkeypatch.setattr(PreparedTable, "commit", after_meddling)
    return did


def _set_property(lake: Lake, name: str) -> None:
    state = lake.state(name)
    lake.table(name).commit(TableChange(base=state, properties={**state.properties, "flintmq.test": "1"}))


def test_a_table_that_always_changes_is_given_up(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(*_: object) -> None:
        raise Conflict("somebody was faster")

    topics.create(topic)
    topics.write(topic, json_records(0, 10))
    monkeypatch.setattr("flintmq.lake.syncing.synced_table.PreparedTable.commit", always)
    with pytest.raises(SyncUnavailable, match="2 times in a row"):
        lake.sync(topic, limits=SyncLimits(replans_max=2))
