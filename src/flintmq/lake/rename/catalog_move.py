"""A table in a catalog under another name: its files stay where they are, for its metadata has absolute paths."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.lake.rename.moves import Check, Copied
from flintmq.lake.tables.factory import TableRoot
from flintmq.lake.tables.iceberg.table import IcebergTable
from flintmq.lake.tables.table import TableError


class CatalogMove:
    def __init__(self, root: TableRoot, directory: str, source: str, to: str) -> None:
        self._root = root
        self._directory = directory
        self._source = source
        self._to = to

    @property
    def old(self) -> str:
        return self._table(self._source).catalog_name

    @property
    def new(self) -> str:
        return self._table(self._to).catalog_name

    def is_there(self) -> bool:
        return any(self._table(name).state() is not None for name in (self._source, self._to))

    def is_begun(self) -> bool:
        return self._table(self._to).state() is not None

    def check_target(self) -> None:
        if self._table(self._source).has_entry(self._to):
            raise TableError(f"There is a table {self.new} already; choose another name.")
        store = self._root.store(self._to)
        # The name of its own directory is one that the table had.
        if self._to != self._directory and next(iter(store.list("")), None) is not None:
            raise TableError(f"There are files at {store.url} already; choose another name.")

    def fence(self, check: Check) -> None:
        table = self._table(self._source)
        if (state := table.state()) is not None:
            check(state)
        # Another writer may commit between the two: its files are where they were, and are in the table.
        table.rename(self._to)

    def transfer(self, on_progress: Callable[[int, int], None]) -> Copied:
        return Copied()

    def _table(self, name: str) -> IcebergTable:
        table = self._root.open(self._directory, name).table
        assert isinstance(table, IcebergTable)
        return table
