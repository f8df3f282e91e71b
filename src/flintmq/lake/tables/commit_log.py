"""A table's history as numbered files that are put if absent, one JSON value a line: plain tables and Delta's.

    <folder>/00000000000000000007.json

Invariant: a version is written once, by whoever is first, and never changed or deleted: a gap would let a late writer
begin anew. Each commit holds an id of its own, so that a writer whose answer was lost knows its own again.
This module must not know what the lines mean.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from flintmq.lake.store.store import Store
from flintmq.lake.tables.table import Conflict, TableError

Action = Mapping[str, Any]

_COMMIT: Final = re.compile(r"(\d{20})\.json")


class CommitLog:
    def __init__(self, store: Store, directory: str) -> None:
        self._store = store
        self._folder = directory

    def path(self, version: int) -> str:
        return f"{self._folder}/{version:020d}.json"

    def append(self, version: int, actions: Iterable[Action]) -> None:
        """Conflict if somebody was faster; `actions` must hold an id, as `new_id` makes it."""
        if not self._store.put_new(self.path(version), lines(actions)):
            raise Conflict(
                f"{self._store.url} has been changed by somebody else; read its state and plan the change again."
            )

    def read(self, version: int) -> list[dict[str, Any]]:
        data = self._store.get(self.path(version))
        if data is None:
            raise TableError(f"{self._store.url}/{self.path(version)} is missing; restore it from a backup.")
        return parsed(data, f"{self._store.url}/{self.path(version)}")

    def versions(self, first: int) -> Sequence[int]:
        """From `first` on, in order and without a gap; none if even that is not there."""
        after = self.path(first - 1) if first else ""
        found = []
        for entry in self._store.list(self._folder, after=after):
            if (match := _COMMIT.fullmatch(entry.path.rpartition("/")[2])) and int(match[1]) >= first:
                found.append(int(match[1]))
        found.sort()
        if found and found != list(range(first, first + len(found))):
            missing = next(expected for expected, one in enumerate(found, first) if expected != one)
            raise TableError(f"{self._store.url}/{self.path(missing)} is missing; restore it from a backup.")
        return found

    def backwards(self, version: int) -> Iterator[list[dict[str, Any]]]:
        """From a version on to the first; ends where older ones have been tidied away."""
        for one in range(version, -1, -1):
            if (data := self._store.get(self.path(one))) is None:
                return
            yield parsed(data, f"{self._store.url}/{self.path(one)}")


def new_id() -> str:
    return uuid.uuid4().hex


def lines(actions: Iterable[Action]) -> bytes:
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def parsed(data: bytes, name: str) -> list[dict[str, Any]]:
    try:
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in data.splitlines() if line]
    except msgspec.DecodeError as error:
        raise TableError(f"{name} is damaged: {error}. Restore it from a backup.") from error
