"""`lake rebuild`: a table made anew from its topic, swapped in at once, whoever dies or writes meanwhile."""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.cli.main import main
from flintmq.errors import ConfigurationError
from flintmq.lake.audit.audit import audit
from flintmq.lake.clean import clean
from flintmq.lake.compact.compact import compact
from flintmq.lake.latest.latest import latest
from flintmq.lake.quarantine.open import open_quarantined
from flintmq.lake.quarantine.replay import replay_quarantined
from flintmq.lake.rebuild import RebuildReport, rebuild
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.column_notes import extra_fields, open_backfill
from flintmq.lake.syncing.options import make_options
from flintmq.lake.syncing.planner import SyncGap
from flintmq.lake.tables.table import TableError
from support.broker.broker_process import BrokerProcess
from support.lake.deaths import Killed, Step, dying
from support.lake.sync_program import COMMITS
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True

SCHEMA = "id long, name string"
BAD = (b"bad", b"{", TIME_MS, ())


def record(number: int, **fields: Any) -> Any:
    return (b"k%d" % (number % 3), json.dumps({"id": number, **fields}).encode(), TIME_MS + number, ())


def records(first: int, count: int) -> list[Any]:
    return [record(number, name=f"n{number}", size=number * 2) for number in range(first, first + count)]


def rebuilt(
    lake: Lake, topic: str, format: str = "parquet", *, anew: dict[str, Any] | None = None, **more: Any
) -> RebuildReport:
    options = make_options(
        [topic],
        to=lake.root,
        format=format,
        bootstrap_servers=lake.address,
        store=lake.settings,
        catalog=lake.catalog,
        **(anew or {}),
        **more,
    )
    return rebuild(lake.spark, options, decoding=options.decoding if anew else None)


def check_audit(lake: Lake, topic: str, format: str = "parquet") -> None:
    options = make_options([topic], to=lake.root, format=format, bootstrap_servers=lake.address)
    (found,) = audit(lake.spark, options)
    assert found.is_good, found.problems


def ids(lake: Lake, topic: str, format: str = "parquet") -> list[Any]:
    return [row["id"] for row in lake.rows(topic, format)]


def bad_offsets(lake: Lake, topic: str, format: str = "parquet") -> list[int]:
    if not lake.paths(f"{topic}__quarantine", format):
        return []
    return [row["offset"] for row in lake.rows(f"{topic}__quarantine", format)]


def check_cleaned(lake: Lake, topic: str, format: str) -> None:
    for name in (topic, f"{topic}__quarantine"):
        table = lake.table(name, format)
        store = open_store(table.location)
        clean(table, store, keep_ms=-3_600_000)
        assert {entry.path for entry in store.list("data")} == set(lake.paths(name, format))


@pytest.mark.parametrize("format", FORMATS)
def test_a_rebuilt_table_has_the_columns_that_it_could_not_get_otherwise(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    """P5: a column of another type, one more and one less; what did not decode may, and what did may not."""
    topics.create(topic)
    topics.write(topic, [*records(0, 4), BAD, record(5, name=7)])
    lake.sync(topic, format=format, decode="json", schema=SCHEMA)
    topics.write(topic, records(6, 2))
    lake.sync(topic, format=format, decode="json", schema=SCHEMA)
    source, target = lake.table(topic, format), lake.table(f"{topic}__latest", format)
    latest(lake.spark, source, open_store(source.location), target, open_store(target.location))
    assert bad_offsets(lake, topic, format) == [4, 5]
    done = rebuilt(lake, topic, format, anew={"decode": "json", "schema": "id int, size long, name json"})
    assert (done.rows, done.quarantined, done.lost) == (7, 1, 0)
    rows = lake.rows(topic, format)
    assert [(row["offset"], row["id"], row["size"], row["name"]) for row in rows] == [
        (number, number, None if number == 5 else number * 2, "7" if number == 5 else f'"n{number}"')
        for number in (0, 1, 2, 3, 5, 6, 7)
    ]
    assert bad_offsets(lake, topic, format) == [4]
    check_audit(lake, topic, format)
    # The table goes on as any other.
    topics.write(topic, [*records(8, 2), BAD])
    lake.sync(topic, format=format, decode="json")
    assert ids(lake, topic, format) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert bad_offsets(lake, topic, format) == [4, 10]
    fresh = lake.table(topic, format)
    compact(lake.spark, fresh, open_store(fresh.location))
    check_audit(lake, topic, format)
    # Also the table that is made from it.
    source, target = lake.table(topic, format), lake.table(f"{topic}__latest", format)
    latest(lake.spark, source, open_store(source.location), target, open_store(target.location))
    found = {row["key"]: (row["id"], row["size"]) for row in lake.rows(f"{topic}__latest", format)}
    assert found == {b"k0": (9, 18), b"k1": (7, 14), b"k2": (8, 16)}
    check_cleaned(lake, topic, format)
    check_audit(lake, topic, format)


def test_a_damaged_table_is_repaired(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 10))
    lake.sync(topic)
    topics.write(topic, records(10, 10))
    lake.sync(topic)
    damaged, missing = (Path(lake.root, topic, path) for path in lake.paths(topic))
    damaged.write_bytes(b"no Parquet at all")
    missing.unlink()
    assert rebuilt(lake, topic).rows == 20
    assert [row["offset"] for row in lake.rows(topic)] == list(range(20))
    check_audit(lake, topic)


