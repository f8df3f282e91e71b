"""What every format of table promises, on a local folder and on a real S3 server."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, open_store
from flintmq.lake.tables.commit_log import new_id
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.factory import open_table
from flintmq.lake.tables.table import (
    Conflict,
    Format,
    PartitionField,
    Table,
    TableChange,
    TableError,
    TableState,
    TopicProgress,
    Transform,
)
from support.lake.data_files import SCHEMA, TOPIC, TOPIC_ID, rows_of, write_file
from support.lake.engines import read_plain, read_rows
from support.lake.s3_server import BUCKET, S3Server


class Lake:
    """A place for tables of one format."""

    def __init__(self, root: str, format: Format, settings: dict[str, str], catalog: str | None) -> None:
        self.root, self.format, self.settings, self.catalog = root, format, settings, catalog

    def open(self, name: str = TOPIC, limits: TableLimits = TABLE_LIMITS) -> Table:
        return open_table(
            self.root, name, self.format, settings=self.settings, catalog=self.catalog, limits=limits
        )

    def store(self, table: Table) -> Store:
        return open_store(table.location, self.settings)

    def rows(self, table: Table) -> pa.Table:
        from flintmq.lake.tables.iceberg.catalogs import open_catalog

        is_in_one = self.format is Format.ICEBERG
        catalog = open_catalog(self.root, self.catalog, self.settings) if is_in_one else None
        return read_rows(table, self.format, self.store(table), catalog)


"""Of formats that have checkpoints."""

LOCAL = [pytest.param((format, "local"), id=f"{format}-local") for format in Format]
REMOTE = [(format, "s3") for format in Format]

everywhere = pytest.mark.parametrize(
    "lake", [*LOCAL, *(pytest.param(one, id="-".join(one)) for one in REMOTE)], indirect=True
)
"""For what stores could make a difference to; of the rest, tests on S3 are among the long ones."""


@pytest.fixture(
    params=[*LOCAL, *(pytest.param(one, id="-".join(one), marks=pytest.mark.long) for one in REMOTE)]
)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    format, place = request.param
    if place == "local":
        return Lake(str(tmp_path / "lake"), format, {}, None)
    server: S3Server = request.getfixturevalue("s3")
    catalog = f"sqlite:///{tmp_path}/catalog.db" if format is Format.ICEBERG else None
    return Lake(f"s3://{BUCKET}/{tmp_path.name}-{new_id()}", format, server.settings, catalog)


def progress(*offsets: int) -> dict[str, TopicProgress]:
    return {TOPIC: TopicProgress(TOPIC_ID, dict(enumerate(offsets)))}


def file_of(lake: Lake, table: Table, state: TableState, start: int, end: int) -> DataFile:
    return write_file(lake.store(table), state.schema, rows_of(range(start, end)), start=start, end=end)


@everywhere
def test_a_table_that_is_not_there_has_no_state(lake: Lake) -> None:
    assert lake.open().state() is None


def test_a_new_table_is_empty_and_keeps_its_properties(lake: Lake) -> None:
    made = lake.open().create(SCHEMA, properties={"flintmq.shape": "raw"})
    table = lake.open()
    state = table.state()
    assert state is not None
    assert state.version == made.version
    assert state.schema.equals(SCHEMA)
    assert state.properties == {"flintmq.shape": "raw"}
    assert state.progress == {}
    assert list(table.files(state)) == []


def test_a_table_is_made_once(lake: Lake) -> None:
    lake.open().create(SCHEMA)
    with pytest.raises(Conflict):
        lake.open().create(SCHEMA)


@everywhere
def test_files_progress_and_properties_change_together(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    first = file_of(lake, table, state, 0, 100)
    state = table.commit(TableChange(base=state, added=[first], progress=progress(100)))
    second = file_of(lake, table, state, 100, 150)
    table.commit(
        TableChange(
            base=state, added=[second], progress=progress(150, 7), properties={"flintmq.shape": "json"}
        )
    )

    again = lake.open()
    after = again.state()
    assert after is not None
    assert after.progress == progress(150, 7)
    assert after.properties == {"flintmq.shape": "json"}
    found = {one.path: one for one in again.files(after)}
    assert found.keys() == {first.path, second.path}
    one = found[second.path]
    assert (one.topic, one.partition, one.start_offset, one.end_offset) == (TOPIC, 0, 100, 150)
    assert (one.rows, one.size) == (50, second.size)
    assert lake.rows(again).column("offset").to_pylist() == list(range(150))


def test_progress_alone_is_a_change_too(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    after = table.commit(TableChange(base=state, progress=progress(5)))
    assert after.progress == progress(5)
    with pytest.raises(Conflict):
        lake.open().commit(TableChange(base=state, progress=progress(6)))


def test_the_second_of_two_writers_is_told(lake: Lake) -> None:
    one, other = lake.open(), lake.open()
    one.create(SCHEMA)
    base, same = one.state(), other.state()
    assert base is not None
    assert same is not None
    added = file_of(lake, one, base, 0, 10)
    after = one.commit(TableChange(base=base, added=[added], progress=progress(10)))
    with pytest.raises(Conflict):
        other.commit(TableChange(base=same, added=[added], progress=progress(10)))
    state = other.state()
    assert state is not None
    assert state.version == after.version
    assert [file.path for file in other.files(state)] == [added.path]


@everywhere
def test_of_many_writers_at_once_one_wins_each_round(lake: Lake) -> None:
    setup = lake.open()
    state = setup.create(SCHEMA)
    files = [file_of(lake, setup, state, start, start + 10) for start in range(0, 30, 10)]
    outcomes: list[str] = []

    def write(table: Table, barrier: threading.Barrier) -> None:
        for _ in range(len(files) * 4):
            base = table.state()
            assert base is not None
            at = base.progress[TOPIC].next_offsets[0] if base.progress else 0
            if at == 30:
                return
            if at == 0 and not barrier.broken:
                barrier.wait(30)
            try:
                table.commit(TableChange(base=base, added=[files[at // 10]], progress=progress(at + 10)))
                outcomes.append("won")
            except Conflict:
                outcomes.append("lost")

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=write, args=(lake.open(), barrier)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("won") == 3
    assert "lost" in outcomes
    assert lake.rows(lake.open()).column("offset").to_pylist() == list(range(30))


def test_columns_come(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    state = table.commit(
        TableChange(base=state, added=[file_of(lake, table, state, 0, 10)], progress=progress(10))
    )
    extra = pa.struct([("a", pa.float64())])
    wanted = SCHEMA.append(pa.field("extra", extra))
    target = table.evolved(state, wanted)
    rows = rows_of(range(10, 20)).append_column("extra", pa.array([{"a": 1.5}] * 10, extra))
    new = write_file(lake.store(table), target, rows, start=10, end=20)
    state = table.commit(TableChange(base=state, added=[new], schema=wanted, progress=progress(20)))
    assert state.schema.equals(target)
    found = lake.rows(lake.open())
    assert found.column("amount").to_pylist() == [one * 2 for one in range(20)]
    assert found.column("extra").to_pylist() == [None] * 10 + [{"a": 1.5}] * 10


def test_columns_become_wider(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    state = table.commit(
        TableChange(base=state, added=[file_of(lake, table, state, 0, 10)], progress=progress(10))
    )
    wanted = pa.schema([one if one.name != "amount" else pa.field("amount", pa.int64()) for one in SCHEMA])
    target = table.evolved(state, wanted)
    new = write_file(lake.store(table), target, rows_of(range(10, 20)), start=10, end=20)
    table.commit(TableChange(base=state, added=[new], schema=wanted, progress=progress(20)))
    again = lake.open()
    after = again.state()
    assert after is not None
    assert after.schema.field("amount").type == pa.int64()
    if lake.format is Format.DELTA:
        # Its readers are told by the feature typeWidening, which deltalake does not read rows of yet.
        log = lake.store(table).get("_delta_log/00000000000000000002.json")
        assert log is not None
        assert b'"readerFeatures":["typeWidening"]' in log
        found = read_plain(again, lake.store(table)).sort_by("offset")
    else:
        found = lake.rows(again)
    assert found.schema.field("amount").type == pa.int64()
    assert found.column("amount").to_pylist() == [one * 2 for one in range(20)]


def test_a_column_of_another_type_is_refused_by_name(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    wanted = pa.schema([pa.field("amount", pa.string())])
    with pytest.raises(TableError, match="'amount' is int32"):
        table.evolved(state, wanted)
    with pytest.raises(TableError, match="'amount' is int32"):
        table.commit(TableChange(base=state, schema=wanted))
    assert table.state() == state


@everywhere
def test_files_take_the_place_of_others(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    small = [file_of(lake, table, state, start, start + 10) for start in range(0, 30, 10)]
    state = table.commit(TableChange(base=state, added=small, progress=progress(30)))
    present = {one.path: one for one in table.files(state)}
    merged = file_of(lake, table, state, 0, 20)
    change = TableChange(base=state, added=[merged], removed=[present[small[0].path], present[small[1].path]])
    state = table.commit(change)
    assert {one.path for one in table.files(state)} == {merged.path, small[2].path}
    assert state.progress == progress(30)
    assert lake.rows(lake.open()).column("offset").to_pylist() == list(range(30))
    with pytest.raises(Conflict):
        lake.open().commit(change)


def test_a_file_that_is_gone_cannot_be_replaced(lake: Lake) -> None:
    table = lake.open()
    state = table.create(SCHEMA)
    one = file_of(lake, table, state, 0, 10)
    with pytest.raises(Conflict, match="not in the table"):
        table.commit(TableChange(base=state, removed=[one]))


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [
        (PartitionField("timestamp", Transform.DAY), "2026-11-15", None),
        (PartitionField("timestamp", Transform.HOUR), "2026-11-15-00", None),
        (PartitionField("timestamp", Transform.MONTH), "2026-11", None),
        (PartitionField("timestamp", Transform.YEAR), "2026", None),
        (PartitionField("city", Transform.IDENTITY), "Bå/d %1", "city"),
        (PartitionField("city", Transform.IDENTITY), None, "city"),
        (PartitionField("partition", Transform.IDENTITY), "0", "partition"),
    ],
    ids=lambda given: getattr(given, "name", None),
)
def test_a_partitioned_table_keeps_the_values(
    lake: Lake, field: PartitionField, value: str | None, column: str | None
) -> None:
    table = lake.open()
    state = table.create(SCHEMA, partitioning=[field])
    assert state.partitioning == (field,)
    rows = rows_of(range(10), city=value if column == "city" else "Oslo")
    values = ((field.name, value),)
    made = write_file(lake.store(table), state.schema, rows, start=0, end=10, values=values)
    table.commit(TableChange(base=state, added=[made], progress=progress(10)))
    again = lake.open()
    after = again.state()
    assert after is not None
    assert after.partitioning == (field,)
    assert after.schema.equals(SCHEMA)
    (found,) = again.files(after)
    assert (found.path, found.partition_values) == (made.path, values)
    read = lake.rows(again)
    assert read.select(SCHEMA.names).sort_by("offset").to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    "lake",
    [(format, place) for format in (Format.PARQUET, Format.DELTA) for place in ("local", "s3")],
    ids="-".join,
    indirect=True,
)
def test_many_commits_are_read_from_a_checkpoint(lake: Lake) -> None:
    table = lake.open(limits=TableLimits(checkpoint_commits=4))
    state = table.create(SCHEMA)
    for start in range(0, 60, 10):
        added = file_of(lake, table, state, start, start + 10)
        state = table.commit(TableChange(base=state, added=[added], progress=progress(start + 10)))
    names = [entry.path for entry in lake.store(table).list("")]
    assert any("checkpoint" in name for name in names)
    again = lake.open()
    after = again.state()
    assert after is not None
    assert (after.version, after.progress) == (state.version, progress(60))
    assert len(list(again.files(after))) == 6
    # The log before the checkpoint is not needed any more for reading.
    assert lake.rows(again).column("offset").to_pylist() == list(range(60))
