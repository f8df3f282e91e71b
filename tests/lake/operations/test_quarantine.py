"""Quarantined records on their way back: replayed once each, listed, shown and discarded, whoever dies meanwhile."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.cli.main import main
from flintmq.errors import FlintError
from flintmq.lake.audit.audit import audit
from flintmq.lake.clean import clean
from flintmq.lake.compact.compact import compact
from flintmq.lake.latest.latest import latest
from flintmq.lake.limits import QuarantineLimits
from flintmq.lake.quarantine.open import QuarantinedTopic, open_quarantined
from flintmq.lake.quarantine.records import counts, discard, listed, shown
from flintmq.lake.quarantine.replay import QuarantineReplay, replay_quarantined
from flintmq.lake.quarantine.table import Position
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.options import make_options
from flintmq.lake.tables.table import TableError
from support.lake.deaths import Killed, Step, dying
from support.lake.sync_program import COMMITS
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True

STRICT = "id long, name string not null"
MILD = "id long, name string"
"""Takes records that STRICT does not."""
GARBAGE = (b"bad", b"{", TIME_MS, (("h", b"1"),))


def good(number: int, name: str | None = "n", key: bytes = b"k") -> Any:
    fields = {"id": number} if name is None else {"id": number, "name": name}
    return (key, json.dumps(fields).encode(), TIME_MS + number, ())


def nameless(number: int, key: bytes = b"k") -> Any:
    return good(number, None, key)


def fill(lake: Lake, topics: Topics, topic: str, format: str = "parquet", **options: Any) -> None:
    """In partition 0: rows 0, 2, 4, records that can be decoded later at 1 and 3, garbage at 5; in 1 none but bad."""
    topics.create(topic, partitions=2)
    topics.write(topic, [good(0), nameless(1), good(2)])
    topics.write(topic, [nameless(0), GARBAGE], partition=1)
    lake.sync(topic, format=format, decode="json", schema=STRICT, **options)
    topics.write(topic, [nameless(3), good(4), GARBAGE])
    lake.sync(topic, format=format, decode="json", schema=STRICT, **options)


def relax(lake: Lake, topics: Topics, topic: str, format: str = "parquet") -> None:
    topics.write(topic, [good(6)])
    lake.sync(topic, format=format, decode="json", schema=MILD)


def opened(lake: Lake, topic: str, format: str = "parquet") -> QuarantinedTopic:
    return open_quarantined(lake.root, topic, format, settings=lake.settings, catalog=lake.catalog)


def replay(lake: Lake, topic: str, format: str = "parquet", **options: Any) -> QuarantineReplay:
    return replay_quarantined(lake.spark, opened(lake, topic, format), **options)


def rows(lake: Lake, topic: str, format: str = "parquet") -> list[tuple[int, int, int]]:
    return [(row["partition"], row["offset"], row["id"]) for row in lake.rows(topic, format)]


def quarantined(lake: Lake, topic: str, format: str = "parquet") -> list[tuple[int, int]]:
    return [tuple(one.position) for one in listed(opened(lake, topic, format), limit=100)]  # type: ignore[misc]


def check_audit(lake: Lake, topic: str, format: str = "parquet") -> None:
    options = make_options([topic], to=lake.root, format=format, bootstrap_servers=lake.address)
    (found,) = audit(lake.spark, options)
    assert found.is_good, found.problems


ALL = [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 4), (0, 6, 6), (1, 0, 0)]
HOPELESS = [(0, 5), (1, 1)]


@pytest.mark.parametrize("format", FORMATS)
def test_records_that_can_be_decoded_by_now_become_rows_once(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    """P4: a record is in the table or in the quarantine, once, also when it goes from there to here."""
    fill(lake, topics, topic, format)
    assert quarantined(lake, topic, format) == [(0, 1), (0, 3), (0, 5), (1, 0), (1, 1)]
    # The table's schema does not take them yet.
    assert replay(lake, topic, format) == QuarantineReplay(replayed=0, left=5, files=0)
    relax(lake, topics, topic, format)
    # One commit for each record.
    done = replay(lake, topic, format, limits=QuarantineLimits(records_max=1))
    assert (done.replayed, done.left) == (3, 2)
    assert rows(lake, topic, format) == ALL
    assert [
        (row["partition"], row["offset"]) for row in lake.rows(f"{topic}__quarantine", format)
    ] == HOPELESS
    assert counts(opened(lake, topic, format)).replayed == 3
    check_audit(lake, topic, format)
    assert replay(lake, topic, format) == QuarantineReplay(replayed=0, left=2, files=0)
    # The files are like any others to whoever works on them.
    table, store = opened(lake, topic, format).table, opened(lake, topic, format).store
    compact(lake.spark, table, store)
    assert len(lake.paths(topic, format)) == 2
    clean(table, store, keep_ms=-3_600_000)
    assert {entry.path for entry in store.list("data")} == set(lake.paths(topic, format))
    quarantine = lake.table(f"{topic}__quarantine", format)
    clean(quarantine, open_store(quarantine.location), keep_ms=-3_600_000)
    assert rows(lake, topic, format) == ALL
    assert quarantined(lake, topic, format) == HOPELESS
    check_audit(lake, topic, format)
    # And a sync goes on.
    topics.write(topic, [nameless(7), GARBAGE])
    lake.sync(topic, format=format, decode="json", schema=MILD)
    assert rows(lake, topic, format) == sorted([*ALL, (0, 7, 7)])
    assert quarantined(lake, topic, format) == [(0, 5), (0, 8), (1, 1)]
    check_audit(lake, topic, format)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_come_to_the_partition_of_the_table_that_they_belong_to(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    more = {"format": format, "decode": "json", "partition_by": ["city"]}

    def record(number: int, city: str, name: str | None) -> Any:
        fields = {"id": number, "city": city, **({} if name is None else {"name": name})}
        return (b"k", json.dumps(fields).encode(), TIME_MS, ())

    topics.write(topic, [record(0, "Oslo", "n"), record(1, "Oslo", None), record(2, "Rome", "n")])
    topics.write(topic, [record(3, "Bergen", None), record(4, "Oslo", "n"), record(5, "Bergen", None)])
    lake.sync(topic, schema="id long, city string, name string not null", **more)
    topics.write(topic, [record(6, "Rome", "n")])
    lake.sync(topic, schema="id long, city string, name string", **more)
    assert replay(lake, topic, format).replayed == 3
    found = [(row["id"], row["city"]) for row in lake.rows(topic, format)]
    cities = ["Oslo", "Oslo", "Rome", "Bergen", "Oslo", "Bergen", "Rome"]
    assert found == list(enumerate(cities))
    check_audit(lake, topic, format)
    source = opened(lake, topic, format)
    compact(lake.spark, source.table, source.store)
    check_audit(lake, topic, format)


STEPS = {
    "planned": ("flintmq.lake.quarantine.replay:map_in_workers", False, 1),
    "written": ("flintmq.lake.quarantine.replay:map_in_workers", True, 1),
    "committed": ("flintmq.lake.quarantine.table:QuarantineTable.complete", False, 2),
    "file of the quarantine": ("flintmq.lake.quarantine.table:_rewrite", True, 1),
    "completed": ("flintmq.lake.quarantine.table:QuarantineTable.complete", True, 2),
}
"""Where, before or after, and at which call."""


def steps_of(format: str) -> dict[str, Step]:
    commits = {
        f"{step}, commit {number}": (path, is_after, number)
        for step, (path, is_after) in COMMITS[format].items()
        for number in (1, 2)
    }
    return {**STEPS, **commits}


@pytest.mark.parametrize(
    "format", ["parquet", *(pytest.param(one, marks=pytest.mark.long) for one in ("iceberg", "delta"))]
)
def test_a_replay_that_ends_at_any_step_brings_each_record_once(
    lake: Lake, topics: Topics, topic: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4, under a kill of whoever replays."""
    topics.create(topic)
    expected: list[tuple[int, int, int]] = []
    for number, step in enumerate(steps_of(format)):
        first = number * 3
        topics.write(topic, [good(first), nameless(first + 1)])
        lake.sync(topic, format=format, decode="json", schema=STRICT)
        topics.write(topic, [good(first + 2)])
        lake.sync(topic, format=format, decode="json", schema=MILD)
        expected += [(0, one, one) for one in range(first, first + 3)]
        with monkeypatch.context() as patched:
            dying(steps_of(format)[step], patched)
            with pytest.raises(Killed):
                replay(lake, topic, format)
        # Whatever was done of it: the record is here or there.
        late = (0, first + 1, first + 1)
        there = [(*one, one[1]) for one in quarantined(lake, topic, format)]
        assert sorted([*rows(lake, topic, format), *there]) == expected, step
        total = counts(opened(lake, topic, format))
        assert (total.open, total.replayed) == (len(there), number + 1 - len(there)), step
        if number % 2:
            # A sync completes what a replay began, and begins none itself.
            lake.sync(topic, format=format, decode="json", schema=MILD)
            is_row = late in rows(lake, topic, format)
            assert len(lake.paths(f"{topic}__quarantine", format)) == (0 if is_row else 1), step
        replay(lake, topic, format)
        assert rows(lake, topic, format) == expected, step
        assert lake.paths(f"{topic}__quarantine", format) == []
    assert counts(opened(lake, topic, format)).replayed == len(steps_of(format))
    check_audit(lake, topic, format)
    for name in (topic, f"{topic}__quarantine"):
        table = lake.table(name, format)
        store = open_store(table.location)
        clean(table, store, keep_ms=-3_600_000)
        assert {entry.path for entry in store.list("data")} == set(lake.paths(name, format))
    check_audit(lake, topic, format)


