"""One table of a sync: made if it is not there, looked at before each plan, committed to after it.

    prepared = table.prepare(topic)
    prepared.target            for the workers
    prepared.commit(plan, written)

Invariant: a `PreparedTable` belongs to one state of the table, whose quarantine is complete; its commit changes that
state or none. This module must not know Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flintmq.arrow.formats import ddl
from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.arrow.formats.schema_merge import paths
from flintmq.arrow.write.options import SinkOptions
from flintmq.client.cluster import ClusterClient
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ConfigurationError
from flintmq.lake.limits import SYNC_LIMITS, SyncLimits
from flintmq.lake.store.store import join, open_store
from flintmq.lake.syncing.column_notes import extra_fields, with_extra_fields, with_open_columns
from flintmq.lake.syncing.metrics import TableCommit
from flintmq.lake.syncing.options import QUARANTINE_SUFFIX, SyncOptions
from flintmq.lake.syncing.planner import SyncPlan
from flintmq.lake.syncing.quarantine import PendingQuarantine, Quarantine, TableQuarantine, with_pending
from flintmq.lake.syncing.quarantine_topic import TopicQuarantine
from flintmq.lake.syncing.range_runner import RangeResult
from flintmq.lake.syncing.range_writer import FileLayout, RangeTarget, WrittenRange
from flintmq.lake.syncing.table_decoding import DECODING_PROPERTY, TableDecoding, kept_decoding
from flintmq.lake.tables.factory import NAMESPACE, open_table
from flintmq.lake.tables.partitioning import check_partitioning
from flintmq.lake.tables.properties import REBUILT
from flintmq.lake.tables.schema_evolution import is_same_schema
from flintmq.lake.tables.table import Conflict, PartitionField, Table, TableChange, TableState, TopicProgress


class SyncedTable:
    def __init__(
        self, topic: str, options: SyncOptions, client: ClusterClient, limits: SyncLimits = SYNC_LIMITS
    ) -> None:
        self._topic = topic
        self._options = options
        self._client = client
        self._limits = limits
        self._table = table_of(options, topic)
        self._decoding = TableDecoding(topic, options, client, sample_offsets_max=limits.sample_offsets_max)
        self._quarantine: Quarantine | None = None
        self._rebuilt: str | None = None
        """The table's last rebuild when it was first looked at."""

    def prepare(self, topic: TopicMetadata) -> PreparedTable:
        state = self._table.state() or self._create(topic)
        self._check_topic(state)
        self._check_partitioning(state)
        self._check_rebuilt(state)
        quarantine = self._quarantine_of(state)
        if quarantine is not None:
            quarantine.complete_rebuild(state, self._topic)
            if (pending := PendingQuarantine.of(state, self._topic)) is not None:
                quarantine.complete(pending)
            quarantine.complete_replay(state)
            quarantine.check(self._topic, state.progress.get(self._topic))
        row_decoder = self._decoding.of(state)
        schema = self._table.evolved(state, row_decoder.schema)
        layout = FileLayout(
            store=open_store(self._table.location, self._options.store),
            schema=schema,
            partitioning=state.partitioning,
        )
        target = RangeTarget(
            source=self._options.source,
            row_decoder=row_decoder,
            rows=layout,
            digest=layout.digest(self._decoding.text),
            poison=None if quarantine is None else quarantine.layout(),
            open_files_max=self._limits.open_files_max,
            table_partitions_max=self._limits.table_partitions_max,
        )
        return PreparedTable(self._topic, self._table, state, target, quarantine, self._decoding)

    def _create(self, topic: TopicMetadata) -> TableState:
        row_decoder = self._decoding.first(topic)
        check_partitioning(self._options.partitioning, row_decoder.schema)
        try:
            return self._table.create(
                row_decoder.schema,
                partitioning=self._options.partitioning,
                properties={DECODING_PROPERTY: self._decoding.text},
            )
        except Conflict:
            # Somebody else has made it meanwhile.
            state = self._table.state()
            assert state is not None
            return state

    def _check_topic(self, state: TableState) -> None:
        if state.progress and self._topic not in state.progress:
            raise ConfigurationError(
                f"{self._table.location} is the table of the topic {', '.join(state.progress)}, and was renamed; "
                f"sync {self._topic} to another place with --to"
            )

    def _check_partitioning(self, state: TableState) -> None:
        asked = self._options.partitioning
        if asked and asked != tuple(state.partitioning):
            raise ConfigurationError(
                f"{self._table.location} is partitioned by {_named(state.partitioning) or 'nothing'}, and cannot "
                f"be by {_named(asked)} from now on; leave --partition-by out, or sync to another place with --to"
            )

    def _check_rebuilt(self, state: TableState) -> None:
        rebuilt = state.properties.get(REBUILT, "")
        if self._rebuilt not in (None, rebuilt):
            raise ConfigurationError(
                f"{self._table.location} was rebuilt meanwhile, perhaps with another schema; start the sync again"
            )
        self._rebuilt = rebuilt

    def _quarantine_of(self, state: TableState) -> Quarantine | None:
        if kept_decoding(state).is_raw:
            return None
        if self._quarantine is None:
            self._quarantine = quarantine_of(self._options, self._topic, self._client)
        return self._quarantine


