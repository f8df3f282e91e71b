"""From a place, a name and a format to a table.

    table = open_table("s3://lake", "orders", Format.DELTA)      ROOT/<name>, or <namespace>.<name> in a catalog

Formats are imported when they are asked for: each needs a library of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, join, open_store
from flintmq.lake.tables.rename_pointer import Located, locate, unfinished_error
from flintmq.lake.tables.table import Format, Table, TableError

NAMESPACE: Final = "flintmq"
_CATALOG_OPTIONS: Final = ("catalog", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoot:
    """What holds tables, and how they are opened."""

    url: str
    format: Format
    settings: Mapping[str, str] | None = None
    catalog: str | None = None
    namespace: str = NAMESPACE
    limits: TableLimits = TABLE_LIMITS

    def store(self, directory: str) -> Store:
        return open_store(join(open_store(self.url, self.settings).url, directory), self.settings)

    def locate(self, name: str) -> Located:
        return locate(self.store, name)

    def open(self, directory: str, name: str) -> OpenedTable:
        """Open a table by its directory and its name in the catalog, whatever pointers say."""
        store = self.store(directory)
        return OpenedTable(self._table(store, name), store)

    def _table(self, store: Store, name: str) -> Table:
        if self.catalog is not None and self.format is not Format.ICEBERG:
            raise TableError(f"A table of the format {self.format} is in no catalog; leave the catalog out.")
        if self.format is Format.PARQUET:
            from flintmq.lake.tables.parquet import ParquetTable

            return ParquetTable(store, limits=self.limits)
        if self.format is Format.DELTA:
            from flintmq.lake.tables.delta.table import DeltaTable

            return DeltaTable(store, limits=self.limits)
        from flintmq.lake.tables.iceberg.catalogs import CatalogAddress
        from flintmq.lake.tables.iceberg.table import IcebergTable

        catalog = CatalogAddress(self.url, self.catalog, self.settings)
        return IcebergTable(store, catalog, (self.namespace, name), limits=self.limits)


class OpenedTable(NamedTuple):
    table: Table
    store: Store
    """The table's own: paths in it are those of its files."""


def table_root(
    root: str,
    format: Format | str,
    *,
    settings: Mapping[str, str] | None = None,
    catalog: str | None = None,
    namespace: str | None = None,
) -> TableRoot:
    return TableRoot(
        url=root,
        format=Format(format),
        settings=settings,
        catalog=catalog,
        namespace=namespace or NAMESPACE,
    )


def open_with_store(
    root: str,
    name: str,
    format: Format | str,
    *,
    settings: Mapping[str, str] | None = None,
    catalog: str | None = None,
    namespace: str | None = None,
) -> OpenedTable:
    table = open_table(
        root, name, format, settings=settings, catalog=catalog, namespace=namespace or NAMESPACE
    )
    return OpenedTable(table, open_store(table.location, settings))


def open_table_at(path: str, format: str, options: Mapping[str, str]) -> OpenedTable:
    """Open a table by its directory. `options` are settings of the store, and Iceberg's `catalog` and `namespace`."""
    root, _, name = path.rstrip("/").rpartition("/")
    return open_with_store(
        root or ".",
        name,
        format,
        settings={key: value for key, value in options.items() if key not in _CATALOG_OPTIONS},
        catalog=options.get("catalog"),
        namespace=options.get("namespace"),
    )


def open_table(
    root: str,
    name: str,
    format: Format | str,
    *,
    settings: Mapping[str, str] | None = None,
    catalog: str | None = None,
    namespace: str = NAMESPACE,
    limits: TableLimits = TABLE_LIMITS,
) -> Table:
    """The table need not be there: its `state` is None then. A table that was renamed is opened by its old name.

    `settings` are the store's. `catalog` is the name of one that pyiceberg knows, or `sqlite:///FILE`; without it
    `ROOT/catalog.db` is taken. TableRenamed if a rename of the table was begun and not finished.
    """
    tables = TableRoot(
        url=root,
        format=Format(format),
        settings=settings,
        catalog=catalog,
        namespace=namespace,
        limits=limits,
    )
    located = tables.locate(name)
    if located.unfinished is not None:
        raise unfinished_error(located.unfinished)
    return tables.open(located.directory, located.name).table
