"""How one table comes to have another name: the steps that a rename consists of.

    move.fence(check)       from here on the table is not changed under its old name
    move.transfer()         it is complete under its new name
    move.clean()            what is left under the old one is deleted, but for what fences late writers

Invariant: each step can be repeated, also after a kill in the middle of it, and has no effect where it was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from flintmq.lake.tables.table import TableState

ATTEMPTS_MAX: Final = 20
"""At one commit, each after another writer's."""


@dataclass(frozen=True, slots=True)
class Copied:
    files: int = 0
    bytes: int = 0


Check = Callable[[TableState], None]
"""Raises TableError if the table in this state must not be renamed."""


class Move(Protocol):
    @property
    def old(self) -> str:
        """The table, for people."""

    @property
    def new(self) -> str: ...

    def is_there(self) -> bool:
        """Whether there is a table, under the old name or already fenced."""

    def is_begun(self) -> bool:
        """Whether `fence` was done."""

    def check_target(self) -> None:
        """Raise TableError if something has the new name."""

    def fence(self, check: Check) -> None:
        """Raise what `check` raises; then nothing is changed."""

    def transfer(self, on_progress: Callable[[int, int], None]) -> Copied:
        """Is called after `fence`. `on_progress` is given bytes, those that are copied and all."""