@pytest.mark.parametrize("format", FORMATS)
def test_a_partitioned_table_stays_partitioned(lake: Lake, topics: Topics, topic: str, format: str) -> None:
    topics.create(topic)
    topics.write(topic, [record(0, city="Oslo"), record(1, city="Rome"), record(2, city="Oslo")])
    lake.sync(topic, format=format, decode="json", schema="id long, city string", partition_by=["city"])
    rebuilt(lake, topic, format, anew={"decode": "json", "schema": "id json, city string"})
    assert [(row["id"], row["city"]) for row in lake.rows(topic, format)] == [
        ("0", "Oslo"),
        ("1", "Rome"),
        ("2", "Oslo"),
    ]
    assert len(lake.paths(topic, format)) == 2
    check_audit(lake, topic, format)
    with pytest.raises(ConfigurationError, match="city"):
        rebuilt(lake, topic, format, anew={"decode": "json", "schema": "id long"})


def test_rows_that_the_topic_no_longer_holds_are_counted_and_kept(
    lake: Lake, topics: Topics, topic: str
) -> None:
    """P4: nothing is lost that nobody was told of."""
    topics.create(topic)
    topics.write(topic, [*records(0, 5), BAD])
    lake.sync(topic, decode="json", schema=SCHEMA)
    topics.write(topic, records(6, 5))
    lake.sync(topic, decode="json", schema=SCHEMA)
    topics.delete_before(topic, 8)
    before = lake.state(topic)
    with pytest.raises(SyncGap, match="no longer holds 8 records"):
        rebuilt(lake, topic)
    assert lake.state(topic) == before
    done = rebuilt(lake, topic, allow_gaps=True)
    assert (done.rows, done.lost) == (3, 8)
    assert ids(lake, topic) == [8, 9, 10]
    assert bad_offsets(lake, topic) == []
    check_audit(lake, topic)


def test_a_topic_that_was_made_again_takes_the_place_of_the_old_one(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, [*records(0, 5), BAD])
    lake.sync(topic, decode="json", schema=SCHEMA)
    topics.delete(topic)
    topics.create(topic)
    topics.write(topic, records(100, 2))
    with pytest.raises(SyncGap, match="no longer holds 6 records"):
        rebuilt(lake, topic)
    assert rebuilt(lake, topic, allow_gaps=True).rows == 2
    assert ids(lake, topic) == [100, 101]
    check_audit(lake, topic)


def test_a_compacted_topic_is_rebuilt_only_if_that_is_allowed(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, configs={"cleanup.policy": "compact"})
    topics.write(topic, records(0, 3))
    lake.sync(topic)
    with pytest.raises(SyncGap, match="is compacted"):
        rebuilt(lake, topic)
    assert rebuilt(lake, topic, allow_gaps=True).rows == 3


STEPS: dict[str, Step] = {
    "marked": ("flintmq.lake.rebuild:RangeRunner", False, 1),
    "planned": ("flintmq.lake.syncing.range_runner:RangeRunner.run", False, 1),
    "written": ("flintmq.lake.syncing.range_runner:RangeRunner.run", True, 1),
    "swapped": ("flintmq.lake.syncing.quarantine:TableQuarantine.complete_rebuild", False, 1),
    "completed": ("flintmq.lake.syncing.quarantine:TableQuarantine.complete_rebuild", True, 1),
}


