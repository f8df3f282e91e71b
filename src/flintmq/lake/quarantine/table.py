"""The table of quarantined records: what is in it, and how records leave it.

    quarantine = QuarantineTable(table, store)
    quarantine.complete(ReplayMark.of(state))       the records that the table has since taken are removed
    quarantine.discard({0: {3}})                    key, value and headers go; partition, offset and error stay

A discarded record keeps its row, without its bytes: so it is known that it was there, and an audit does not miss it.
Invariant: rows and their counts change in one commit, and only from the state that was read. Files are rewritten as
a compaction does it, so that a kill leaves files that `lake clean` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.lake.compact.derived_file import DerivedFile, inputs_note, open_parquet
from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.syncing.row_decoder import POISON, conformed
from flintmq.lake.tables.data_file import DataFile, FileName, data_path, digest_of
from flintmq.lake.tables.properties import REBUILDING, REBUILT
from flintmq.lake.tables.table import Conflict, Table, TableChange, TableError, TableState, TopicProgress

COMPLETED: Final = "flintmq.quarantine.completed"
"""The id of the last mark whose records are removed."""
COUNTS: Final = "flintmq.quarantine.counts"
STATE: Final = "state"
DISCARDED: Final = "discarded"
RECORDS: Final = pa.schema([*POISON, pa.field(STATE, pa.string())])

_BYTES: Final = ("key", "value", "headers")
_ATTEMPTS_MAX: Final = 10
_BATCH_ROWS: Final = 1024


class Position(NamedTuple):
    """Where a record was in its topic."""

    partition: int
    offset: int


BEFORE_ALL: Final = Position(-1, -1)


class _Counts(msgspec.Struct, frozen=True):
    replayed: int = 0
    discarded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineCounts:
    open: int
    replayed: int
    discarded: int


class _Rewritten(NamedTuple):
    """What became of a file."""

    file: DataFile
    added: DataFile | None
    """None if no row is left."""
    changed: int
    """Open rows that were removed or discarded."""
    undiscarded: int
    """Discarded rows that were removed."""


class QuarantineTable:
    def __init__(self, table: Table, store: Store, *, attempts_max: int = _ATTEMPTS_MAX) -> None:
        self._table = table
        self._store = store
        self._attempts_max = attempts_max

    @property
    def location(self) -> str:
        return self._table.location

    def state(self) -> TableState | None:
        return self._table.state()

    def counts(self, state: TableState, mark: ReplayMark | None) -> QuarantineCounts:
        """Return the counts, without reading a data file."""
        known = _counts(state)
        rows = sum(one.rows for one in self._table.files(state))
        on_their_way = 0 if mark is None or is_complete(state, mark) else mark.count
        return QuarantineCounts(
            open=max(0, rows - known.discarded - on_their_way),
            replayed=known.replayed + on_their_way,
            discarded=known.discarded,
        )

    def records(
        self,
        state: TableState,
        mark: ReplayMark | None,
        *,
        topic_id: str | None = None,
        after: Position = BEFORE_ALL,
        discarded: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield open or discarded records after a position, in order; each batch is of one partition.

        `topic_id` leaves out those of another topic of the same name, since deleted.
        """
        if mark is not None and is_complete(state, mark):
            mark = None
        for one in self._files(state, topic_id):
            if (one.partition, one.end_offset - 1) <= after:
                continue
            replayed = set() if mark is None else mark.offsets_of(one.partition)
            least = after.offset + 1 if one.partition == after.partition else 0
            with open_parquet(self._store, one) as file:
                for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                    batch = conformed(batch, RECORDS)
                    wanted = is_discarded(batch) == discarded
                    wanted &= _offsets(batch) >= least
                    wanted &= ~_is_in(batch, replayed)
                    if wanted.any():
                        yield batch if wanted.all() else batch.filter(pa.array(wanted))

    def complete(self, mark: ReplayMark | None) -> None:
        """Remove the records that a mark names; nothing to do if that is done."""
        if mark is None:
            return
        for _ in range(self._attempts_max):
            state = self._table.state()
            if state is None or is_complete(state, mark):
                return
            done = self._rewritten(
                state,
                {partition: mark.offsets_of(partition) for partition in mark.ranges},
                lambda batch, chosen: batch.filter(pa.array(~chosen)),
                "replayed",
            )
            known = _counts(state)
            counts = _Counts(
                replayed=known.replayed + sum(one.changed + one.undiscarded for one in done),
                discarded=known.discarded - sum(one.undiscarded for one in done),
            )
            properties = _with_counts(state, counts, {COMPLETED: mark.id})
            if self._commit(state, done, properties=properties):
                return
        raise self._too_busy()

    def rebuild(self, rebuilt: str, files: Sequence[DataFile], progress: Mapping[str, TopicProgress]) -> None:
        """Replace all files by these, which a rebuild of the table wrote; nothing to do if that is done."""
        for _ in range(self._attempts_max):
            state = self._table.state()
            if state is None or state.properties.get(REBUILT) == rebuilt:
                return
            left = (REBUILDING, COUNTS, COMPLETED)
            properties = {name: value for name, value in state.properties.items() if name not in left}
            try:
                self._table.commit(
                    TableChange(
                        base=state,
                        added=files,
                        removed=list(self._table.files(state)),
                        progress=progress,
                        properties={**properties, REBUILT: rebuilt},
                    )
                )
            except Conflict:
                continue
            return
        raise self._too_busy()

    def discard(self, wanted: Mapping[int, AbstractSet[int]] | None) -> int:
        """Discard open records, all of them with None; return how many were."""
        for _ in range(self._attempts_max):
            state = self._table.state()
            if state is None:
                return 0
            schema = None if STATE in state.schema.names else self._table.evolved(state, RECORDS)
            done = self._rewritten(state, wanted, _without_bytes, DISCARDED, schema=schema)
            count = sum(one.changed for one in done)
            if not count:
                return 0
            known = _counts(state)
            counts = _Counts(replayed=known.replayed, discarded=known.discarded + count)
            properties = _with_counts(state, counts, {})
            if self._commit(state, done, properties=properties, schema=schema):
                return count
        raise self._too_busy()

    # ---- files

    def _files(self, state: TableState, topic_id: str | None = None) -> list[DataFile]:
        found = []
        for one in self._table.files(state):
            name = FileName.of(one.path)
            if name is not None and (topic_id is None or name.topic_id == topic_id):
                found.append(one)
        return sorted(found, key=lambda one: (one.partition, one.start_offset, one.end_offset, one.path))

    def _rewritten(
        self,
        state: TableState,
        wanted: Mapping[int, AbstractSet[int]] | None,
        change: Callable[[pa.RecordBatch, Any], pa.RecordBatch],
        what: str,
        *,
        schema: pa.Schema | None = None,
    ) -> list[_Rewritten]:
        """Write again the files that hold these records, with what `change` makes of them."""
        layout = FileLayout(store=self._store, schema=state.schema if schema is None else schema)
        done = []
        for one in self._files(state):
            chosen = None if wanted is None else wanted.get(one.partition, set())
            if chosen is not None and not any(
                one.start_offset <= offset < one.end_offset for offset in chosen
            ):
                continue
            rewritten = _rewrite(one, chosen, change, what, layout)
            if rewritten.changed + rewritten.undiscarded:
                done.append(rewritten)
        return done

    def _commit(
        self,
        state: TableState,
        done: list[_Rewritten],
        *,
        properties: Mapping[str, str],
        schema: pa.Schema | None = None,
    ) -> bool:
        try:
            self._table.commit(
                TableChange(
                    base=state,
                    added=[one.added for one in done if one.added is not None],
                    removed=[one.file for one in done],
                    schema=schema,
                    # Named although it is as it was: rows change, and do not only move to other files.
                    progress=dict(state.progress),
                    properties=properties,
                )
            )
        except Conflict:
            # A sync, a compaction or another replay was faster.
            return False
        return True

    def _too_busy(self) -> TableError:
        return TableError(
            f"{self.location} was changed by others {self._attempts_max} times in a row; run the command again"
        )


