"""What the `deltalake` library does with commits of others (decision 8): why FlintMQ writes Delta's log itself.

Each test shows what the installed library does. If one fails after an upgrade, the library has changed: read the
decision again, and write down what is true then.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

APP = "flintmq"
SCHEMA = pa.schema([("id", pa.int64())])
WIDER = pa.schema([("id", pa.int64()), ("name", pa.string())])


class DeltaFiles:
    """A Delta table whose files are written by hand, and committed by the library."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        deltalake.DeltaTable.create(str(folder), schema=deltalake.Schema.from_arrow(SCHEMA))

    def open(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self._folder))

    def add(self, path: str, rows: pa.Table) -> AddAction:
        pq.write_table(rows, self._folder / path)
        size = os.stat(self._folder / path).st_size
        return AddAction(path, size, {}, time.time_ns() // 1_000_000, True, f'{{"numRecords": {len(rows)}}}')

    def remove(self, added: AddAction) -> RemoveAction:
        return RemoveAction(added.path, True, time.time_ns() // 1_000_000, added.size, {})

    def commit(
        self, *actions: AddAction | RemoveAction, schema: pa.Schema = SCHEMA, txn: int | None = None
    ) -> int:
        """Return the table's version."""
        table = self.open()
        transactions = None if txn is None else [Transaction(APP, txn)]
        table.create_write_transaction(
            list(actions),
            "append",
            deltalake.Schema.from_arrow(schema),
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        return self.open().version()

    def rows(self) -> list[dict[str, Any]]:
        query = deltalake.QueryBuilder().register("t", self.open())
        found: list[dict[str, Any]] = pa.table(
            query.execute("select * from t order by id").read_all()
        ).to_pylist()
        return found


@pytest.fixture
def files(tmp_path: Path) -> DeltaFiles:
    return DeltaFiles(tmp_path / "table")


def test_files_are_added_and_removed_in_one_commit(files: DeltaFiles) -> None:
    """Which earlier versions could not: this alone would be no reason any more."""
    first = files.add("first.parquet", pa.table({"id": [1, 2]}))
    version = files.commit(first)
    second = files.add("second.parquet", pa.table({"id": [3]}))
    assert files.commit(files.remove(first), second) == version + 1
    assert files.rows() == [{"id": 3}]


def test_an_application_transaction_survives_a_restore_and_its_rows_do_not(files: DeltaFiles) -> None:
    """So progress that is kept as `txn` would say that rows are in the table which a RESTORE has taken out."""
    version = files.commit(files.add("first.parquet", pa.table({"id": [1, 2]})), txn=2)
    files.commit(files.add("second.parquet", pa.table({"id": [3, 4]})), txn=4)
    assert files.open().transaction_version(APP) == 4
    files.open().restore(version)
    assert files.rows() == [{"id": 1}, {"id": 2}]
    assert files.open().transaction_version(APP) == 4


def test_an_append_ignores_a_new_schema(files: DeltaFiles) -> None:
    """So a file with a new column and the column itself would not come in one commit."""
    rows = pa.table({"id": [1], "name": ["Ada"]}, schema=WIDER)
    files.commit(files.add("wider.parquet", rows), schema=WIDER)
    assert pa.schema(files.open().schema()).names == ["id"]
    assert files.rows() == [{"id": 1}]
