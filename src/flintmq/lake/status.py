"""How far tables are behind their topics, and what they hold. Reads metadata only, no data file.

Invariant: nothing is changed by looking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flintmq.arrow.cluster_client import client_of
from flintmq.client.admin.maintenance import topic_health
from flintmq.client.cluster import ClusterClient
from flintmq.client.errors import NotFlintMQ
from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.quarantine.table import QuarantineCounts, QuarantineTable
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.column_notes import OpenRanges, extra_fields, open_backfill
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX, SyncOptions
from flintmq.lake.syncing.planner import SyncError, SyncPlanner
from flintmq.lake.syncing.synced_table import table_of
from flintmq.lake.syncing.table_decoding import kept_decoding
from flintmq.lake.tables.other_formats import missing_table
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
    extra_fields: Mapping[str, int]
    """In how many records each field was that the table has no column for."""
    backfill: OpenRanges
    """Columns that rows of these offsets do not have yet."""
    quarantine: QuarantineCounts | None
    """What became of its records."""
    retention_risks: tuple[str, ...] = ()
    """What the topic's retention is about to delete, or holds back, that a table of it does not have."""

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
                raise missing_table(
                    table,
                    open_store(table.location, options.store),
                    advice=f"make it with: flintmq lake sync {name} --to {options.to} --format {options.format}",
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
                    extra_fields=extra_fields(state),
                    backfill=open_backfill(state),
                    retention_risks=_retention_risks(client, name),
                    quarantine=None if poison is None else _counts(quarantine, poison, state, options),
                )
            )
        return found


def _retention_risks(client: ClusterClient, topic: str) -> tuple[str, ...]:
    try:
        health = topic_health(client, topic)
    except NotFlintMQ:
        return ()
    return tuple(
        health[index].retention_risk or "" for index in sorted(health) if health[index].retention_risk
    )


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
