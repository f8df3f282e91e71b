"""A table of one format in a folder or a bucket, filled file by file, for tests of what is done to tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, open_store
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.factory import open_table
from flintmq.lake.tables.table import Format, TableChange, TableState, TopicProgress
from support.lake.data_files import SCHEMA, TOPIC, TOPIC_ID, rows_of, write_file
from support.lake.engines import read_rows


class TableLocation:
    def __init__(
        self,
        root: Path | str,
        format: Format,
        name: str = TOPIC,
        *,
        settings: Mapping[str, str] | None = None,
        catalog: str | None = None,
        limits: TableLimits = TABLE_LIMITS,
    ) -> None:
        self.root, self.format = str(root), format
        self.settings, self.catalog_name = settings, catalog
        self.table = open_table(self.root, name, format, settings=settings, catalog=catalog, limits=limits)
        self.store: Store = open_store(self.table.location, settings)

    @cached_property
    def catalog(self) -> Any:
        """Of an Iceberg table."""
        from flintmq.lake.tables.iceberg.catalogs import open_catalog

        if self.format is not Format.ICEBERG:
            return None
        return open_catalog(self.root, self.catalog_name, self.settings)

    def state(self) -> TableState:
        state = self.table.state()
        assert state is not None
        return state

    def fill(self, counts: Sequence[int], *, partition: int = 0, size: int = 10) -> TableState:
        """A commit of so many files each."""
        state = self.table.state() or self.table.create(SCHEMA)
        for count in counts:
            at = next_offset(state, partition)
            files = []
            for start in range(at, at + count * size, size):
                rows = rows_of(range(start, start + size), partition=partition)
                files.append(self.write(state, rows, start, start + size, partition=partition))
            state = self.add(state, files, partition=partition, at=at + count * size)
        return state

    def write(
        self, state: TableState, rows: pa.Table, start: int, end: int, *, partition: int = 0
    ) -> DataFile:
        return write_file(self.store, state.schema, rows, start=start, end=end, partition=partition)

    def add(self, state: TableState, files: Sequence[DataFile], *, at: int, partition: int = 0) -> TableState:
        return self.table.commit(
            TableChange(base=state, added=files, progress=progress(state, partition, at))
        )

    def rows(self) -> pa.Table:
        return read_rows(self.table, self.format, self.store, self.catalog)

    def files(self) -> list[DataFile]:
        return list(self.table.files(self.state()))

    def paths_in_store(self) -> set[str]:
        """Whether they are in the table or not."""
        return {entry.path for entry in self.store.list("data")}


def next_offset(state: TableState, partition: int) -> int:
    return state.progress[TOPIC].next_offsets.get(partition, 0) if state.progress else 0


def progress(state: TableState, partition: int, at: int) -> dict[str, TopicProgress]:
    before = dict(state.progress[TOPIC].next_offsets) if state.progress else {}
    return {TOPIC: TopicProgress(TOPIC_ID, {**before, partition: at})}
