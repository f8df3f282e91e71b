"""`lake replay`: a table back into a topic, with keys, headers, timestamps and partitions as they were.

    replay(spark, options, to_topic="orders-again")

Spark's workers write, a partition each, in transactions that also say how far they are. Invariant: each row is in the
topic once for committed readers, however often the replay dies and is begun again under the same name; that is by
default the same for the same table, topic and range. The broker remembers it as long as a group's offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.arrow.cluster_client import client_of
from flintmq.client.admin.topics import describe_topic_settings
from flintmq.client.cluster import ClusterClient, NoSuchTopic
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import ConfigurationError
from flintmq.lake.audit.planning import OffsetBounds, PartitionSection, SourcePartition, plan_sections
from flintmq.lake.fan_out import map_in_workers
from flintmq.lake.replay.task import PartitionReplay, ReplayTask, replay_partition
from flintmq.lake.store.store import open_store
from flintmq.lake.syncing.options import SyncOptions
from flintmq.lake.syncing.synced_table import own_location, table_of
from flintmq.lake.syncing.table_decoding import kept_decoding
from flintmq.lake.tables.data_file import DataFile, digest_of
from flintmq.lake.tables.other_formats import missing_table
from flintmq.lake.tables.table import Table, TableError, TableState
from flintmq.records.batch import HEADER_SIZE
from flintmq.records.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession

logger = logging.getLogger(__name__)

PREFIX: Final = "lake-replay-"
_BATCH_BYTES: Final = 1024 * 1024
_NO_END: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySelection:
    """Which rows; of each partition the same offsets, ends excluded."""

    start_offset: int = 0
    end_offset: int = _NO_END
    since_ms: int | None = None
    until_ms: int | None = None


ALL: Final = ReplaySelection()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    table: str
    topic: str
    name: str
    """Of the group that remembers how far it is."""
    partitions: tuple[PartitionReplay, ...]

    @property
    def rows(self) -> int:
        """Written this time."""
        return sum(one.rows for one in self.partitions)


def replay(
    spark: SparkSession | LazySession,
    options: SyncOptions,
    *,
    to_topic: str,
    selection: ReplaySelection = ALL,
    name: str | None = None,
    codec: Codec = Codec.NONE,
) -> ReplayReport:
    """The table of `options`' topic. Another `name` begins anew, even if all was replayed before."""
    (source,) = options.topics
    table = table_of(options, source)
    state = table.state()
    if state is None:
        raise missing_table(table, open_store(table.location, options.store))
    if not kept_decoding(state).is_raw:
        raise ConfigurationError(
            f"The table at {table.location} holds decoded columns, not the records' own bytes; only a table that was "
            "synced with --decode raw can be replayed"
        )
    with client_of(options.source) as client:
        target = _target(client, to_topic, state, source, table)
        batch_bytes = _checked_batch_bytes(client, to_topic, codec)
    origin = digest_of(own_location(options, source), _topic_id(state, source), _words(selection))
    named = PREFIX + (name or digest_of(origin, target.id.hex()))
    tasks = [
        ReplayTask(
            sections=sections,
            store=open_store(table.location, options.store),
            source=options.source,
            topic=to_topic,
            partition=partition,
            name=named,
            origin=origin,
            start_offset=selection.start_offset,
            end_offset=selection.end_offset,
            since_ms=selection.since_ms,
            until_ms=selection.until_ms,
            codec=codec,
            batch_bytes=batch_bytes,
        )
        for partition, sections in _sections(table, state, source).items()
    ]
    work_bytes = sum(section.work_bytes for task in tasks for section in task.sections)
    done = map_in_workers(spark, tasks, replay_partition, PartitionReplay, work_bytes=work_bytes)
    found = ReplayReport(table=table.location, topic=to_topic, name=named, partitions=tuple(done))
    logger.info("%s: %d rows were replayed to %s as %s", table.location, found.rows, to_topic, named)
    return found


def _target(client: ClusterClient, name: str, state: TableState, source: str, table: Table) -> TopicMetadata:
    progress = state.progress.get(source)
    count = 1 + max(progress.next_offsets, default=0) if progress is not None else 1
    try:
        target = client.topic(name)
    except NoSuchTopic:
        raise ConfigurationError(
            f"There is no topic {name}; make it with: flintmq topic create {name} --partitions {count}"
        ) from None
    if progress is not None and target.id.hex() == progress.topic_id:
        raise ConfigurationError(
            f"{name} is the topic that the table at {table.location} is made from; its rows would come back to the "
            "table. Replay to another topic"
        )
    if len(target.partitions) < count:
        raise ConfigurationError(
            f"the table's rows come from {count} partitions, and {name} has only {len(target.partitions)}. Replay to "
            f"a topic that has at least {count} partitions"
        )
    return target


def _checked_batch_bytes(client: ClusterClient, name: str, codec: Codec) -> int:
    """How large batches may be. Settings under which records would not be as they were are refused."""
    settings = {one.name: one.value for one in describe_topic_settings(client, name)}
    if settings.get("message.timestamp.type") == "LogAppendTime":
        raise ConfigurationError(
            f"{name} gives records the time of their arrival (message.timestamp.type); set it to CreateTime, so that "
            "they keep theirs"
        )
    if int(settings.get("retention.ms") or -1) >= 0 and "delete" in (
        settings.get("cleanup.policy") or "delete"
    ):
        logger.warning(
            "%s has retention.ms=%s: rows that are older than that are deleted soon after they are replayed; "
            "retention.ms=-1 keeps them",
            name,
            settings["retention.ms"],
        )
    room = int(settings.get("max.message.bytes") or _BATCH_BYTES) - HEADER_SIZE
    if codec is not Codec.NONE:
        # What cannot be compressed becomes a little larger.
        room -= room // 5
    return max(1, min(_BATCH_BYTES, room))


def _sections(table: Table, state: TableState, source: str) -> Mapping[int, tuple[PartitionSection, ...]]:
    """By partition, with all of the table's files."""
    progress = state.progress.get(source)
    by_partition: dict[int, list[DataFile]] = {}
    for one in table.files(state):
        by_partition.setdefault(one.partition, []).append(one)
    found = {}
    for partition, files in sorted(by_partition.items()):
        end = 0 if progress is None else progress.next_offsets.get(partition, 0)
        of_topic = SourcePartition(
            topic=source, topic_id=bytes.fromhex(_topic_id(state, source)), partition=partition
        )
        sections, problems = plan_sections(files, of_topic, OffsetBounds(earliest=0, end=end))
        if problems:
            raise TableError(f"{problems[0]}; audit the table before it is replayed.")
        found[partition] = tuple(sections)
    return found


def _topic_id(state: TableState, source: str) -> str:
    progress = state.progress.get(source)
    return "" if progress is None else progress.topic_id


def _words(selection: ReplaySelection) -> list[int | None]:
    return [selection.start_offset, selection.end_offset, selection.since_ms, selection.until_ms]
