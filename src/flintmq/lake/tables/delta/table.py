"""Delta tables: the `deltalake` library reads them, and our own log entries change them.

Invariant: a change is one file `_delta_log/<version>.json`, put if absent, as Delta's protocol wants it of every
writer; so other writers of the table are met like our own. Tables with features that are not known here are refused.
A transform of Delta's own does not exist: `timestamp:day` is a column `timestamp_day` of the table, whose values are
in the log and not in the files.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, name_of
from flintmq.lake.tables import schema_evolution
from flintmq.lake.tables.commit_log import Action, CommitLog, new_id
from flintmq.lake.tables.data_file import DataFile, data_file_of
from flintmq.lake.tables.delta import actions as delta_actions
from flintmq.lake.tables.other_formats import check_new
from flintmq.lake.tables.properties import PREFIX, from_texts, to_texts
from flintmq.lake.tables.table import (
    Conflict,
    Format,
    PartitionField,
    TableChange,
    TableError,
    TableState,
    Transform,
)

logger = logging.getLogger(__name__)


_LOG: Final = "_delta_log"
_PARTITIONING: Final = "flintmq.partitioning"


class DeltaTable:
    def __init__(self, store: Store, *, limits: TableLimits = TABLE_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self._log = CommitLog(store, _LOG)
        self._known: deltalake.DeltaTable | None = None

    @property
    def format(self) -> Format:
        return Format.DELTA

    @property
    def location(self) -> str:
        return self._store.url

    @property
    def log_directory(self) -> str:
        return _LOG

    @property
    def is_in_catalog(self) -> bool:
        return False

    def forget(self) -> None:
        """Nothing to do: the table is in no catalog."""

    def state(self) -> TableState | None:
        with self._failing():
            try:
                if self._known is None:
                    self._known = self._load(None)
                else:
                    self._known.update_incremental()
            except TableNotFoundError:
                self._known = None
                return None
            return self._state(self._known)

    def create(
        self,
        schema: pa.Schema,
        *,
        partitioning: Sequence[PartitionField] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableState:
        schema_evolution.check(schema)
        check_new(self, self._store, name_of(self.location))
        configuration = {
            **to_texts({}, properties or {}),
            _PARTITIONING: json.dumps([[one.column, one.transform] for one in partitioning]),
        }
        columns = delta_actions.columns_json(schema, partitioning)
        actions = [
            delta_actions.commit_info("CREATE TABLE", new_id(), _now_ms()),
            delta_actions.protocol(delta_actions.features_of(columns)),
            {
                "metaData": {
                    "id": new_id(),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": columns,
                    "partitionColumns": [one.name for one in partitioning],
                    "configuration": configuration,
                    "createdTime": _now_ms(),
                }
            },
        ]
        self._log.append(0, actions)
        self._known = None
        state = self.state()
        assert state is not None
        return state

    def commit(self, change: TableChange) -> TableState:
        with self._failing():
            base = self._at(change.base)
            version = base.version() + 1
            self._log.append(version, list(self._actions(base, change)))
            # Perhaps somebody has gone on since: the latest is what the next change is planned on.
            base.update_incremental()
            self._known = base
            state = self._state(base)
        self._checkpoint(version)
        return state

    def evolved(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        return schema_evolution.merge(state.schema, schema)

    def replaced(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        schema_evolution.check(schema)
        return schema

    def files(self, state: TableState) -> Iterable[DataFile]:
        with self._failing():
            table = self._at(state)
            return list(_files(table, state))

    def retained(self, state: TableState, *, since_ms: int) -> set[str]:
        """Files that were in the table at some moment since."""
        found = {one.path for one in self.files(state)}
        for actions in self._log.backwards(int(state.version)):
            # Not every writer says when it wrote; then the next older one does.
            if any(one.get("commitInfo", {}).get("timestamp", since_ms) < since_ms for one in actions):
                break
            found.update(unquote(one["remove"]["path"]) for one in actions if "remove" in one)
        return found

    def _actions(self, base: deltalake.DeltaTable, change: TableChange) -> Iterator[Action]:
        is_rearranged = bool(change.removed) and change.progress is None
        yield delta_actions.commit_info("OPTIMIZE" if is_rearranged else "WRITE", new_id(), _now_ms())
        yield from self._described(base, change)
        present = {one.path: one for one in _files(base, change.base)} if change.removed else {}
        for one in change.removed:
            if one.path not in present:
                raise Conflict(
                    f"{self.location}: {one.path} is not in the table any more; plan the change again."
                )
            yield delta_actions.remove(one, _now_ms(), is_change=not is_rearranged)
        for one in change.added:
            yield delta_actions.add(one, change.base.partitioning, _now_ms(), is_change=not is_rearranged)

    def _described(self, base: deltalake.DeltaTable, change: TableChange) -> Iterator[Action]:
        metadata = base.metadata()
        columns, partitioning = base.schema().to_json(), change.base.partitioning
        if change.schema is not None:
            was = columns
            if change.replaces_schema:
                # No file is left that was written with another type: there is no history of types to keep.
                columns = delta_actions.columns_json(change.schema, partitioning)
            else:
                merged = schema_evolution.merge(change.base.schema, change.schema)
                columns = delta_actions.columns_json(merged, partitioning, was)
            before, after = (delta_actions.features_of(one) for one in (was, columns))
            if after - before:
                yield delta_actions.protocol(after | _features(base))
        progress = change.base.progress if change.progress is None else change.progress
        properties = change.base.properties if change.properties is None else change.properties
        kept = {
            name: value
            for name, value in metadata.configuration.items()
            if name == _PARTITIONING or not name.startswith(PREFIX)
        }
        configuration = {**kept, **to_texts(progress, properties)}
        if configuration == metadata.configuration and change.schema is None:
            return
        described: dict[str, Any] = {
            "id": str(metadata.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": columns,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": configuration,
            "createdTime": metadata.created_time,
        }
        for name, value in (("name", metadata.name), ("description", metadata.description)):
            if value is not None:
                described[name] = value
        yield {"metaData": described}

    def _state(self, table: deltalake.DeltaTable) -> TableState:
        if unknown := _features(table) - delta_actions.KNOWN_FEATURES:
            raise TableError(
                f"{self.location} has features that FlintMQ does not know: {', '.join(sorted(unknown))}. Write to "
                "another table."
            )
        metadata = table.metadata()
        progress, properties = from_texts(metadata.configuration, name_of(self.location))
        partitioning = _partitioning(properties.pop(_PARTITIONING, None), metadata.partition_columns)
        derived = {one.name for one in partitioning if one.transform is not Transform.IDENTITY}
        schema = pa.schema(table.schema())
        return TableState(
            version=str(table.version()),
            schema=pa.schema(
                [
                    pa.field(one.name, schema_evolution.small_types(one.type), one.nullable)
                    for one in schema
                    if one.name not in derived
                ]
            ),
            partitioning=partitioning,
            progress=progress,
            properties=properties,
        )

    def _at(self, state: TableState) -> deltalake.DeltaTable:
        if self._known is not None and str(self._known.version()) == state.version:
            return self._known
        return self._load(int(state.version))

    def _load(self, version: int | None) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(
            self._store.url, version=version, storage_options=dict(self._store.settings) or None
        )

    def _checkpoint(self, version: int) -> None:
        if version % self._limits.checkpoint_commits:
            return
        try:
            self._load(version).create_checkpoint()
        except (DeltaError, OSError) as error:
            logger.warning("%s: no checkpoint this time, reading takes longer: %s", self.location, error)

    def _failing(self) -> _Failing:
        return _Failing(self.location)


class _Failing:
    """The library's errors as ours."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (DeltaError, OSError)):
            raise TableError(
                f"{self._location} cannot be read as a Delta table: {str(error).partition(chr(10))[0]}. See to the "
                "table and its store, then start again."
            ) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _features(table: deltalake.DeltaTable) -> set[str]:
    protocol = table.protocol()
    found = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if not found and protocol.min_writer_version > 2:
        found.add(f"those of writer version {protocol.min_writer_version}")
    return found


def _partitioning(kept: str | None, columns: Sequence[str]) -> tuple[PartitionField, ...]:
    """Ours, or of a table that somebody else has made: by columns alone."""
    if kept is None:
        return tuple(PartitionField(one, Transform.IDENTITY) for one in columns)
    return tuple(PartitionField(column, Transform(transform)) for column, transform in json.loads(kept))


def _files(table: deltalake.DeltaTable, state: TableState) -> Iterator[DataFile]:
    names = [one.name for one in state.partitioning]
    actions = pa.table(table.get_add_actions(flatten=True))
    values = [actions.column(f"partition.{name}").to_pylist() for name in names]
    paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
    rows = actions.column("num_records").to_pylist()
    for index, path in enumerate(paths):
        yield data_file_of(
            unquote(path),
            size=sizes[index],
            rows=rows[index] or 0,
            values=tuple(
                (name, delta_actions.text_of(of[index])) for name, of in zip(names, values, strict=True)
            ),
            progress=state.progress,
        )
