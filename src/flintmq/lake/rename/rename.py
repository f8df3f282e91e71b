"""`lake rename`: a topic's table under another name, with its quarantine and its table of latest rows.

    rename(TableRoot(url="/srv/lake", format=Format.DELTA), "orders", "sales")

    pointer of the table, not done → fence → the tables that go with it, each as a whole → transfer → pointer done

Commands go on naming the topic. Invariant: from the first pointer to the last the table is refused to all others, and
the same command finishes a rename that was killed. Before the fence nothing is changed, and a rename that is refused
there takes its pointer back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from flintmq.lake.rename.directory_move import DirectoryMove, clean_old_directories
from flintmq.lake.rename.moves import Copied, Move
from flintmq.lake.rename.names import SUFFIXES, check_names
from flintmq.lake.store.store import StoreError
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX
from flintmq.lake.syncing.quarantine import PendingQuarantine
from flintmq.lake.tables.factory import TableRoot
from flintmq.lake.tables.other_formats import missing_table
from flintmq.lake.tables.properties import REBUILDING
from flintmq.lake.tables.rename_pointer import (
    POINTER,
    RENAMES_MAX,
    Located,
    RenamePointer,
    encode_pointer,
    put_pointer,
    read_pointer,
    unfinished_error,
)
from flintmq.lake.tables.table import Format, TableError, TableRenamed, TableState

logger = logging.getLogger(__name__)

OnBytes = Callable[[int, int], None]
"""Is called with the number of copied bytes and the number of all bytes."""


def no_bytes(done: int, total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class RenamedTable:
    old: str
    """A location, or a name in a catalog."""
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameReport:
    tables: tuple[RenamedTable, ...]
    """Empty if the table had the name already."""
    files: int = 0
    bytes: int = 0
    """Copied this time."""


def rename(root: TableRoot, topic: str, name: str, *, on_progress: OnBytes = no_bytes) -> RenameReport:
    """Rename the table of a topic, or finish a rename to this name."""
    check_names(topic, name)
    located = root.locate(topic)
    if located.unfinished is None and located.name == name:
        if not _move(root, _pointer(root, topic, name, "", located), located).is_there():
            opened = root.open(located.directory, located.name)
            raise missing_table(opened.table, opened.store, advice="nothing is renamed")
        _clean(root, topic)
        return RenameReport(tables=())
    return _Rename(root, topic, name, located, on_progress).run()


@dataclass(slots=True)
class _Rename:
    root: TableRoot
    topic: str
    name: str
    located: Located
    on_progress: OnBytes
    renamed: list[RenamedTable] = field(default_factory=list)
    copied: list[Copied] = field(default_factory=list)

    def run(self) -> RenameReport:
        pointer = self._pointer("", self.located)
        move = _move(self.root, pointer, self.located)
        if self.located.unfinished is None:
            self._check_begin(move)
        self._begin(pointer, move)
        for suffix in SUFFIXES:
            self._rename_with(suffix)
        self._finish(pointer, move, self.located)
        _clean(self.root, self.topic)
        logger.info("%s is named %s", move.old, move.new)
        return RenameReport(
            tables=tuple(reversed(self.renamed)),
            files=sum(one.files for one in self.copied),
            bytes=sum(one.bytes for one in self.copied),
        )

    def _check_begin(self, move: Move) -> None:
        """Look at all that the rename is about, before anything is changed."""
        if len(self.located.directories) > RENAMES_MAX:
            raise TableError(
                f"{self.topic} was renamed {RENAMES_MAX} times already; rebuild it under another --to, or drop it."
            )
        opened = self.root.open(self.located.directory, self.located.name)
        try:
            state = opened.table.state()
        except TableRenamed as error:
            if error.to != self.name:
                raise
            return  # fenced by this rename, whose pointer was lost
        if state is None:
            raise missing_table(opened.table, opened.store, advice="nothing is renamed")
        move.check_target()
        for suffix in SUFFIXES:
            located = self.root.locate(self.topic + suffix)
            other = _move(self.root, self._pointer(suffix, located), located)
            other.check_target()
            other.is_there()  # raises what is wrong with it
        self._check(state)

    def _begin(self, pointer: RenamePointer, move: Move) -> None:
        if self.located.unfinished is None:
            self._point(pointer)
        try:
            move.fence(self._check)
        except StoreError:
            raise
        except TableError:
            if not _may_have_begun(move):
                self._take_back(pointer)
            raise

    def _point(self, pointer: RenamePointer) -> None:
        store = self.root.store(self.located.directory)
        before = read_pointer(store)
        if before is None:
            # Of two renames to different names one is the first.
            is_first = store.put_new(POINTER, encode_pointer(pointer))
        else:
            # An Iceberg table that has been renamed before.
            is_first = before.is_done and not before.moves_directory and before.to == pointer.source
            if is_first:
                put_pointer(store, pointer)
        if not is_first:
            raise TableError(f"Another rename of {self.topic} was begun at the same time; look at the table.")

    def _take_back(self, pointer: RenamePointer) -> None:
        store = self.root.store(self.located.directory)
        if pointer.source == self.located.directory:
            store.delete([POINTER])
            store.remove_empty_directories()
        else:
            # An Iceberg table that has been renamed before.
            put_pointer(store, msgspec.structs.replace(pointer, to=pointer.source, is_done=True))

    def _rename_with(self, suffix: str) -> None:
        """Rename a table that goes with the topic's; one that is not there yet will be made under its new name."""
        located = self.root.locate(self.topic + suffix)
        if located.unfinished is None and located.name == self.name + suffix:
            return
        pointer = self._pointer(suffix, located)
        move = _move(self.root, pointer, located)
        if move.is_there():
            put_pointer(self.root.store(located.directory), pointer)
            move.fence(_accept)
            self._finish(pointer, move, located)
        else:
            put_pointer(self.root.store(located.directory), msgspec.structs.replace(pointer, is_done=True))

    def _finish(self, pointer: RenamePointer, move: Move, located: Located) -> None:
        self.copied.append(move.transfer(self.on_progress))
        put_pointer(self.root.store(located.directory), msgspec.structs.replace(pointer, is_done=True))
        self.renamed.append(RenamedTable(move.old, move.new))

    def _pointer(self, suffix: str, located: Located) -> RenamePointer:
        return _pointer(self.root, self.topic, self.name, suffix, located)

    def _check(self, state: TableState) -> None:
        """Raise TableError if files are under way that a commit of the table names, or will name."""
        if REBUILDING in state.properties:
            raise TableError(
                f"A rebuild of {self.topic} was begun and not finished. Finish it with: flintmq lake rebuild; then "
                "rename the table."
            )
        for topic in state.progress:
            pending = PendingQuarantine.of(state, topic)
            if pending is not None and self._is_pending(pending):
                raise TableError(
                    f"Records of {topic} are on their way to the quarantine. Run the sync again, then rename the "
                    "table."
                )

    def _is_pending(self, pending: PendingQuarantine) -> bool:
        name = self.topic + QUARANTINE_SUFFIX
        located = self.root.locate(name)
        quarantine, store = self.root.open(located.directory, located.name)
        state = quarantine.state()
        if state is not None and pending.is_in(state.progress.get(pending.topic)):
            return False
        # What goes to a topic waits in the same directory, and is deleted when the topic has it.
        return any(store.size(file.path) is not None for file in pending.files)


def _may_have_begun(move: Move) -> bool:
    try:
        return move.is_begun()
    except TableError:
        return True


def _accept(state: TableState) -> None:
    """Allow every state."""


def _pointer(root: TableRoot, topic: str, name: str, suffix: str, located: Located) -> RenamePointer:
    pointer = RenamePointer(
        topic=topic, name=name, source=located.name, to=name + suffix, format=str(root.format)
    )
    begun = located.unfinished
    if begun is not None and (begun.source, begun.to, begun.format) != (
        pointer.source,
        pointer.to,
        pointer.format,
    ):
        raise unfinished_error(begun)
    return begun or pointer


def _move(root: TableRoot, pointer: RenamePointer, located: Located) -> Move:
    if root.format is not Format.ICEBERG:
        return DirectoryMove(root, pointer)
    from flintmq.lake.rename.catalog_move import CatalogMove

    return CatalogMove(root, located.directory, pointer.source, pointer.to)


def _clean(root: TableRoot, topic: str) -> None:
    for name in _names(topic):
        clean_old_directories(root, root.locate(name).directories)


def _names(topic: str) -> Iterator[str]:
    """Yield the names of a topic's tables; the topic's own is the first."""
    yield topic
    for suffix in SUFFIXES:
        yield topic + suffix
