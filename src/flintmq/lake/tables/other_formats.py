"""What is at a table's location: which formats' files are there, whatever format was asked for.

Invariant: one location holds tables of one format. Two would share the data directory, where each takes the other's
files for leftovers, and `lake clean` would delete them.
"""

from __future__ import annotations

from typing import Final

from flintmq.lake.store.store import Store
from flintmq.lake.tables.rename_pointer import check_not_renamed
from flintmq.lake.tables.table import Format, Table, TableError

_MARKERS: Final = {
    Format.PARQUET: ("_flintmq/log", ".json"),
    Format.DELTA: ("_delta_log", ".json"),
    Format.ICEBERG: ("metadata", ".metadata.json"),
}
"""The directory in which a format keeps its table, and how a file of it ends."""


def formats_at(store: Store) -> list[Format]:
    return [
        format
        for format, (directory, ending) in _MARKERS.items()
        if any(one.path.endswith(ending) for one in store.list(directory))
    ]


def missing_table(table: Table, store: Store, *, advice: str = "") -> TableError:
    """Say that there is no such table, and what is there instead. `advice` is for when there is nothing."""
    found = formats_at(store)
    if others := [one for one in found if one is not table.format]:
        return TableError(
            f"There is no {table.format} table at {table.location}, but there is one of the format {others[0]}: "
            f"add --format {others[0]}."
        )
    if found:
        return TableError(
            f"There are files of an {table.format} table at {table.location}, but the catalog does not have it: "
            "give the --catalog and the --namespace that it was made with."
        )
    return TableError(f"There is no {table.format} table at {table.location}{advice and f'; {advice}'}.")


def check_new(table: Table, store: Store, name: str) -> None:
    """Raise TableError if no table of this name may be made at a location.

    A table of another format may be there, or one that was renamed: a sync that was running meanwhile must not make
    a second table of its topic.
    """
    check_not_renamed(store, name)
    if others := [one for one in formats_at(store) if one is not table.format]:
        raise TableError(
            f"{table.location} is a table of the format {others[0]}, and cannot be one of {table.format} too: add "
            f"--format {others[0]}, or name another place with --to."
        )
