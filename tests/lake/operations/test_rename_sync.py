"""Syncs, audits and commands of a table that was renamed: each record is there once, by the name of its topic."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.cli.main import main
from flintmq.client.admin.groups import committed_offsets
from flintmq.errors import ConfigurationError
from flintmq.lake.audit.audit import audit
from flintmq.lake.replay.replay import replay
from flintmq.lake.status import status
from flintmq.lake.syncing.options import make_options
from flintmq.lake.tables.table import TableError, TableRenamed
from support.broker.broker_process import BrokerProcess
from support.lake.deaths import Killed, dying
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True
JSON: dict[str, Any] = {"decode": "json", "schema": "id long"}
BAD = (b"k", b"{", TIME_MS, ())


def good(*ids: int) -> list[Any]:
    return [(b"k%d" % one, b'{"id": %d}' % one, TIME_MS, ()) for one in ids]


def run(lake: Lake, *arguments: str, format: str = "parquet", code: int = 0) -> Any:
    done = CliRunner().invoke(main, ["lake", *arguments, "--to", lake.root, "--format", format])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def options_of(lake: Lake, topic: str, format: str = "parquet") -> Any:
    return make_options([topic], to=lake.root, format=format, bootstrap_servers=lake.address)


def ids(lake: Lake, name: str, format: str) -> list[int]:
    return [row["id"] for row in lake.rows(name, format)]


@pytest.mark.parametrize("format", ["parquet", "iceberg", pytest.param("delta", marks=pytest.mark.long)])
def test_a_topic_goes_on_into_its_renamed_table_and_has_its_own_name_after_a_drop(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, [*good(0, 1), BAD])
    lake.sync(topic, format=format, **JSON)
    run(lake, "latest", topic, format=format)
    done = json.loads(run(lake, "rename", topic, "sales", "--json", format=format).stdout)
    assert (done["topic"], done["name"]) == (topic, "sales")
    separator = "." if format == "iceberg" else "/"
    new = [one["to"].rpartition(separator)[2] for one in done["tables"]]
    assert new == ["sales", "sales__quarantine", "sales__latest"]
    assert run(lake, "rename", topic, "sales", format=format).stdout == (
        f"The table of {topic} is named sales already.\n"
    )
    topics.write(topic, [BAD, *good(4)])
    lake.sync(topic, format=format, **JSON)
    lake.sync(topic, format=format, **JSON)
    assert ids(lake, "sales", format) == [0, 1, 4]
    assert [row["offset"] for row in lake.rows("sales__quarantine", format)] == [2, 3]
    (checked,) = audit(lake.spark, options_of(lake, topic, format))
    assert checked.is_good, checked.problems
    (found,) = status(options_of(lake, topic, format))
    assert (found.contents.rows, found.lag) == (3, 0)
    assert found.quarantined is not None
    assert found.quarantined.rows == 2
    # The broker knows the table by the location that belongs to its topic, or it would seem to be another one.
    (committed,) = committed_offsets(topics.client, f"lake-{topic}", [(topic, 0)]).values()
    assert committed.metadata == f"flintmq-lake:{os.path.join(lake.root, topic)}"
    for command in ("compact", "latest", "files", "clean"):
        run(lake, command, topic, format=format)
    assert len(lake.rows("sales__latest", format)) == 3
    run(lake, "drop", topic, "--yes", "-b", lake.address, format=format)
    assert [one for one in os.listdir(lake.root) if not one.startswith("catalog.db")] == []
    lake.sync(topic, format=format, **JSON)
    assert ids(lake, topic, format) == [0, 1, 4]


@pytest.mark.parametrize("format", FORMATS)
def test_a_sync_that_was_running_fails_and_is_continued_by_the_next(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, [*good(0), BAD])
    with lake.open(topic, format=format, **JSON) as sync:
        sync.run()
        run(lake, "rename", topic, "sales", format=format)
        topics.write(topic, [*good(2), BAD])
        for _ in range(2):
            with pytest.raises(TableRenamed, match="named sales now"):
                sync.run()
    lake.sync(topic, format=format, **JSON)
    assert ids(lake, "sales", format) == [0, 2]
    assert [row["offset"] for row in lake.rows("sales__quarantine", format)] == [1, 3]


def test_a_rename_that_is_not_finished_is_named_by_every_command(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, good(0))
    lake.sync(topic)
    with monkeypatch.context() as patched:
        dying(("flintmq.lake.rename.rename:put_pointer", True, 1), patched)
        with pytest.raises(Killed):
            CliRunner().invoke(main, ["lake", "rename", topic, "sales", "--to", lake.root])
    with pytest.raises(TableRenamed):
        lake.sync(topic)
    for command in ("files", "compact", "latest", "clean"):
        assert f"flintmq lake rename {topic} sales" in run(lake, command, topic, code=1).stderr
    more = ("-b", lake.address)
    for command in ("status", "audit", "drop"):
        assert f"flintmq lake rename {topic} sales" in run(lake, command, topic, *more, code=1).stderr
    assert "no name for a table" in run(lake, "rename", topic, "a/b", code=2).stderr
    run(lake, "rename", topic, "sales")
    assert len(lake.rows("sales")) == 1


@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_a_topic_of_the_new_name_is_not_mixed_with_the_table(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    name = f"{topic}-new"
    for one in (topic, name):
        topics.create(one)
        topics.write(one, good(0))
    lake.sync(topic, format=format)
    run(lake, "rename", topic, name, format=format)
    with pytest.raises((ConfigurationError, TableError), match=r"to another place|name it by its topic"):
        lake.sync(name, format=format)
    assert len(lake.rows(name, format)) == 1


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_records_on_their_way_to_the_quarantine_are_waited_for(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, [*good(0), BAD])
    with monkeypatch.context() as patched, lake.open(topic, format=format, **JSON) as sync:
        dying(("flintmq.lake.syncing.quarantine:TableQuarantine.complete", False, 1), patched)
        with pytest.raises(Killed):
            sync.run()
    assert "Run the sync again" in run(lake, "rename", topic, "sales", format=format, code=1).stderr
    lake.sync(topic, format=format, **JSON)
    run(lake, "rename", topic, "sales", format=format)
    lake.sync(topic, format=format, **JSON)
    assert [row["offset"] for row in lake.rows("sales__quarantine", format)] == [1]


@pytest.mark.parametrize("has_table", [False, True])
def test_a_quarantine_topic_has_each_record_once(
    lake: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    has_table: bool,
) -> None:
    """P4: also where the table had its quarantine in a table before."""
    topics.create(topic)
    topics.create(f"{topic}-poison")
    options = {**JSON, "quarantine": f"topic:{topic}-poison"}
    if has_table:
        for records in ([BAD], good(0)):
            topics.write(topic, records)
            lake.sync(topic, **JSON)
    topics.write(topic, [*good(1), BAD])
    # The transaction is ended, and its files are still there.
    with monkeypatch.context() as patched, lake.open(topic, **options) as sync:
        dying(("flintmq.lake.store.local:LocalFileStore.delete", False, 1), patched)
        with pytest.raises(Killed):
            sync.run()
    assert "Run the sync again" in run(lake, "rename", topic, "sales", code=1).stderr
    lake.sync(topic, **options)
    run(lake, "rename", topic, "sales")
    lake.sync(topic, **options)
    topics.write(topic, [BAD])
    with monkeypatch.context() as patched, lake.open(topic, **options) as sync:
        dying(("flintmq.lake.store.local:LocalFileStore.delete", False, 1), patched)
        with pytest.raises(Killed):
            sync.run()
    # Nothing that waits for the topic is taken for a leftover of the rename.
    assert "already" in run(lake, "rename", topic, "sales").stdout
    lake.sync(topic, **options)
    lake.sync(topic, **options)
    found = topic_rows(broker.address, f"{topic}-poison")
    headers = [{one["key"]: one["value"] for one in row["headers"]} for row in found]
    assert len(headers) == 2
    assert [one["flintmq.lake.table"].decode() for one in headers] == [
        os.path.join(lake.root, name) for name in (topic, "sales")
    ]
    done = run(lake, "drop", topic, "--yes", "--json", "-b", lake.address)
    assert [one for one in json.loads(done.stdout)["groups"] if "-quarantine-" in one]
    assert os.listdir(lake.root) == []


@pytest.mark.parametrize("next_quarantine", ["topic", "table"])
def test_records_that_wait_for_a_quarantine_topic_outlive_the_rename_command(
    lake: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    next_quarantine: str,
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-poison")
    options = {**JSON, "quarantine": f"topic:{topic}-poison"}
    for records in ([BAD], good(0)):
        topics.write(topic, records)
        lake.sync(topic, **JSON)
    run(lake, "rename", topic, "sales")
    topics.write(topic, [BAD])
    with monkeypatch.context() as patched, lake.open(topic, **options) as sync:
        dying(("flintmq.lake.syncing.quarantine_topic:TopicQuarantine.complete", False, 1), patched)
        with pytest.raises(Killed):
            sync.run()
    run(lake, "rename", topic, "sales")
    assert "Run the sync again" in run(lake, "rename", topic, "revenue", code=1).stderr
    in_table = [row["offset"] for row in lake.rows("sales__quarantine")]
    if next_quarantine == "topic":
        lake.sync(topic, **options)
        assert len(topic_rows(broker.address, f"{topic}-poison")) == 1
    else:
        # The files are where the quarantine table finds them.
        lake.sync(topic, **JSON)
        in_table.append(2)
    assert [row["offset"] for row in lake.rows("sales__quarantine")] == in_table


def test_a_replay_is_remembered_over_a_rename(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    for name in (topic, f"{topic}-again"):
        topics.create(name)
    topics.write(topic, good(0, 1))
    lake.sync(topic)
    assert replay(lake.spark, options_of(lake, topic), to_topic=f"{topic}-again").rows == 2
    run(lake, "rename", topic, "sales")
    assert replay(lake.spark, options_of(lake, topic), to_topic=f"{topic}-again").rows == 0
    assert len(topic_rows(broker.address, f"{topic}-again")) == 2