@dataclass(frozen=True, slots=True)
class PreparedTable:
    topic: str
    _table: Table
    _state: TableState
    target: RangeTarget
    _quarantine: Quarantine | None
    _decoding: TableDecoding

    @property
    def location(self) -> str:
        return self._table.location

    @property
    def progress(self) -> TopicProgress | None:
        return self._state.progress.get(self.topic)

    @property
    def columns_added(self) -> list[str]:
        """Columns, and fields within them, that the next commit adds."""
        before = set(paths(self._state.schema))
        added = [path for path in paths(self.target.rows.schema) if path not in before]
        # Not also the fields of a column that is new itself.
        return [one for one in added if not any(one.startswith(f"{other}.") for other in added)]

    def has_news(self, plan: SyncPlan) -> bool:
        """Whether a plan without pieces says something that the table does not know.

        That is where it begins, after a gap, or how records are decoded from now on.
        """
        if self._decoding.kept != kept_decoding(self._state) or not self._has_schema():
            return True
        progress = self.progress
        if progress is None:
            return any(offset > 0 for offset in plan.next_offsets.values())
        return any(
            progress.next_offsets.get(partition, 0) < offset
            for partition, offset in plan.next_offsets.items()
        )

    def learn(self, schema_ids: Iterable[int]) -> None:
        """Schemas that values have, and whose columns the table is to have from the next plan on."""
        self._decoding.learn(schema_ids)

    def learn_columns(self, columns: Iterable[str]) -> None:
        """The same with columns of fields that have none, as DDL."""
        self._decoding.learn_columns(map(ddl.parse, columns))

    def commit(self, plan: SyncPlan, written: Sequence[WrittenRange]) -> None:
        """Conflict if the table is not what the plan was made on."""
        progress = TopicProgress(plan.topic.id.hex(), dict(plan.next_offsets))
        poison = tuple(file for one in written for file in one.poison)
        pending = PendingQuarantine(self.topic, progress, poison) if poison else None
        properties = {**self._state.properties, DECODING_PROPERTY: self._decoding.text}
        properties = with_open_columns(properties, self._columns_to_fill(), self.progress)
        extra = extra_records(written)
        properties = with_extra_fields(properties, extra, self.target.row_decoder.field_paths)
        self._table.commit(
            TableChange(
                base=self._state,
                added=[file for one in written for file in one.rows],
                schema=None if self._has_schema() else self.target.rows.schema,
                progress={**self._state.progress, self.topic: progress},
                properties=with_pending(properties, pending),
            )
        )
        if pending is not None and self._quarantine is not None:
            self._quarantine.complete(pending)

    def table_commit(self, plan: SyncPlan, results: Sequence[RangeResult], *, seconds: float) -> TableCommit:
        written = [one.written for one in results if one.written is not None]
        files = [file for one in written for file in one.rows]
        return TableCommit(
            topic=self.topic,
            table=self.location,
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.size for file in files),
            quarantined=sum(file.rows for one in written for file in one.poison),
            seconds=seconds,
            lag={},
            columns_added=tuple(self.columns_added),
            extra=extra_records(written),
        )

    def _columns_to_fill(self) -> list[str]:
        """Columns that the next commit adds, and for which records before it may have values."""
        into = self._decoding.kept.into
        counted = extra_fields(self._state)
        found = set()
        for column in self.columns_added:
            path = column if into is None else column.removeprefix(f"{into}.")
            if not self._decoding.is_new(path) or any(_overlap(path, one) for one in counted):
                found.add(column.partition(".")[0])
        return sorted(found)

    def _has_schema(self) -> bool:
        """Whether the table has the columns that the commit is about."""
        return is_same_schema(self.target.rows.schema, self._state.schema)


def _overlap(one: str, other: str) -> bool:
    """Whether a path is the other, or within it, or around it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def extra_records(written: Iterable[WrittenRange]) -> dict[str, int]:
    """Return in how many records each field is that has no column."""
    together = ExtraFields()
    for one in written:
        together.merge(one.extra)
    return together.records


def table_of(options: SyncOptions, name: str) -> Table:
    return open_table(
        options.to,
        name,
        options.format,
        settings=options.store,
        catalog=options.catalog,
        namespace=options.namespace or NAMESPACE,
    )


def own_location(options: SyncOptions, name: str) -> str:
    """Return the location that a topic's table has until it is renamed: what other names are made from stays."""
    return join(open_store(options.to, options.store).url, name)


def quarantine_of(options: SyncOptions, topic: str, client: ClusterClient) -> Quarantine:
    name = topic + QUARANTINE_SUFFIX
    if options.quarantine_topic is None:
        return TableQuarantine(table_of(options, name), options.store)
    quarantine_table = table_of(options, name)
    return TopicQuarantine(
        client,
        options.quarantine_topic,
        table=table_of(options, topic).location,
        group_location=own_location(options, topic),
        # The directory of the quarantine table: whichever quarantine comes next finds the files of this one.
        store=open_store(quarantine_table.location, options.store),
        quarantine_table=quarantine_table,
        shared_group=shared_quarantine_group(options, topic),
        sink=SinkOptions(options.bootstrap, topic=options.quarantine_topic, security=options.security),
    )


def shared_quarantine_group(options: SyncOptions, topic: str) -> str:
    return f"{options.group_of(topic)}-quarantine"


def _named(fields: Sequence[PartitionField]) -> str:
    return ", ".join(f"{one.column}:{one.transform}" for one in fields)
