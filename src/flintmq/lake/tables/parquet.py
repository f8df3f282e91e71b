"""Tables of Parquet files alone, with a log of our own that says which files count.

    data/…parquet                                   what engines read, by the list that `lake files` gives
    _flintmq/log/00000000000000000007.json          what the seventh change did, a line for each part of it
    _flintmq/log/00000000000000000064.checkpoint    all of the table then, the same lines, compressed
    _flintmq/log/_last_checkpoint                   where to begin reading; may be late, or absent

Invariant: the table is what its log says; a file that no line names does not count, whatever its folder shows.
"""

from __future__ import annotations

import base64
import logging
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from flintmq.lake.limits import TABLE_LIMITS, TableLimits
from flintmq.lake.store.store import Store, StoreError, name_of
from flintmq.lake.tables import schema_evolution
from flintmq.lake.tables.commit_log import Action, CommitLog, lines, new_id, parsed
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.other_formats import check_new
from flintmq.lake.tables.properties import from_texts, to_texts
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

LOG_FOLDER: Final = "_flintmq/log"
LAYOUT: Final = 1
"""Of the log: who meets a later one must not write."""

_LAST: Final = f"{LOG_FOLDER}/_last_checkpoint"


@dataclass(frozen=True, slots=True)
class _Content:
    version: int
    schema: pa.Schema | None = None
    partitioning: tuple[PartitionField, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, DataFile] = field(default_factory=dict)


