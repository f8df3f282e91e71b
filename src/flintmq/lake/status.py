"""How far tables are behind their topics, and what they hold. Reads metadata only, no data file.

Invariant: nothing is changed by looking.
"""

from __future__ import annotations

from dataclasses import dataclass

from flintmq.arrow.cluster_client import client_of
from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.quarantine.table import QuarantineCounts, QuarantineTable
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX, SyncOptions
from flintmq.lake.syncing.planner import SyncError, SyncPlanner
from flintmq.lake.syncing.synced_table import table_of
from flintmq.lake.syncing.table_decoding import kept_decoding
from flintmq.lake.tables.table import Table, TableState


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    partition: int
    next_offset: int | None
    """None if the table has nothing of it yet."""
    end: int
    """The topic's last stable offset."""

    lag: int


@dataclass(frozen=True, slots=True)
class TableContents:
    files: int
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    topic: str
    location: str
    decoding: str
    partitions: tuple[PartitionStatus, ...]
    contents: TableContents
    quarantined: TableContents | None
    """None if there is no quarantine table."""
    quarantine: QuarantineCounts | None
    """What became of its records."""

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.partitions)


def status(options: SyncOptions) -> list[TableStatus]:
    with client_of(options.source) as client:
        planner = SyncPlanner(client, options.source, piece_bytes=options.piece_bytes)
        topics = planner.topics()
        ends = planner.ends(topics)
        starts = planner.starts(topics)
        found = []
        for name in options.topics:
            table = table_of(options, name)
            state = table.state()
            if state is None:
                raise SyncError(
                    f"there is no {options.format} table of {name} at {table.location}; make it with: "
                    f"flintmq lake sync {name} --to {options.to} --format {options.format}"
                )
            progress = state.progress.get(name)
            if progress is not None and progress.topic_id != topics[name].id.hex():
                raise SyncError(
                    f"{name} is not the topic that the table {table.location} was made from: it was deleted and "
                    "made again"
                )
            partitions = []
            for index in sorted(topics[name].partitions):
                next_offset = None if progress is None else progress.next_offsets.get(index)
                begin = starts[name, index] if next_offset is None else next_offset
                end = ends[name, index]
                partitions.append(PartitionStatus(index, next_offset, end, max(0, end - begin)))
            quarantine = table_of(options, name + QUARANTINE_SUFFIX)
            poison = quarantine.state()
            found.append(
                TableStatus(
                    topic=name,
                    location=table.location,
                    decoding=kept_decoding(state).kind,
                    partitions=tuple(partitions),
                    contents=_contents(table, state),
                    quarantined=None if poison is None else _contents(quarantine, poison),
                    quarantine=None if poison is None else _counts(quarantine, poison, state, options),
                )
            )
        return found


def _counts(
    quarantine: Table, poison: TableState, state: TableState, options: SyncOptions
) -> QuarantineCounts:
    store = open_store(quarantine.location, options.store)
    return QuarantineTable(quarantine, store).counts(poison, ReplayMark.of(state))


def _contents(table: Table, state: TableState) -> TableContents:
    count = size = rows = 0
    for one in table.files(state):
        count, size, rows = count + 1, size + one.size, rows + one.rows
    return TableContents(count, size, rows)
