"""Which records are dead letters, said by workers to the driver: small files beside the checkpoint.

    gathering = Gathering(stage)
    gathering.add(named([Dead("orders", 0, 17, "small", "…")]))     in a task of a streaming query
    gathering.finish()
    staged(store, query)[batch]                                     on the driver, once the batch is committed

A file names records and says why; where the worker has the record at hand, it is in there too. Invariant: a file is
durable before its task ends, so when a batch is committed its dead letters are known. Attempts that were lost may
have left files too: the same record may be named twice, and counts once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from flintmq.arrow.codec.arrays import HEADERS
from flintmq.errors import FlintError
from flintmq.lake.store.store import Store, open_store

FOLDER: Final = "dead"
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_PUT_ROWS: Final = 100_000
_PUT_BYTES: Final = 32 * 1024 * 1024
NAMED: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("step", pa.string()),
        ("error", pa.string()),
    ]
)
_SCHEMA: Final = pa.schema(
    [*NAMED, ("is_whole", pa.bool_()), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS)]
)


class RejectedRecord(NamedTuple):
    """A record, the source or step that it was too bad for, and why."""

    topic: str
    partition: int
    offset: int
    step: str
    error: str
    is_whole: bool = False
    """Whether the record itself follows."""
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Mapping[str, Any]] | None = None
    queries: tuple[str, ...] = ()
    """Those that have found it, as the driver knows them."""


def named_records(rejected: Sequence[RejectedRecord]) -> pa.RecordBatch:
    """Records that are somewhere else."""
    columns = [pa.array([one[at] for one in rejected], kind.type) for at, kind in enumerate(_SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def whole_records(names: Sequence[Any], *, key: Any, value: Any, headers: Any) -> pa.RecordBatch:
    """Records themselves; `names` are the columns of NAMED."""
    is_whole = pa.repeat(pa.scalar(True), len(value))
    return pa.RecordBatch.from_arrays([*names, is_whole, key, value, headers], schema=_SCHEMA)


@dataclass(frozen=True)
class DeadLetterStage:
    """Where workers put them. Can be pickled."""

    url: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def put(self, batches: Sequence[pa.RecordBatch]) -> None:
        query, batch = _query_and_batch()
        written = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(written, _SCHEMA, options=options) as writer:
            for one in batches:
                writer.write_batch(one)
        path = f"{FOLDER}/{query}/{batch}/{uuid.uuid4().hex}.arrow"
        open_store(self.url, self.settings).put_new(path, written.getvalue().to_pybytes())


class DeadLetterBuffer:
    """What one task finds, put when there is much of it and at the end."""

    def __init__(self, stage: DeadLetterStage) -> None:
        self._stage = stage
        self._found: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._found.append(batch)
        if (
            sum(one.num_rows for one in self._found) >= _PUT_ROWS
            or sum(one.nbytes for one in self._found) >= _PUT_BYTES
        ):
            self.finish()

    def finish(self) -> None:
        if self._found:
            self._stage.put(self._found)
        self._found = []


def staged_files(store: Store, query: str) -> dict[int, list[str]]:
    """Paths by batch."""
    found: dict[int, list[str]] = {}
    for entry in store.list(f"{FOLDER}/{query}"):
        batch = entry.path.split("/")[-2]
        if entry.path.endswith(".arrow") and batch.isdecimal():
            found.setdefault(int(batch), []).append(entry.path)
    return found


def read_staged(store: Store, paths: Iterable[str]) -> list[RejectedRecord]:
    """Each record once for each step, in order, with all queries that have found it."""
    found: dict[tuple[str, str, int, int], RejectedRecord] = {}
    for path in paths:
        query = path.split("/")[-3]
        with store.open(path) as file, pa.ipc.open_stream(file) as reader:
            columns = [column.to_pylist() for column in reader.read_all().columns]
        for values in zip(*columns, strict=True):
            one = RejectedRecord(*values)._replace(queries=(query,))
            first = found.setdefault((one.step, one.topic, one.partition, one.offset), one)
            if query not in first.queries:
                found[one.step, one.topic, one.partition, one.offset] = first._replace(
                    queries=(*first.queries, query)
                )
    return [found[key] for key in sorted(found)]


def _query_and_batch() -> tuple[str, str]:
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY_PROPERTY)
    batch = None if context is None else context.getLocalProperty(_BATCH_PROPERTY)
    if not query or not batch:
        raise FlintError("dead letters are found in the tasks of streaming queries only")
    return query, batch
