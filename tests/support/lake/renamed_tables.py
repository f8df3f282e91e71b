"""Tables that are renamed, as other processes and other engines see them."""

from __future__ import annotations

from flintmq.lake.drop import drop_old_names
from flintmq.lake.rename.rename import RenameReport, rename
from flintmq.lake.tables.factory import TableRoot
from flintmq.lake.tables.table import Format
from support.lake.data_files import TOPIC
from support.lake.engines import read_rows
from support.lake.table_location import TableLocation

NEW = "sales"
DIRECTORIES = [Format.PARQUET, Format.DELTA]
"""Formats whose tables move to another directory."""


def root_of(place: TableLocation) -> TableRoot:
    return TableRoot(url=place.root, format=place.format, settings=place.settings, catalog=place.catalog_name)


def renamed(place: TableLocation, name: str = NEW, topic: str = TOPIC) -> RenameReport:
    return rename(root_of(place), topic, name)


def again(place: TableLocation, name: str = TOPIC) -> TableLocation:
    """As another process sees it."""
    return TableLocation(place.root, place.format, name, settings=place.settings, catalog=place.catalog_name)


def engine_rows(place: TableLocation, name: str = NEW) -> int:
    """How many rows an engine reads that knows the new name alone."""
    if place.format is Format.ICEBERG:
        return len(place.catalog.load_table(("flintmq", name)).scan().to_arrow())
    table, store = root_of(place).open(name, name)
    return len(read_rows(table, place.format, store))


def drop_all_old_names(place: TableLocation) -> None:
    for name in (TOPIC, f"{TOPIC}__latest", f"{TOPIC}__quarantine"):
        drop_old_names(root_of(place), name)
