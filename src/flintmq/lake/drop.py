"""`lake drop`: a table and all of its files, gone; or with `keep_files` only what makes them a table.

    drop(opened, keep_files=False)

    fence: a commit after which nobody commits any more → a marker file → data → log or metadata → catalog → marker

Invariant: from the first step on the table is refused to everybody else, until nothing of it is left; so no sync
finds files that are about to be deleted. Who was killed half way left the fence or the marker: the same command goes
on. A directory that has neither is left alone, whatever is in it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from flintmq.lake.store.store import Store, StoredFile
from flintmq.lake.tables.factory import OpenedTable, TableRoot
from flintmq.lake.tables.properties import DROPPED
from flintmq.lake.tables.rename_pointer import POINTER
from flintmq.lake.tables.table import Conflict, Table, TableChange, TableDropped, TableError, TableState

logger = logging.getLogger(__name__)

MARKER: Final = "_flintmq/dropped"
_ATTEMPTS_MAX: Final = 20


@runtime_checkable
class DroppableTable(Protocol):
    @property
    def log_directory(self) -> str:
        """What makes the files a table; its entries sort by their age."""

    @property
    def is_in_catalog(self) -> bool:
        """Whether a catalog says that there is a table, and not its directory."""

    def forget(self) -> None:
        """Take the table out of its catalog, if it is in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropReport:
    table: str
    files: int
    bytes: int


def is_there(opened: OpenedTable) -> bool:
    """Whether there is a table, or one whose drop was begun."""
    try:
        return _state(opened) is not None or _is_marked(opened.store)
    except TableDropped:
        return True


def fence(opened: OpenedTable) -> None:
    """Let nobody commit to the table any more; nothing to do if there is none."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            if (state := _state(opened)) is None:
                return
            _commit_fence(opened.table, state)
        except Conflict:
            continue  # somebody else's commit; this one comes after it
        except TableDropped:
            return
    raise TableError(
        f"{opened.table.location} was changed by others {_ATTEMPTS_MAX} times in a row; stop its syncs, then drop it "
        "again"
    )


def drop(opened: OpenedTable, *, keep_files: bool = False) -> DropReport:
    """Drop a table that is there; one whose drop was begun is dropped as this says."""
    table, store = opened
    if not isinstance(table, DroppableTable):
        raise TableError(f"{table.location} is of a format that cannot be dropped.")
    if not is_there(opened):
        raise TableError(f"There is no table at {table.location}; nothing is deleted.")
    if keep_files and table.is_in_catalog:
        # Nothing is deleted that a sync could still need, and the catalog does it in one step.
        table.forget()
        return DropReport(table=table.location, files=0, bytes=0)
    fence(opened)
    store.put(MARKER, json.dumps({"keep_files": keep_files}).encode())
    files = sorted(_doomed(store, table, keep_files=keep_files), key=lambda one: _order(one, table))
    # The fence is the newest entry of the log. A store may delete in any order what it is given at once.
    store.delete(one.path for one in files[:-1])
    store.delete(one.path for one in files[-1:])
    table.forget()
    store.delete([*([] if keep_files else store.abandoned_drafts()), MARKER])
    store.remove_empty_directories()
    logger.info("%s is dropped, %d files", table.location, len(files))
    return DropReport(table=table.location, files=len(files), bytes=sum(one.size for one in files))


def is_renamed(root: TableRoot, name: str) -> bool:
    """Whether a table was renamed, even if it is dropped since."""
    return root.locate(name).is_renamed


def drop_old_names(root: TableRoot, name: str, *, keep_files: bool = False) -> None:
    """Delete what a rename of a dropped table has left, so that its topic can have a table of its own name again."""
    located = root.locate(name)
    # From the table back to the topic: the command that follows a kill must find the way here.
    for directory in reversed(located.directories):
        opened = root.open(directory, directory)
        assert isinstance(opened.table, DroppableTable)
        if directory != located.directory:
            table = opened.table
            files = sorted(
                _doomed(opened.store, table, keep_files=keep_files), key=lambda one: _order(one, table)
            )
            opened.store.delete(one.path for one in files)
        opened.store.delete([POINTER])
        opened.store.remove_empty_directories()


def _state(opened: OpenedTable) -> TableState | None:
    try:
        return opened.table.state()
    except TableDropped:
        raise
    except TableError:
        # Its log or metadata may be half gone.
        if _is_marked(opened.store):
            return None
        raise


def _is_marked(store: Store) -> bool:
    return store.size(MARKER) is not None


def _commit_fence(table: Table, state: TableState) -> None:
    """Raise TableDropped when it is done, as everybody's next look at the table does."""
    table.commit(TableChange(base=state, properties={**state.properties, DROPPED: "true"}))


def _doomed(store: Store, table: DroppableTable, *, keep_files: bool) -> Iterator[StoredFile]:
    for entry in store.list(""):
        if entry.path not in (MARKER, POINTER) and (
            not keep_files or entry.path.startswith(f"{table.log_directory}/")
        ):
            yield entry


def _order(entry: StoredFile, table: DroppableTable) -> tuple[int, str]:
    """Data first; of the log first what only makes it faster to read, then entries from the oldest to the newest."""
    if not entry.path.startswith(f"{table.log_directory}/"):
        return 0, entry.path
    return (2 if entry.path.endswith(".json") else 1), entry.path
