"""A table of the lake, whatever its format: what is in it, how far it goes, and how it changes in one step.

    state = table.state()
    table.commit(Change(base=state, added=files, offsets=offsets))      Conflict if somebody was faster

Invariant: files and offsets change in the same commit, and only from the state that the change was planned on. There
is no retry in here: who meets a Conflict reads the state again and plans again, or rows would come twice.
This module knows no format and no storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from flintmq.errors import FlintError
from flintmq.lake.tables.data_file import DataFile


class Format(StrEnum):
    PARQUET = "parquet"
    ICEBERG = "iceberg"
    DELTA = "delta"


class Conflict(FlintError):
    """The table is not any more what a change was planned on; nothing was changed."""


class TableError(FlintError):
    """The table cannot be read or written; the message says what to do."""


class TableDropped(TableError):
    """A drop of the table was begun; nobody reads it or commits to it any more."""


class TableRenamed(TableError):
    """The table has another name now, or a rename of it was begun; it is neither read nor changed by this one."""

    def __init__(self, message: str, *, to: str) -> None:
        super().__init__(message)
        self.to = to


class Transform(StrEnum):
    """How a row's partition follows from a column."""

    IDENTITY = "identity"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class PartitionField:
    column: str
    transform: Transform

    @property
    def name(self) -> str:
        return self.column if self.transform is Transform.IDENTITY else f"{self.column}_{self.transform}"


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far a topic is in a table."""

    topic_id: str
    """As hexadecimal digits: a topic of the same name that is another one must not go on here."""
    next_offsets: Mapping[int, int]
    """By partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table at one moment."""

    version: str
    """Says nothing but whether two states are the same."""
    schema: pa.Schema
    """What writers write: the names and types, with the field ids of formats that have them."""
    partitioning: tuple[PartitionField, ...] = ()
    progress: Mapping[str, TopicProgress] = field(default_factory=dict)
    """By topic."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Those beside the progress, named `flintmq.…`: how rows are shaped, for instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    base: TableState
    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    """As `files` gave them; the rows in `added` take their place."""
    schema: pa.Schema | None = None
    """If it changes: only columns added or widened. Files in `added` may have been written with `base.schema`."""
    replaces_schema: bool = False
    """All files are removed, and `schema`, as `replaced` gave it, takes the place of the table's."""
    progress: Mapping[str, TopicProgress] | None = None
    """All of it, if it changes."""
    properties: Mapping[str, str] | None = None
    """All of them, if they change."""


class Table(Protocol):
    @property
    def format(self) -> Format: ...

    @property
    def location(self) -> str:
        """The root that files are written below: a folder's path or a URL."""

    def state(self) -> TableState | None:
        """None if there is no such table."""

    def create(
        self,
        schema: pa.Schema,
        *,
        partitioning: Sequence[PartitionField] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableState:
        """An empty table; Conflict if there is one."""

    def commit(self, change: TableChange) -> TableState:
        """Conflict if the table is not in `change.base` any more. Whether it was done is known when this returns."""

    def evolved(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        """What writers are to write once `schema` is the table's, field ids and all; the table is left alone."""

    def replaced(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        """What writers are to write once `schema` has taken the place of the table's; the table is left alone."""

    def files(self, state: TableState) -> Iterable[DataFile]:
        """All that are in the table, in no order; without footers."""
