"""A file of a table that is made from other files of it, in a worker: merged, filled, or with other rows.

    with DerivedFile(layout, inputs_note(inputs)) as derived:
        derived.write(rows)
        file = derived.publish(described)

Invariant: the file is made only where there is none of its name, and has notes in its own metadata. One that names
its inputs there is of use only while they are all in the table. A file that is not published leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.lake.store.store import Store, StoreError
from flintmq.lake.syncing.range_writer import FileLayout, footer_of, parquet_writer, writing
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.table import TableError

INPUTS: Final = "flintmq.inputs"
_WHOLE_BYTES: Final = 8 * 1024 * 1024
"""A file of up to this size is fetched at once."""


class DerivedFile:
    _draft: BinaryIO
    _writer: Any

    def __init__(self, layout: FileLayout, notes: Mapping[str, str]) -> None:
        self._layout = layout
        self._notes = notes
        self._metadata: list[Any] = []
        self._ends = ExitStack()

    def __enter__(self) -> DerivedFile:
        self._draft = self._ends.enter_context(self._layout.store.draft())
        self._writer = parquet_writer(self._draft, self._layout, self._metadata)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A writer that was given up must not be ended when it is collected: its draft is gone by then.
        self._writer.is_open = False
        self._ends.close()

    def write(self, rows: pa.Table) -> None:
        with writing(self._layout.store):
            self._writer.write_table(rows, row_group_size=self._layout.parquet.row_group_rows)

    def publish(self, described: DataFile, *, rows: int | None = None) -> DataFile:
        """Publish the file under the path of `described`, and return it with its size and footer.

        TableError unless it has as many rows as `rows` says.
        """
        store = self._layout.store
        with writing(store):
            self._writer.add_key_value_metadata(dict(self._notes))
            self._writer.close()
        size, metadata = self._draft.tell(), self._metadata[0]
        if rows is not None and metadata.num_rows != rows:
            raise TableError(
                f"{described.path}: the files that it is made from do not have the rows that the table counts; audit "
                "the table"
            )
        if not store.publish(self._draft, described.path):
            return _read(store, described)
        return _measured(described, size, metadata)


def inputs_note(inputs: Iterable[DataFile]) -> dict[str, str]:
    """Return the note that names the files that a derived file is made from."""
    return {INPUTS: json.dumps(sorted(one.path for one in inputs))}


def find_derived(store: Store, described: DataFile) -> DataFile | None:
    """Return the file that is published under the path of `described`; None if there is none."""
    try:
        return _read(store, described)
    except StoreError:
        return None


def inputs_of(store: Store, path: str) -> list[str]:
    """Return the paths of the files that a derived file was made from."""
    with store.open(path) as file:
        metadata = pq.read_metadata(file).metadata or {}
    found: list[str] = json.loads(metadata.get(INPUTS.encode(), b"[]"))
    return found


def open_parquet(store: Store, one: DataFile) -> pq.ParquetFile:
    if one.size > _WHOLE_BYTES:
        return pq.ParquetFile(store.open(one.path))
    data = store.get(one.path)
    if data is None:
        raise TableError(f"{store.url}/{one.path} is in the table and not in the store; audit the table.")
    return pq.ParquetFile(pa.BufferReader(data))


def _read(store: Store, described: DataFile) -> DataFile:
    with store.open(described.path) as file:
        return _measured(described, file.size(), pq.read_metadata(file))


def _measured(described: DataFile, size: int, metadata: Any) -> DataFile:
    return replace(described, size=size, rows=metadata.num_rows, footer=footer_of(metadata))