@pytest.mark.parametrize("step", ["before-the-commit", "before-the-completion"])
def test_an_audit_agrees_whenever_a_replay_was_killed(
    lake: Lake, topics: Topics, topic: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, topics, topic)
    relax(lake, topics, topic)
    where = STEPS["written" if step == "before-the-commit" else "committed"]
    with monkeypatch.context() as patched:
        dying(where, patched)
        with pytest.raises(Killed):
            replay(lake, topic)
    check_audit(lake, topic)
    replay(lake, topic)
    check_audit(lake, topic)


def before_the_commit(do: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Something that happens when the files of a replay are written and not committed; once."""
    path = "flintmq.lake.quarantine.replay.map_in_workers"
    write = pkgutil.resolve_name(path)
    done: list[str] = []

    def written(*args: Any, **options: Any) -> Any:
        result = write(*args, **options)
        if not done:
            done.append("done")
            do()
        return result

    monkeypatch.setattr(path, written)
    return done


@pytest.mark.parametrize("format", FORMATS)
def test_of_two_replays_at_once_one_brings_each_record(
    lake: Lake, topics: Topics, topic: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, topics, topic, format)
    relax(lake, topics, topic, format)
    faster: list[QuarantineReplay] = []
    before_the_commit(lambda: faster.append(replay(lake, topic, format)), monkeypatch)
    assert replay(lake, topic, format).replayed == 0
    assert [one.replayed for one in faster] == [3]
    assert rows(lake, topic, format) == ALL
    assert counts(opened(lake, topic, format)).replayed == 3


def test_a_sync_and_a_compaction_may_go_on_during_a_replay(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, topics, topic)
    relax(lake, topics, topic)

    def meddle() -> None:
        topics.write(topic, [good(7), GARBAGE])
        lake.sync(topic, decode="json", schema=MILD)
        compact(lake.spark, opened(lake, topic).table, opened(lake, topic).store)

    assert before_the_commit(meddle, monkeypatch) == []
    assert replay(lake, topic).replayed == 3
    assert rows(lake, topic) == sorted([*ALL, (0, 7, 7)])
    assert quarantined(lake, topic) == [(0, 5), (0, 8), (1, 1)]
    check_audit(lake, topic)


def test_the_latest_row_of_a_key_may_be_one_that_was_replayed(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, [good(0, key=b"a"), good(1, key=b"b"), nameless(2, key=b"a"), nameless(3, key=b"b")])
    topics.write(topic, [good(4, key=b"b"), nameless(5, key=b"c")])
    lake.sync(topic, decode="json", schema=STRICT)

    def refreshed() -> dict[bytes, int]:
        source, target = lake.table(topic), lake.table(f"{topic}__latest")
        latest(lake.spark, source, open_store(source.location), target, open_store(target.location))
        return {row["key"]: row["id"] for row in lake.rows(f"{topic}__latest")}

    assert refreshed() == {b"a": 0, b"b": 4}
    topics.write(topic, [good(6, key=b"d")])
    lake.sync(topic, decode="json", schema=MILD)
    assert refreshed() == {b"a": 0, b"b": 4, b"d": 6}
    replay(lake, topic)
    assert refreshed() == {b"a": 2, b"b": 4, b"c": 5, b"d": 6}
    assert refreshed() == {b"a": 2, b"b": 4, b"c": 5, b"d": 6}
    target = lake.table(f"{topic}__latest")
    clean(target, open_store(target.location), keep_ms=-3_600_000)
    topics.write(topic, [good(7, key=b"a")])
    lake.sync(topic, decode="json", schema=MILD)
    assert refreshed() == {b"a": 7, b"b": 4, b"c": 5, b"d": 6}


@pytest.mark.parametrize("format", FORMATS)
def test_discarded_records_are_gone_and_known(lake: Lake, topics: Topics, topic: str, format: str) -> None:
    fill(lake, topics, topic, format)
    source = opened(lake, topic, format)
    assert shown(source, Position(0, 5)).value == b"{"
    assert shown(source, Position(0, 5)).headers == (("h", b"1"),)
    assert discard(source, [Position(0, 5), Position(1, 0)]) == 2
    assert quarantined(lake, topic, format) == [(0, 1), (0, 3), (1, 1)]
    assert [tuple(one.position) for one in listed(source, limit=1, discarded=True)] == [(0, 5)]
    kept = [row for row in lake.rows(f"{topic}__quarantine", format) if row["state"] == "discarded"]
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in kept] == [
        (0, 5, None, None),
        (1, 0, None, None),
    ]
    check_audit(lake, topic, format)
    with pytest.raises(TableError, match="no open record at 0:5"):
        discard(source, [Position(0, 1), Position(0, 5)])
    relax(lake, topics, topic, format)
    assert replay(lake, topic, format).replayed == 2
    assert rows(lake, topic, format) == [one for one in ALL if one != (1, 0, 0)]
    assert discard(source, None) == 1
    total = counts(source)
    assert (total.open, total.replayed, total.discarded) == (0, 2, 3)
    topics.write(topic, [GARBAGE])
    lake.sync(topic, format=format, decode="json", schema=MILD)
    assert quarantined(lake, topic, format) == [(0, 7)]


def test_a_record_that_is_discarded_during_its_replay_is_a_row_and_not_counted_twice(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, topics, topic)
    relax(lake, topics, topic)
    before_the_commit(lambda: discard(opened(lake, topic), [Position(0, 3)]), monkeypatch)
    assert replay(lake, topic).replayed == 3
    assert rows(lake, topic) == ALL
    total = counts(opened(lake, topic))
    assert (total.open, total.replayed, total.discarded) == (2, 3, 0)
    check_audit(lake, topic)


@pytest.mark.parametrize("format", FORMATS)
def test_a_quarantine_that_becomes_a_topic_or_a_table_takes_only_what_is_new(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    side = f"{topic}-bad"
    topics.create(side)
    topics.create(topic)

    def sync(*records: Any, **options: Any) -> None:
        topics.write(topic, list(records))
        lake.sync(topic, format=format, decode="json", schema=STRICT, **options)

    def in_topic() -> list[int]:
        headers = [
            {one["key"]: one["value"] for one in row["headers"]} for row in topic_rows(lake.address, side)
        ]
        return [int(one["flintmq.lake.offset"]) for one in headers]

    sync(good(0), GARBAGE)
    sync(good(2), quarantine=f"topic:{side}")
    assert (in_topic(), quarantined(lake, topic, format)) == ([], [(0, 1)])
    sync(GARBAGE, quarantine=f"topic:{side}")
    assert (in_topic(), quarantined(lake, topic, format)) == ([3], [(0, 1)])
    # The records of the last commit are in the topic, and their files are gone.
    sync(good(4))
    sync(GARBAGE)
    assert (in_topic(), quarantined(lake, topic, format)) == ([3], [(0, 1), (0, 5)])
    assert [number for _, _, number in rows(lake, topic, format)] == [0, 2, 4]


def test_what_cannot_be_replayed_is_refused_with_a_way_out(lake: Lake, topics: Topics, topic: str) -> None:
    with pytest.raises(TableError, match="There is no table"):
        replay(lake, topic)
    topics.create(topic)
    topics.write(topic, [good(0)])
    lake.sync(topic)
    with pytest.raises(TableError, match="decode raw"):
        replay(lake, topic)
    topics.create(f"{topic}-bad")
    topics.create(f"{topic}-2")
    topics.write(f"{topic}-2", [good(0), GARBAGE])
    lake.sync(f"{topic}-2", decode="json", schema=MILD, quarantine=f"topic:{topic}-bad")
    with pytest.raises(TableError, match="rebuild the table"):
        replay(lake, f"{topic}-2")
    with pytest.raises(FlintError, match="in a topic"):
        quarantined(lake, f"{topic}-2")


def test_the_commands_list_show_discard_and_replay(
    lake: Lake, topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, topics, topic)
    monkeypatch.setattr("flintmq.cli.lake.replay.open_session", lambda *_: lake.spark)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["lake", *arguments, "--to", lake.root])

    found = run("quarantine", "list", topic, "--limit", "2")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["RECORD", "0:1", "0:3"]
    assert "3 more" in found.stderr
    found = run("quarantine", "list", topic, "--json")
    assert [(one["partition"], one["offset"]) for one in json.loads(found.stdout)][-1] == (1, 1)
    found = run("quarantine", "show", topic, "1:1")
    assert "header h: 1\nkey: bad\nvalue: {\n" in found.stdout
    found = run("quarantine", "show", topic, "1:1", "--json")
    assert json.loads(found.stdout)["headers"] == [{"name": "h", "value": "1"}]
    found = run("quarantine", "show", topic, "one")
    assert (found.exit_code, "expected PARTITION:OFFSET" in found.stderr) == (2, True)
    found = run("quarantine", "discard", topic)
    assert (found.exit_code, "say --all" in found.stderr) == (2, True)
    found = run("quarantine", "discard", topic, "1:1", "--yes")
    assert found.stdout.endswith(": 1 record discarded\n")
    relax(lake, topics, topic)
    found = run("replay", topic, "--quarantined", "--json")
    assert found.exit_code == 0, found.output
    done = json.loads(found.stdout)
    assert (done["replayed"], done["left"]) == (3, 1)
    found = run("replay", topic, "--quarantined", "--to-topic", "other")
    assert (found.exit_code, "--to-topic is about a replay to a topic" in found.stderr) == (2, True)
    found = run("replay", topic)
    assert (found.exit_code, "--quarantined for records from quarantine" in found.stderr) == (2, True)
    found = run("status", topic, "--bootstrap-server", lake.address)
    assert "quarantine: 1 open, 3 replayed, 1 discarded; 2 rows in" in found.stdout
    found = run("status", topic, "--bootstrap-server", lake.address, "--json")
    (status,) = json.loads(found.stdout)
    assert (status["quarantined"], status["replayed"], status["discarded"]) == (1, 3, 1)
