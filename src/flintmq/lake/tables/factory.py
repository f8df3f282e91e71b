"""From a place, a name and a format to a table.

    table = open_table("s3://lake", "orders", Format.DELTA)      ROOT/<name>, or <namespace>.<name> in a catalog

Formats are imported when they are asked for: each needs a library of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, join, open_store
from flintmq.lake.tables.table import Format, Table, TableError

NAMESPACE: Final = "flintmq"
_CATALOG_OPTIONS: Final = ("catalog", "namespace")


class OpenedTable(NamedTuple):
    table: Table
    store: Store
    """The table's own: paths in it are those of its files."""


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
    """The table need not be there: its `state` is None then.

    `settings` are the store's. `catalog` is the name of one that pyiceberg knows, or `sqlite:///FILE`; without it
    `ROOT/catalog.db` is taken.
    """
    format = Format(format)
    if catalog is not None and format is not Format.ICEBERG:
        raise TableError(f"A table of the format {format} is in no catalog; leave the catalog out.")
    store = open_store(join(open_store(root, settings).url, name), settings)
    if format is Format.PARQUET:
        from flintmq.lake.tables.parquet import ParquetTable

        return ParquetTable(store, limits=limits)
    if format is Format.DELTA:
        from flintmq.lake.tables.delta.table import DeltaTable

        return DeltaTable(store, limits=limits)
    from flintmq.lake.tables.iceberg.catalogs import CatalogAddress
    from flintmq.lake.tables.iceberg.table import IcebergTable

    return IcebergTable(store, CatalogAddress(root, catalog, settings), (namespace, name), limits=limits)