def steps_of(format: str) -> dict[str, Step]:
    """The commits: the mark of the table, that of the quarantine, the swap, the quarantine's."""
    commits = {
        f"{step}, commit {number}": (path, is_after, number)
        for step, (path, is_after) in COMMITS[format].items()
        for number in (1, 2, 3, 4)
    }
    return {**STEPS, **commits}


@pytest.mark.parametrize(
    "format", ["parquet", *(pytest.param(one, marks=pytest.mark.long) for one in ("iceberg", "delta"))]
)
def test_a_rebuild_that_ends_at_any_step_leaves_the_old_table_or_the_new_one(
    lake: Lake, topics: Topics, topic: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4, under a kill of whoever rebuilds."""
    topics.create(topic)
    topics.write(topic, [*records(0, 3), BAD, record(4, name=7)])
    lake.sync(topic, format=format, decode="json", schema=SCHEMA)
    mild, strict = "id long, name json", SCHEMA
    for number, step in enumerate(steps_of(format)):
        schema = strict if number % 2 else mild
        with monkeypatch.context() as patched:
            dying(steps_of(format)[step], patched)
            with pytest.raises(Killed):
                rebuilt(lake, topic, format, anew={"decode": "json", "schema": schema})
        found = ids(lake, topic, format)
        assert found in ([0, 1, 2], [0, 1, 2, 4]), step
        check_audit(lake, topic, format)
        # Cleaning takes nothing that the next one needs, nor what the table has.
        for name in (topic, f"{topic}__quarantine"):
            table = lake.table(name, format)
            clean(table, open_store(table.location), keep_ms=-3_600_000)
        if number % 3 == 0:
            # A sync completes a quarantine that was left half way.
            lake.sync(topic, format=format, decode="json")
            assert bad_offsets(lake, topic, format) == ([3] if len(ids(lake, topic, format)) == 4 else [3, 4])
        done = rebuilt(lake, topic, format, anew={"decode": "json", "schema": schema})
        assert (done.rows, done.quarantined) == ((4, 1) if schema == mild else (3, 2)), step
        assert ids(lake, topic, format) == ([0, 1, 2, 4] if schema == mild else [0, 1, 2])
        assert bad_offsets(lake, topic, format) == ([3] if schema == mild else [3, 4])
    check_audit(lake, topic, format)
    check_cleaned(lake, topic, format)
    check_audit(lake, topic, format)


def test_a_sync_may_go_on_during_a_rebuild(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, [*records(0, 3), BAD])
    lake.sync(topic, decode="json", schema=SCHEMA)
    path = "flintmq.lake.rebuild._Rebuild._swap"
    swap = pkgutil.resolve_name("flintmq.lake.rebuild:_Rebuild._swap")
    done: list[str] = []

    def swapped(*args: Any) -> Any:
        if not done:
            done.append("done")
            topics.write(topic, [*records(4, 2), BAD])
            lake.sync(topic, decode="json", schema=SCHEMA)
            clean(lake.table(topic), open_store(lake.table(topic).location), keep_ms=-3_600_000)
        return swap(*args)

    monkeypatch.setattr(path, swapped)
    assert rebuilt(lake, topic, anew={"decode": "json", "schema": "id json, name string"}).rows == 5
    assert ids(lake, topic) == ["0", "1", "2", "4", "5"]
    assert bad_offsets(lake, topic) == [3, 6]
    check_audit(lake, topic)


def test_of_two_rebuilds_at_once_the_slower_one_is_refused(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, [*records(0, 3), BAD])
    lake.sync(topic, decode="json", schema=SCHEMA)
    swap = pkgutil.resolve_name("flintmq.lake.rebuild:_Rebuild._swap")
    done: list[str] = []

    def swapped(*args: Any) -> Any:
        if not done:
            done.append("done")
            rebuilt(lake, topic, anew={"decode": "json", "schema": "id json"})
        return swap(*args)

    monkeypatch.setattr("flintmq.lake.rebuild._Rebuild._swap", swapped)
    with pytest.raises(TableError, match="rebuilt by somebody else"):
        rebuilt(lake, topic, anew={"decode": "json", "schema": "id string"})
    assert ids(lake, topic) == ["0", "1", "2"]
    assert bad_offsets(lake, topic) == [3]
    check_audit(lake, topic)
    rebuilt(lake, topic, anew={"decode": "json", "schema": "id string"})
    assert lake.paths(topic) == []
    assert bad_offsets(lake, topic) == [0, 1, 2, 3]
    check_audit(lake, topic)


def test_a_sync_that_runs_on_does_not_bring_the_old_schema_back(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 3))
    with lake.open(topic, decode="json", schema=SCHEMA) as sync:
        sync.run()
        rebuilt(lake, topic, anew={"decode": "json", "schema": "id json"})
        topics.write(topic, records(3, 1))
        with pytest.raises(ConfigurationError, match="rebuilt meanwhile"):
            sync.run()
    lake.sync(topic, decode="json")
    assert ids(lake, topic) == ["0", "1", "2", "3"]


def test_a_replay_that_was_not_complete_takes_nothing_from_a_rebuilt_quarantine(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, [record(0, name="n"), record(1)])
    lake.sync(topic, decode="json", schema="id long, name string not null")
    topics.write(topic, [record(2, name="n")])
    lake.sync(topic, decode="json", schema=SCHEMA)
    source = open_quarantined(lake.root, topic, "parquet")
    with monkeypatch.context() as patched:
        dying(("flintmq.lake.quarantine.table:QuarantineTable.complete", False, 2), patched)
        with pytest.raises(Killed):
            replay_quarantined(lake.spark, source)
    rebuilt(lake, topic, anew={"decode": "json", "schema": "id long, name string not null"})
    lake.sync(topic, decode="json")
    assert ids(lake, topic) == [0, 2]
    assert bad_offsets(lake, topic) == [1]
    check_audit(lake, topic)


def test_records_for_a_quarantine_topic_are_written_again(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-bad")
    topics.write(topic, [*records(0, 3), BAD])
    more: dict[str, Any] = {"quarantine": f"topic:{topic}-bad"}
    lake.sync(topic, decode="json", schema=SCHEMA, **more)
    assert rebuilt(lake, topic, **more).quarantined == 1
    lake.sync(topic, decode="json", **more)
    assert len(topic_rows(broker.address, f"{topic}-bad")) == 2


def test_the_command_rebuilds_and_refuses_in_words(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, [*records(0, 3), BAD])
    monkeypatch.setattr("flintmq.cli.lake.rebuild.open_session", lambda *_: lake.spark)

    def run(*more: str) -> Any:
        return CliRunner().invoke(
            main, ["lake", "rebuild", topic, "--to", lake.root, "-b", lake.address, "--yes", *more]
        )

    done = run()
    assert (done.exit_code, "There is no table" in done.stderr) == (1, True)
    lake.sync(topic, decode="json", schema=SCHEMA)
    done = run("--schema", "id json", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found == {"table": f"{lake.root}/{topic}", "rows": 3, "files": 1, "quarantined": 1, "lost": 0}
    done = run()
    assert done.stdout == f"{lake.root}/{topic}: rebuilt, 3 rows in 1 file, 1 record quarantined\n"
    topics.delete_before(topic, 2)
    done = run()
    assert (done.exit_code, "--allow-gaps" in done.stderr) == (1, True)
    with pytest.raises(TableError, match="leave --quarantine out"):
        rebuilt(lake, topic, quarantine="topic:elsewhere")


def test_columns_that_older_rows_lacked_are_there_and_fields_are_counted_anew(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, [record(0, name="n", note="x"), record(1, note="y")])
    lake.sync(topic, decode="json", schema="id long")
    lake.sync(topic, decode="json", schema="id long, name string")
    assert open_backfill(lake.state(topic)) != {}
    rebuilt(lake, topic)
    state = lake.state(topic)
    assert (open_backfill(state), extra_fields(state)) == ({}, {"note": 2})
    assert [row["name"] for row in lake.rows(topic)] == ["n", None]
    check_audit(lake, topic)


def test_fields_without_a_column_stay_where_they_are_kept(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, [record(0, name="n", note="x")])
    lake.sync(topic, decode="json", schema="id long", rest="others")
    rebuilt(lake, topic, anew={"decode": "json", "schema": "id long, name string"})
    (row,) = lake.rows(topic)
    assert (row["name"], json.loads(row["others"])) == ("n", {"note": "x"})
    check_audit(lake, topic)
