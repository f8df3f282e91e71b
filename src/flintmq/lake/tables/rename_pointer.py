"""Where a renamed table is: a file in the directory that it was renamed in.

    _flintmq/renamed = {"topic": "orders", "name": "sales", "from": "orders", "to": "sales", "format": "delta", …}

Commands go on naming the topic, and `locate` follows the pointers. A Parquet or Delta table moves to the directory of
its new name, and the pointer stays in the old one. An Iceberg table stays in its directory, and the pointer in there
holds its name in the catalog. Invariant: a table whose pointer is not done is refused, until the rename is finished.
A pointer in the directory that a table is being copied to is never done, and is deleted when the copy is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from flintmq.lake.store.store import Store
from flintmq.lake.tables.table import Format, TableError, TableRenamed

POINTER: Final = "_flintmq/renamed"
RENAMES_MAX: Final = 16
"""Of a Parquet or Delta table: its directories are looked up one after another."""


class RenamePointer(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    name: str
    """As `lake rename` is called; for a quarantine too, which is renamed with its table."""
    source: str = msgspec.field(name="from")
    to: str
    format: str
    is_done: bool = False

    @property
    def moves_directory(self) -> bool:
        return self.format != Format.ICEBERG


@dataclass(frozen=True, slots=True)
class Located:
    directories: tuple[str, ...]
    """From the one of the topic's name to the one that holds the table."""
    name: str
    """The table's: the name of its directory, or of its catalog entry."""
    unfinished: RenamePointer | None = None
    """A rename that was begun; the table has its old name, or already the new one."""
    is_renamed: bool = False
    """Whether there is any pointer."""

    @property
    def directory(self) -> str:
        return self.directories[-1]


def locate(store_of: Callable[[str], Store], name: str) -> Located:
    """Follow the pointers from the directory of this name; `store_of` opens a directory."""
    directories = [name]
    while (pointer := read_pointer(store_of(directories[-1]))) is not None:
        if not pointer.is_done:
            current = directories[-1] if pointer.moves_directory else pointer.source
            return Located(tuple(directories), current, pointer, True)
        if not pointer.moves_directory:
            return Located(tuple(directories), pointer.to, None, True)
        if pointer.to in directories or len(directories) > RENAMES_MAX:
            raise TableError(
                f"{store_of(name).url} was renamed more than {RENAMES_MAX} times, or in a circle: "
                f"{' to '.join((*directories, pointer.to))}. Restore the files {POINTER} in these directories."
            )
        directories.append(pointer.to)
    return Located(tuple(directories), directories[-1], None, len(directories) > 1)


def read_pointer(store: Store) -> RenamePointer | None:
    if (data := store.get(POINTER)) is None:
        return None
    try:
        return msgspec.json.decode(data, type=RenamePointer)
    except msgspec.MsgspecError as error:
        raise TableError(f"{store.url}/{POINTER} is damaged: {error}. Restore it from a backup.") from error


def encode_pointer(pointer: RenamePointer) -> bytes:
    return msgspec.json.encode(pointer)


def put_pointer(store: Store, pointer: RenamePointer) -> None:
    store.put(POINTER, encode_pointer(pointer))


def unfinished_error(pointer: RenamePointer) -> TableRenamed:
    return TableRenamed(
        f"A rename of {pointer.source} to {pointer.to} was begun and not finished. Finish it with: flintmq lake "
        f"rename {pointer.topic} {pointer.name}, and --to and --format as before",
        to=pointer.to,
    )


def check_not_renamed(store: Store, name: str) -> None:
    """Raise TableRenamed if a table of this name must not be created in a directory."""
    if (pointer := read_pointer(store)) is None:
        return
    if not pointer.is_done:
        raise unfinished_error(pointer)
    if pointer.moves_directory or pointer.to != name:
        raise TableRenamed(
            f"The table of {store.url} is named {pointer.to} now. Start the command again.", to=pointer.to
        )
