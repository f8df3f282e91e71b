"""A place as a pipeline names it, as a table of the lake: its folder, and beside it the catalog of Iceberg's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flintmq.lake.tables.factory import Opened, open_with_store

_OF_CATALOG: Final = ("catalog", "namespace")


def open_lake_table(path: str, format: str, options: Mapping[str, str]) -> Opened:
    """`options` are settings of the object store, and `catalog` and `namespace` of an Iceberg table."""
    root, _, name = path.rstrip("/").rpartition("/")
    settings = {key: value for key, value in options.items() if key not in _OF_CATALOG}
    return open_with_store(
        root or ".",
        name,
        format,
        settings=settings,
        catalog=options.get("catalog"),
        namespace=options.get("namespace"),
    )
