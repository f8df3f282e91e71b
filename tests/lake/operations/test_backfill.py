"""`lake backfill`: columns that came later are filled from the topic, once, whoever dies meanwhile (P4, P5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from click.testing import CliRunner

from flintmq.cli.main import main
from flintmq.errors import ConfigurationError
from flintmq.lake.audit.audit import audit
from flintmq.lake.audit.report import AuditProblemKind, TableAudit
from flintmq.lake.backfill import backfill as backfilling
from flintmq.lake.backfill.backfill import BackfillReport, backfill
from flintmq.lake.clean import clean
from flintmq.lake.compact.compact import compact
from flintmq.lake.fan_out import map_in_workers
from flintmq.lake.latest.latest import latest
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.column_notes import BACKFILL, open_backfill
from flintmq.lake.syncing.options import SyncOptions, make_options
from flintmq.lake.tables.table import TableChange
from flintmq.records.record import NewRecord
from support.lake.synced_lake import FORMATS, Lake
from support.spark.spark_topics import TIME_MS, Topics

WITHOUT_SPARK = True

COLUMNS = "id long"
MORE = "id long, total long, place struct<zip: string>"


def records(first: int, count: int, **more: Any) -> list[NewRecord]:
    return [
        (
            b"k",
            json.dumps({"id": number, "total": number * 10, "place": {"zip": str(number)}, **more}).encode(),
            TIME_MS + number,
            (),
        )
        for number in range(first, first + count)
    ]


def options_of(lake: Lake, topic: str, format: str = "parquet") -> SyncOptions:
    return make_options([topic], to=lake.root, format=format, bootstrap_servers=lake.address)


def filled(lake: Lake, topic: str, format: str = "parquet", **more: Any) -> BackfillReport:
    (report,) = backfill(lake.spark, options_of(lake, topic, format), **more)
    return report


def audited(lake: Lake, topic: str, format: str = "parquet") -> TableAudit:
    (found,) = audit(lake.spark, options_of(lake, topic, format))
    return found


def values(lake: Lake, topic: str, format: str = "parquet") -> list[tuple[int, int | None, str | None]]:
    return [
        (row["id"], row["total"], None if row["place"] is None else row["place"]["zip"])
        for row in lake.rows(topic, format)
    ]


def whole(*numbers: int) -> list[tuple[int, int, str]]:
    return [(number, number * 10, str(number)) for number in numbers]


@pytest.mark.parametrize("format", FORMATS)
def test_older_rows_get_the_columns_and_the_audit_agrees_all_the_time(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic, partitions=2)
    topics.write(topic, records(0, 3))
    topics.write(topic, records(10, 2), partition=1)
    lake.sync(topic, format=format, decode="json", schema=COLUMNS)
    topics.write(topic, records(3, 1))
    lake.sync(topic, format=format, decode="json", schema=MORE)
    # Merged, old rows and new ones are in one file, which has the columns.
    compact(lake.spark, lake.table(topic, format), open_store(lake.table(topic, format).location))
    before = audited(lake, topic, format)
    assert (before.is_good, before.compared, before.open_columns) == (True, 6, ("place", "total"))
    report = filled(lake, topic, format)
    assert (report.columns, report.filled, report.gone, report.unfit) == (("place", "total"), 5, 0, 0)
    assert values(lake, topic, format) == whole(0, 1, 2, 3, 10, 11)
    after = audited(lake, topic, format)
    assert (after.is_good, after.compared, after.open_columns) == (True, 6, ())
    assert open_backfill(lake.state(topic, format)) == {}
    again = filled(lake, topic, format)
    assert (again.columns, again.files, again.commits) == ((), 0, 0)
    topics.write(topic, records(4, 1))
    lake.sync(topic, format=format, decode="json")
    assert values(lake, topic, format) == whole(0, 1, 2, 3, 4, 10, 11)


@pytest.mark.parametrize("format", FORMATS)
def test_the_table_of_latest_rows_has_the_values_too(
    lake: Lake, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 2))
    lake.sync(topic, format=format, decode="json", schema=COLUMNS)
    lake.sync(topic, format=format, decode="json", schema=MORE)
    source, target = lake.table(topic, format), lake.table(f"{topic}__latest", format)

    def refresh() -> int:
        stores = open_store(source.location), open_store(target.location)
        return latest(lake.spark, source, stores[0], target, stores[1]).files_read

    assert refresh() == 1
    assert values(lake, f"{topic}__latest", format) == [(1, None, None)]
    filled(lake, topic, format)
    assert refresh() == 1
    assert values(lake, f"{topic}__latest", format) == whole(1)
    assert refresh() == 0


def test_an_audit_sees_rows_that_were_not_filled_and_should_be(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 2))
    lake.sync(topic, decode="json", schema=COLUMNS)
    topics.write(topic, records(2, 1))
    lake.sync(topic, decode="json", schema="id long, total long")
    table = lake.table(topic)
    compact(lake.spark, table, open_store(table.location))
    state = lake.state(topic)
    properties = {name: text for name, text in state.properties.items() if name != BACKFILL}
    table.commit(TableChange(base=state, properties=properties))
    (problem,) = audited(lake, topic).problems
    assert (problem.kind, problem.start, problem.end, problem.column) == (
        AuditProblemKind.CHANGED,
        0,
        2,
        "total",
    )
    assert filled(lake, topic, columns=["total"]).filled == 3
    assert audited(lake, topic).is_good


def test_rows_that_the_topic_does_not_hold_any_more_are_counted_and_stay_null(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, [*records(0, 4), *records(4, 1, total="many")])
    lake.sync(topic, decode="json", schema=COLUMNS)
    topics.delete_before(topic, 2)
    lake.sync(topic, decode="json", schema=MORE)
    report = filled(lake, topic)
    assert (report.filled, report.gone, report.unfit) == (2, 2, 1)
    assert values(lake, topic) == [(0, None, None), (1, None, None), *whole(2, 3), (4, None, None)]


def test_a_column_that_is_named_is_filled_in_all_rows(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 3))
    lake.sync(topic, decode="json", schema=COLUMNS)
    lake.sync(topic, decode="json", schema=MORE)
    assert filled(lake, topic, columns=["total"]).columns == ("total",)
    assert values(lake, topic) == [(0, 0, None), (1, 10, None), (2, 20, None)]
    assert filled(lake, topic).columns == ("place",)
    assert filled(lake, topic, columns=["id"]).filled == 3
    with pytest.raises(ConfigurationError, match="has no column wrong"):
        filled(lake, topic, columns=["wrong"])


def test_the_rest_is_filled_too(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 1))
    lake.sync(topic, decode="json", schema=COLUMNS)
    lake.sync(topic, decode="json", rest="others")
    filled(lake, topic)
    (row,) = lake.rows(topic)
    assert json.loads(row["others"]) == {"total": 0, "place": {"zip": "0"}}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("step", ["planned", "written", "committed"])
def test_who_dies_half_way_is_followed_by_one_who_ends_it(
    lake: Lake, topics: Topics, topic: str, format: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    for first in range(4):
        topics.write(topic, records(first, 1))
        lake.sync(topic, format=format, decode="json", schema=COLUMNS)
    lake.sync(topic, format=format, decode="json", schema=MORE)
    table = lake.table(topic, format)
    calls = 0

    def dying(function: Callable[..., Any], *, is_after: bool) -> Callable[..., Any]:
        def die(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls < 2:  # the first commit of two files is made
                return function(*arguments, **options)
            if is_after:
                function(*arguments, **options)
            raise KeyboardInterrupt

        return die

    with monkeypatch.context() as patched:
        if step == "committed":
            patched.setattr(type(table), "commit", dying(type(table).commit, is_after=True))
        else:
            patched.setattr(backfilling, "map_in_workers", dying(map_in_workers, is_after=step == "written"))
        with pytest.raises(KeyboardInterrupt):
            filled(lake, topic, format, files_per_commit=2)
    assert [row["id"] for row in lake.rows(topic, format)] == [0, 1, 2, 3]
    assert audited(lake, topic, format).is_good
    report = filled(lake, topic, format, files_per_commit=2)
    assert report.filled == (0 if step == "committed" else 2)
    assert values(lake, topic, format) == whole(0, 1, 2, 3)
    assert audited(lake, topic, format).is_good
    clean(table, open_store(table.location), keep_ms=0)
    assert values(lake, topic, format) == whole(0, 1, 2, 3)


def test_a_sync_and_a_compaction_meanwhile_cost_another_plan_and_nothing_else(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    for first in range(2):
        topics.write(topic, records(first, 1))
        lake.sync(topic, decode="json", schema=COLUMNS)
    lake.sync(topic, decode="json", schema=MORE)
    calls = 0

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        found = map_in_workers(*arguments, **options)
        if calls == 1:
            topics.write(topic, records(2, 1))
            lake.sync(topic, decode="json")
            compact(lake.spark, lake.table(topic), open_store(lake.table(topic).location))
        return found

    monkeypatch.setattr(backfilling, "map_in_workers", meanwhile)
    assert filled(lake, topic).filled == 2
    assert calls == 2
    assert values(lake, topic) == whole(0, 1, 2)
    assert audited(lake, topic).is_good


def test_the_command_says_what_it_did(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, records(0, 3))
    lake.sync(topic, decode="json", schema=COLUMNS)
    place = [topic, "--to", lake.root, "-b", lake.address]

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["lake", *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    assert "columns added: total, place" in run("sync", *place, "--decode", "json", "--schema", MORE)
    assert "see flintmq lake backfill" in run("status", *place)
    assert "place, total filled in 3 rows, 1 file rewritten" in run("backfill", *place)
    assert "nothing to fill" in run("backfill", *place)
    assert "fields without a column" not in run("audit", *place)
    topics.write(topic, records(3, 1, note="x"))
    assert "fields without a column: note (1 record)" in run("sync", *place, "--decode", "json")
    assert "fields without a column: note (1 record)" in run("audit", *place)
    for command in ("sync", "rebuild"):
        refused = CliRunner().invoke(
            main, ["lake", command, *place, "--schema", "a long", "--schema", "b long"]
        )
        assert refused.exit_code == 2
        assert "given twice" in refused.output
