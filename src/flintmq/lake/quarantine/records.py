"""Quarantined records as somebody looks at them: listed, shown, discarded.

    for one in listed(source, limit=20): …
    discard(source, [Position(0, 3)])

Invariant: listing and showing change nothing. A record whose replay has been committed to the table is not listed,
even if the quarantine has not lost it yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.quarantine.open import QuarantinedTopic
from flintmq.lake.quarantine.table import BEFORE_ALL, Position, QuarantineCounts
from flintmq.lake.tables.table import TableError, TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRecord:
    position: Position
    timestamp_ms: int
    error: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def counts(source: QuarantinedTopic) -> QuarantineCounts:
    found, mark = _states(source)
    return source.quarantine.counts(found, mark)


def listed(source: QuarantinedTopic, *, limit: int, discarded: bool = False) -> list[QuarantinedRecord]:
    """Return the first open or discarded records, by partition and offset."""
    found: list[QuarantinedRecord] = []
    for one in _records(source, BEFORE_ALL, discarded=discarded):
        if len(found) >= limit:
            break
        found.append(one)
    return found


def shown(source: QuarantinedTopic, position: Position) -> QuarantinedRecord:
    """Return one open record."""
    before = Position(position.partition, position.offset - 1)
    for one in _records(source, before):
        if one.position == position:
            return one
        break
    raise TableError(
        f"{source.quarantine.location} has no open record at {position.partition}:{position.offset}."
    )


def discard(source: QuarantinedTopic, positions: Sequence[Position] | None) -> int:
    """Discard open records, all of them with None; return how many were."""
    _, mark = _states(source)
    # What has become a row cannot be discarded any more.
    source.quarantine.complete(mark)
    if positions is None:
        return source.quarantine.discard(None)
    wanted: dict[int, set[int]] = {}
    for one in positions:
        # Nothing is discarded if one of them is not there.
        shown(source, one)
        wanted.setdefault(one.partition, set()).add(one.offset)
    return source.quarantine.discard(wanted)


def _states(source: QuarantinedTopic) -> tuple[TableState, ReplayMark | None]:
    state = source.table.state()
    found = source.quarantine.state()
    if found is None:
        raise TableError(
            f"There is no quarantine table at {source.quarantine.location}: no record was quarantined, or they are "
            "in a topic (--quarantine topic:NAME), which flintmq consume shows."
        )
    return found, None if state is None else ReplayMark.of(state)


def _records(
    source: QuarantinedTopic, after: Position, *, discarded: bool = False
) -> Iterator[QuarantinedRecord]:
    found, mark = _states(source)
    for batch in source.quarantine.records(found, mark, after=after, discarded=discarded):
        # As numbers: Python's datetime cannot hold every timestamp of a record.
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        rows = batch.drop_columns(["timestamp"]).to_pylist()
        for row, time_us in zip(rows, times, strict=True):
            yield _record(row, time_us // 1000)


def _record(row: dict[str, Any], timestamp_ms: int) -> QuarantinedRecord:
    return QuarantinedRecord(
        position=Position(row["partition"], row["offset"]),
        timestamp_ms=timestamp_ms,
        error=row["error"] or "",
        key=row["key"],
        value=row["value"],
        headers=tuple((one["key"], one["value"]) for one in row["headers"] or ()),
    )
