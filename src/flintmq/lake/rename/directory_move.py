"""A Parquet or Delta table in another directory: fenced, copied, and changed only there. Its paths are relative.

    fence → pointer at the target → data files → log → a commit at the target that lifts the fence → pointer deleted

The fence is a commit that holds the new name: under another one the table is refused. Only then is it known what
there is to copy. Of the log the oldest entry comes last, so that engines which know no pointer find no table before
all of it is there. The old log stays, so that a writer that opened the old table loses its commit to the fence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from flintmq.lake.drop import MARKER, DroppableTable
from flintmq.lake.rename.moves import ATTEMPTS_MAX, Check, Copied
from flintmq.lake.store.store import Store, StoredFile
from flintmq.lake.tables.factory import OpenedTable, TableRoot
from flintmq.lake.tables.properties import RENAMED
from flintmq.lake.tables.rename_pointer import (
    POINTER,
    RenamePointer,
    encode_pointer,
    read_pointer,
    unfinished_error,
)
from flintmq.lake.tables.table import Conflict, TableChange, TableError, TableRenamed, TableState

_ENTRY: Final = re.compile(r"\d{20}\.json")
_NOT_COPIED: Final = (POINTER, MARKER)


class DirectoryMove:
    def __init__(self, root: TableRoot, pointer: RenamePointer) -> None:
        self._pointer = pointer
        self._source = root.open(pointer.source, pointer.source)
        self._target = root.open(pointer.to, pointer.to)

    @property
    def old(self) -> str:
        return self._source.table.location

    @property
    def new(self) -> str:
        return self._target.table.location

    def is_there(self) -> bool:
        try:
            return self._source.table.state() is not None
        except TableRenamed as error:
            if error.to != self._pointer.to:
                raise
            return True

    def is_begun(self) -> bool:
        try:
            self._source.table.state()
        except TableRenamed as error:
            return error.to == self._pointer.to
        return False

    def check_target(self) -> None:
        store = self._target.store
        if (pointer := read_pointer(store)) is not None:
            if not pointer.is_done:
                raise unfinished_error(pointer)
            raise TableError(
                f"{store.url} held a table that is named {pointer.to} now, and its log stays there; choose another "
                "name."
            )
        if next(iter(store.list("")), None) is not None:
            raise TableError(f"There is a table or files at {store.url} already; choose another name.")

    def fence(self, check: Check) -> None:
        table = self._source.table
        for _ in range(ATTEMPTS_MAX):
            try:
                if (state := table.state()) is None:
                    raise TableError(f"There is no table at {table.location} any more; nothing is renamed.")
                check(state)
                # Raises TableRenamed when it is done, as every later look at the table does.
                _commit(self._source, state, {**state.properties, RENAMED: self._pointer.to})
            except Conflict:
                continue  # another writer's commit; this one comes after it
            except TableRenamed as error:
                if error.to != self._pointer.to:
                    raise
                return
        raise TableError(
            f"{table.location} was changed by others {ATTEMPTS_MAX} times in a row; stop its syncs, then rename it "
            "again."
        )

    def transfer(self, on_progress: Callable[[int, int], None]) -> Copied:
        log = _log_directory(self._source)
        files = [one for one in self._source.store.list("") if one.path not in _NOT_COPIED]
        entries = _entries(files, log)
        if self._is_complete(entries):
            return Copied()
        self._claim()
        copied = self._copy(files, entries, log, on_progress)
        self._copy_unlisted()
        _lift_fence(self._target)
        self._target.store.delete([POINTER])
        return copied

    def _is_complete(self, entries: Sequence[StoredFile]) -> bool:
        """Whether the target is our copy, and its fence is lifted: only then is its pointer deleted."""
        if read_pointer(self._target.store) is not None:
            return False
        # An entry holds an id: no other table has the same.
        fence = self._target.store.get(entries[-1].path)
        return fence is not None and fence == self._source.store.get(entries[-1].path)

    def _claim(self) -> None:
        claim = read_pointer(self._target.store)
        if claim is None:
            self.check_target()
            self._target.store.put_new(POINTER, encode_pointer(self._pointer))
            claim = read_pointer(self._target.store)
        if claim is None or claim.source != self._pointer.source:
            raise TableError(f"{self._target.store.url} is in use by another rename; run this one again.")

    def _copy(
        self,
        files: Sequence[StoredFile],
        entries: Sequence[StoredFile],
        log: str,
        on_progress: Callable[[int, int], None],
    ) -> Copied:
        there = {one.path: one.size for one in self._target.store.list("")}
        missing = [one for one in files if there.get(one.path) != one.size]
        total, done = sum(one.size for one in missing), 0

        def count(one: StoredFile) -> None:
            nonlocal done
            done += one.size
            on_progress(done, total)

        def copy(some: Iterable[StoredFile]) -> None:
            self._source.store.copy_to(self._target.store.url, some, count)

        data, commits, checkpoints, pointers = [], [], [], []
        known = {one.path for one in entries}
        for one in missing:
            if not one.path.startswith(f"{log}/"):
                data.append(one)
            elif one.path in known:
                commits.append(one)
            elif one.path.rpartition("/")[2].startswith("_"):
                pointers.append(one)
            else:
                checkpoints.append(one)
        oldest = entries[0].path
        copy(data)
        copy(one for one in commits if one.path != oldest)
        # Not over what is there: every table that others make at the target has this entry.
        _copy_new(self._source.store, self._target.store, oldest)
        copy(checkpoints)
        for one in pointers:
            # As a file of its own: it is the only kind that is written again.
            self._target.store.put(one.path, self._source.store.get(one.path) or b"")
        return Copied(len(missing), total)

    def _copy_unlisted(self) -> None:
        """Copy files of the table that a list of its directory does not show, such as those behind a link."""
        table, store = self._target
        if (state := table.state()) is None:
            return
        there = {one.path for one in store.list("")}
        unlisted = [one for one in table.files(state) if one.path not in there]
        found = [one for one in unlisted if self._source.store.size(one.path) is not None]
        self._source.store.copy_to(store.url, [StoredFile(one.path, one.size, 0) for one in found])


def _commit(opened: OpenedTable, state: TableState, properties: dict[str, str]) -> None:
    opened.table.commit(TableChange(base=state, properties=properties))


def _lift_fence(target: OpenedTable) -> None:
    for _ in range(ATTEMPTS_MAX):
        state = target.table.state()
        if state is None:
            raise TableError(f"The copy at {target.table.location} is gone; run the rename again.")
        if RENAMED not in state.properties:
            return
        try:
            left = {name: value for name, value in state.properties.items() if name != RENAMED}
            _commit(target, state, left)
        except Conflict:
            continue
    raise TableError(f"{target.table.location} is changed by others all the time; run the rename again.")


def _copy_new(source: Store, target: Store, path: str) -> None:
    data = source.get(path)
    if data is None or not target.put_new(path, data):
        raise TableError(f"Another table was made at {target.url}: drop it, then run the rename again.")


def _log_directory(opened: OpenedTable) -> str:
    assert isinstance(opened.table, DroppableTable)
    return opened.table.log_directory


def _entries(files: Iterable[StoredFile], log: str) -> list[StoredFile]:
    """Return the log's commits, the oldest first."""
    found = [
        one
        for one in files
        if one.path.startswith(f"{log}/") and _ENTRY.fullmatch(one.path.removeprefix(f"{log}/"))
    ]
    return sorted(found)


def clean_old_directories(root: TableRoot, directories: Sequence[str]) -> None:
    """Delete the data files in all directories but the last that the last one has too; their logs stay."""
    if len(directories) < 2:
        return
    *olds, current = directories
    there = {one.path: one.size for one in root.store(current).list("")}
    for old in olds:
        opened = root.open(old, old)
        log = _log_directory(opened)
        copied = [
            one.path
            for one in opened.store.list("")
            # Others are not copies: a quarantine topic's records may wait there.
            if not one.path.startswith((f"{log}/", "_flintmq/")) and there.get(one.path) == one.size
        ]
        opened.store.delete(copied)
        opened.store.remove_empty_directories()