class ParquetTable:
    def __init__(self, store: Store, *, limits: TableLimits = TABLE_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self._log = CommitLog(store, LOG_FOLDER)
        self._content: _Content | None = None

    @property
    def format(self) -> Format:
        return Format.PARQUET

    @property
    def location(self) -> str:
        return self._store.url

    @property
    def log_directory(self) -> str:
        return LOG_FOLDER

    @property
    def is_in_catalog(self) -> bool:
        return False

    def forget(self) -> None:
        """Nothing to do: the table is in no catalog."""

    def state(self) -> TableState | None:
        content = self._latest()
        return None if content is None else self._state(content)

    def create(
        self,
        schema: pa.Schema,
        *,
        partitioning: Sequence[PartitionField] = (),
        properties: Mapping[str, str] | None = None,
    ) -> TableState:
        schema_evolution.check(schema)
        check_new(self, self._store, self._name)
        self._log.append(
            0, [_commit(), _table(schema, partitioning), {"properties": to_texts({}, properties or {})}]
        )
        self._content = None
        state = self.state()
        assert state is not None
        return state

    def commit(self, change: TableChange) -> TableState:
        base = self._at(change.base)
        progress, properties = from_texts(base.texts, self._name)
        progress = progress if change.progress is None else dict(change.progress)
        properties = properties if change.properties is None else dict(change.properties)
        actions: list[Action] = [_commit()]
        if change.schema is not None:
            schema = (
                change.schema
                if change.replaces_schema
                else schema_evolution.merge(change.base.schema, change.schema)
            )
            actions.append(_table(schema, base.partitioning))
        if (texts := to_texts(progress, properties)) != base.texts:
            actions.append({"properties": texts})
        for one in change.removed:
            if one.path not in base.files:
                raise Conflict(
                    f"{self.location}: {one.path} is not in the table any more; plan the change again."
                )
            actions.append({"remove": one.path})
        for one in change.added:
            if one.path in base.files:
                raise Conflict(f"{self.location}: {one.path} is in the table already; plan the change again.")
            actions.append({"add": _kept(one)})
        version = base.version + 1
        self._log.append(version, actions)
        self._content = _after(base, version, actions)
        self._checkpoint(self._content)
        return self._state(self._content)

    def evolved(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        return schema_evolution.merge(state.schema, schema)

    def replaced(self, state: TableState, schema: pa.Schema) -> pa.Schema:
        schema_evolution.check(schema)
        return schema

    def files(self, state: TableState) -> Iterable[DataFile]:
        return self._at(state).files.values()

    def retained(self, state: TableState, *, since_ms: int) -> set[str]:
        """Files that were in the table at some moment since."""
        found = {one.path for one in self.files(state)}
        for actions in self._log.backwards(int(state.version)):
            if any("commit" in one and one["commit"]["at_ms"] < since_ms for one in actions):
                break
            found.update(one["remove"] for one in actions if "remove" in one)
        return found

    @property
    def _name(self) -> str:
        return name_of(self._store.url)

    def _state(self, content: _Content) -> TableState:
        progress, properties = from_texts(content.texts, self._name)
        assert content.schema is not None
        return TableState(
            version=str(content.version),
            schema=content.schema,
            partitioning=content.partitioning,
            progress=progress,
            properties=properties,
        )

    def _at(self, state: TableState) -> _Content:
        if self._content is not None and str(self._content.version) == state.version:
            return self._content
        content = self._read(int(state.version))
        if content is None or str(content.version) != state.version:
            raise Conflict(f"{self.location} has been replaced by another table; begin again.")
        return content

    def _latest(self) -> _Content | None:
        known = self._content
        # The last known one must still be there, or it is another table by now.
        if known is not None and (versions := self._log.versions(known.version)):
            self._content = self._replayed(known, versions[1:])
            return self._content
        self._content = self._read(None)
        return self._content

    def _read(self, until: int | None) -> _Content | None:
        begun = self._last_checkpoint(until) or _Content(-1)
        versions = self._log.versions(max(0, begun.version))
        if begun.version >= 0:
            versions = versions[1:]
        elif not versions:
            return None
        return self._replayed(begun, (one for one in versions if until is None or one <= until))

    def _replayed(self, content: _Content, versions: Iterable[int]) -> _Content:
        for version in versions:
            content = _after(content, version, self._log.read(version))
        return content

    def _last_checkpoint(self, until: int | None) -> _Content | None:
        if (pointer := self._store.get(_LAST)) is None:
            return None
        version = int(parsed(pointer, _LAST)[0]["version"])
        if until is not None and version > until:
            return None
        name = f"{LOG_FOLDER}/{version:020d}.checkpoint"
        if (data := self._store.get(name)) is None:
            return None
        return _after(_Content(-1), version, parsed(zlib.decompress(data), name))

    def _checkpoint(self, content: _Content) -> None:
        if content.version % self._limits.checkpoint_commits:
            return
        name = f"{LOG_FOLDER}/{content.version:020d}.checkpoint"
        try:
            # Whoever writes it writes the same, but for its id.
            self._store.put_new(name, zlib.compress(lines(_whole(content))))
            self._store.put(_LAST, lines([{"version": content.version}]))
        except StoreError as error:
            logger.warning("%s: no checkpoint this time, reading takes longer: %s", self.location, error)


def _commit() -> Action:
    return {"commit": {"id": new_id(), "at_ms": time.time_ns() // 1_000_000, "layout": LAYOUT}}


def _table(schema: pa.Schema, partitioning: Sequence[PartitionField]) -> Action:
    fields = [{"column": one.column, "transform": str(one.transform)} for one in partitioning]
    serialized = base64.b64encode(schema.serialize().to_pybytes()).decode()
    return {"table": {"columns": str(schema.remove_metadata()), "arrow": serialized, "partitioning": fields}}


def _whole(content: _Content) -> Iterator[Action]:
    assert content.schema is not None
    yield _commit()
    yield _table(content.schema, content.partitioning)
    yield {"properties": content.texts}
    for one in content.files.values():
        yield {"add": _kept(one)}


def _after(content: _Content, version: int, actions: Iterable[Action]) -> _Content:
    files = dict(content.files)
    content = replace(content, version=version, files=files)
    for action in actions:
        for kind, given in action.items():
            if kind == "add":
                files[given["path"]] = _file(given)
            elif kind == "remove":
                files.pop(given, None)
            elif kind == "properties":
                content = replace(content, texts=given)
            elif kind == "table":
                content = replace(
                    content,
                    schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(given["arrow"]))),
                    partitioning=tuple(
                        PartitionField(one["column"], Transform(one["transform"]))
                        for one in given["partitioning"]
                    ),
                )
            elif kind == "commit" and given["layout"] > LAYOUT:
                raise TableError(
                    f"The table's log has layout {given['layout']}, and this FlintMQ knows {LAYOUT}. Use a newer one."
                )
    return content


def _kept(one: DataFile) -> dict[str, Any]:
    return {
        "path": one.path,
        "size": one.size,
        "rows": one.rows,
        "topic": one.topic,
        "partition": one.partition,
        "start": one.start_offset,
        "end": one.end_offset,
        "values": one.partition_values,
    }


def _file(kept: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=kept["path"],
        size=kept["size"],
        rows=kept["rows"],
        topic=kept["topic"],
        partition=kept["partition"],
        start_offset=kept["start"],
        end_offset=kept["end"],
        partition_values=tuple((name, value) for name, value in kept["values"]),
    )