def is_complete(state: TableState, mark: ReplayMark) -> bool:
    """Whether the quarantine has lost the records of the mark."""
    return state.properties.get(COMPLETED) == mark.id


def _rewrite(
    one: DataFile,
    wanted: AbstractSet[int] | None,
    change: Callable[[pa.RecordBatch, Any], pa.RecordBatch],
    what: str,
    layout: FileLayout,
) -> _Rewritten:
    changed = undiscarded = rows = 0
    chosen_offsets: list[int] = []
    with DerivedFile(layout, inputs_note([one])) as derived:
        with open_parquet(layout.store, one) as file:
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    batch = conformed(batch, layout.schema)
                    chosen = np.ones(batch.num_rows, np.bool_) if wanted is None else _is_in(batch, wanted)
                    was = is_discarded(batch)
                    if what == DISCARDED:
                        chosen = chosen & ~was
                    undiscarded += int((chosen & was).sum())
                    changed += int((chosen & ~was).sum())
                    chosen_offsets += _offsets(batch)[chosen].tolist()
                    after = change(batch, chosen)
                    rows += after.num_rows
                    if after.num_rows:
                        derived.write(pa.Table.from_batches([after]))
        if not rows or not chosen_offsets:
            return _Rewritten(one, None, changed, undiscarded)
        name = FileName.of(one.path)
        assert name is not None
        digest = digest_of(one.path, what, chosen_offsets, layout.digest())
        path = data_path(replace(name, digest=digest, is_merged=True))
        added = derived.publish(replace(one, path=path, partition_values=()))
    return _Rewritten(one, added, changed, undiscarded)


def _without_bytes(batch: pa.RecordBatch, chosen: Any) -> pa.RecordBatch:
    mask = pa.array(chosen)
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name in _BYTES:
            column = pc.if_else(mask, pa.scalar(None, field.type), column)
        elif field.name == STATE:
            column = pc.if_else(mask, pa.scalar(DISCARDED, field.type), column)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def is_discarded(batch: pa.RecordBatch) -> Any:
    """Return for each record of a quarantine whether it is discarded."""
    at = batch.schema.get_field_index(STATE)
    if at < 0:
        return np.zeros(batch.num_rows, np.bool_)
    return pc.fill_null(pc.equal(batch.column(at), DISCARDED), False).to_numpy(zero_copy_only=False)


def _offsets(batch: pa.RecordBatch) -> Any:
    return batch.column("offset").to_numpy()


def _is_in(batch: pa.RecordBatch, offsets: AbstractSet[int]) -> Any:
    return np.isin(_offsets(batch), np.fromiter(offsets, np.int64, len(offsets)))


def _counts(state: TableState) -> _Counts:
    text = state.properties.get(COUNTS)
    return _Counts() if text is None else msgspec.json.decode(text, type=_Counts)


def _with_counts(state: TableState, counts: _Counts, more: Mapping[str, str]) -> dict[str, str]:
    return {**state.properties, COUNTS: msgspec.json.encode(counts).decode(), **more}
