"""`lake latest`: a table with the last row of each key of another table, as compaction of its topic would leave it.

    latest(spark, source, source_store, target, target_store)

Invariant: what the table has and how far it is change in one commit. Only files of the source behind that are read
(and those behind the first row that was replayed from quarantine since), and of the table itself only what changes is
written again. After a rebuild or a backfill of the source the whole table is written again, because any row may have
changed. A key is looked for in its partition of the topic alone, as the broker's compaction does; a record without a
value deletes its key, one without a key is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from flintmq.lake.fan_out import map_in_workers
from flintmq.lake.latest.merge import BUCKET_BYTES, KIND, LATEST, LatestPart, LatestTask, merge_latest
from flintmq.lake.quarantine.mark import ReplayMark
from flintmq.lake.store.store import Store
from flintmq.lake.syncing.range_writer import FileLayout
from flintmq.lake.tables import schema_evolution
from flintmq.lake.tables.other_formats import missing_table
from flintmq.lake.tables.properties import BACKFILLED, REBUILT
from flintmq.lake.tables.table import Conflict, Table, TableChange, TableError, TableState, TopicProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)

SUFFIX: Final = "__latest"
REPLAYS: Final = "flintmq.replays"
"""How many replays of quarantined records the table knows: their rows come between others."""
_REWRITES: Final = (REBUILT, BACKFILLED)
"""Properties of the source that change when rows change which the table may have taken."""
_ATTEMPTS_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestReport:
    offsets: int
    """How much further the table is."""
    files_read: int
    """Of the source."""
    files_written: int
    rows: int
    """In the table."""


def latest(
    spark: SparkSession | LazySession,
    source: Table,
    source_store: Store,
    target: Table,
    target_store: Store,
    *,
    bucket_bytes: int = BUCKET_BYTES,
) -> LatestReport:
    for _ in range(_ATTEMPTS_MAX):
        try:
            return _refresh(spark, source, source_store, target, target_store, bucket_bytes)
        except Conflict:
            logger.info("%s was changed by somebody else; begun anew", target.location)
    raise TableError(f"{target.location} is changed by others all the time; let only one write to it.")


def _refresh(
    spark: SparkSession | LazySession,
    source: Table,
    source_store: Store,
    target: Table,
    target_store: Store,
    bucket_bytes: int,
) -> LatestReport:
    given = source.state()
    if given is None:
        raise missing_table(source, source_store, advice="sync the topic first")
    if "key" not in given.schema.names or "offset" not in given.schema.names:
        raise TableError(
            f"{source.location} has no columns key and offset; it cannot tell which row is the last."
        )
    state = target.state()
    if state is None:
        state = target.create(given.schema, properties={KIND: LATEST})
    if state.properties.get(KIND) != LATEST:
        raise TableError(f"{target.location} is a table of another kind; choose another name.")
    rewrites = {name: given.properties[name] for name in _REWRITES if name in given.properties}
    is_rewritten = rewrites != {
        name: state.properties[name] for name in _REWRITES if name in state.properties
    }
    schema: pa.Schema | None = None
    if is_rewritten:
        schema = written = target.replaced(state, given.schema)
    else:
        schema = None if _has_all(state, given) else given.schema
        written = state.schema if schema is None else target.evolved(state, schema)
    rows_as = FileLayout(store=target_store, schema=written)
    read_as = FileLayout(store=source_store, schema=given.schema)
    old = list(target.files(state))
    kept = [] if is_rewritten else old
    files = list(source.files(given))
    tasks, offsets = [], 0
    replays = 0 if (mark := ReplayMark.of(given)) is None else mark.replays
    is_replayed = state.properties.get(REPLAYS, "0") != str(replays)
    lowest = mark.lowest if mark is not None and is_replayed else {}
    known = {} if is_rewritten else state.progress
    for topic, partition, start, end in _steps(known, given, target.location, lowest):
        offsets += end - start
        read_offset = min(start, lowest.get(partition, start))
        task = LatestTask(
            topic=topic,
            topic_id=given.progress[topic].topic_id,
            partition=partition,
            start_offset=min(end, _reached(state, topic, partition)),
            end_offset=end,
            source=read_as,
            new=tuple(
                one
                for one in files
                if (one.topic, one.partition) == (topic, partition) and one.end_offset > read_offset
            ),
            target=rows_as,
            old=tuple(one for one in kept if (one.topic, one.partition) == (topic, partition)),
            bucket_bytes=bucket_bytes,
            version=_version(replays, rewrites),
            read_offset=read_offset,
        )
        if task.new:
            tasks.append(task)
    work_bytes = sum(one.size for task in tasks for one in (*task.new, *task.old))
    parts = map_in_workers(spark, tasks, merge_latest, LatestPart, work_bytes=work_bytes)
    added = [one for part in parts for one in part.added]
    if offsets or is_replayed or is_rewritten:
        by_path = {one.path: one for one in old}
        removed = old if is_rewritten else [by_path[path] for part in parts for path in part.removed]
        progress = {
            topic: TopicProgress(one.topic_id, one.next_offsets) for topic, one in given.progress.items()
        }
        state = target.commit(
            TableChange(
                base=state,
                added=added,
                removed=removed,
                schema=schema,
                progress=progress,
                replaces_schema=is_rewritten,
                properties={
                    **state.properties,
                    **({REPLAYS: str(replays)} if replays or is_replayed else {}),
                    **rewrites,
                },
            )
        )
        logger.info("%s: %d offsets further, %d files written", target.location, offsets, len(added))
    return LatestReport(
        offsets=offsets,
        files_read=sum(len(task.new) for task in tasks),
        files_written=len(added),
        rows=sum(one.rows for one in target.files(state)),
    )


def _has_all(state: TableState, given: TableState) -> bool:
    return schema_evolution.is_same_schema(schema_evolution.merge(state.schema, given.schema), state.schema)


def _reached(state: TableState, topic: str, partition: int) -> int:
    progress = state.progress.get(topic)
    return 0 if progress is None else progress.next_offsets.get(partition, 0)


def _version(replays: int, rewrites: Mapping[str, str]) -> tuple[str, ...]:
    return (
        ()
        if not replays and not rewrites
        else (str(replays), *(rewrites.get(name, "") for name in _REWRITES))
    )


def _steps(
    known_progress: Mapping[str, TopicProgress], given: TableState, location: str, replayed: Container[int]
) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, and the offsets that are new; also partitions that have replayed rows."""
    for topic, progress in given.progress.items():
        known = known_progress.get(topic)
        if known is not None and known.topic_id != progress.topic_id:
            raise TableError(
                f"{location} is made from another topic of the name {topic}, since deleted; move the table away, and "
                "it is made anew."
            )
        for partition, end in sorted(progress.next_offsets.items()):
            start = 0 if known is None else known.next_offsets.get(partition, 0)
            if end < start:
                raise TableError(
                    f"{location} is further in {topic}-{partition} (offset {start}) than the table that it is made "
                    f"from ({end}); move it away, and it is made anew."
                )
            if end > start or partition in replayed:
                yield topic, partition, start, end
