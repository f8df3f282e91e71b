"""The stream of the source `flintmq`: Spark asks it how far it may go, gets tasks for that, and says what is done.

Offsets are JSON in the form of Spark's Kafka source, {"topic": {"0": 5}}. Spark logs the end of each micro-batch
before it runs, never the start of the first: after a crash in the first one it asks `initialOffset` again. So a start
that would not be the same a second time (latest) is not given there, but {} is, and the first micro-batch ends where
the stream is to start and has no rows. Invariant: a micro-batch that begins at {} has no rows; any other reads
exactly what lies between its ends, whenever and however often it runs.

One process on the driver keeps a StreamReader for as long as the query runs; others are pickled, before any of this
is called, to read in the workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from flintmq.arrow.cluster_client import client_of
from flintmq.arrow.scan.data_loss import report_loss, span
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.offsets import (
    FROM_LATEST,
    Offsets,
    backlog,
    from_json,
    is_repeatable,
    names,
    share,
    to_json,
)
from flintmq.arrow.scan.options import SourceOptions
from flintmq.arrow.scan.planner import Planner, check_bound
from flintmq.arrow.scan.segment_planner import FileTask, Task
from flintmq.arrow.scan.task_reader import read_task
from flintmq.client.admin.groups import set_offsets
from flintmq.client.cluster import NoSuchTopic
from flintmq.client.metadata import TopicMetadata
from flintmq.errors import FlintError
from flintmq.records.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Json = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._driver: _Driver | None = None

    @property
    def driver(self) -> _Driver:
        """What asks the brokers; in the one process that is asked for offsets, and made there."""
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    def initialOffset(self) -> Json:
        return to_json(self.driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.stop_at_latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Json:
        begun = from_json(start)
        # Spark asks only when all before the start is done, and says nothing else of a query's last micro-batch.
        self.driver.publish(begun)
        # Limits are the options' own; Spark's word is only whether they hold in this trigger.
        return to_json(self.driver.advance(begun, limited=not isinstance(limit, ReadAllAvailable)))

    def reportLatestOffset(self) -> Json | None:
        return to_json(self.driver.seen) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(one) for one in self.driver.tasks(from_json(start), from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition.value, OffsetRange | FileTask)
        return read_task(partition.value, self._columns, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        self.driver.publish(from_json(end))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()


class _Driver:
    """What a stream knows between its micro-batches."""

    def __init__(self, options: SourceOptions) -> None:
        self.seen: Offsets = {}
        """The ends of all partitions when they were last asked for."""
        self._options = options
        self._client = client_of(options)
        self._planner = Planner(self._client, options)
        self._known: set[str] = set()
        """Topics that have been there, by what was seen or by what the checkpoint says."""
        self._topic_ids: dict[str, bytes] = {}
        self._recreated: set[str] = set()
        """Topics whose next micro-batch begins at their start."""
        self._target: Offsets | None = None
        self._is_target_due = False
        self._began_with_nothing = False
        self._published: Offsets = {}
        self._last_batch_s = float("-inf")

    def close(self) -> None:
        self._client.close()

    # ---- how far

    def initial(self) -> Offsets:
        """Where a new stream starts; nothing if that must be settled by its first micro-batch."""
        bound = self._options.starting or FROM_LATEST
        if not is_repeatable(bound, late_is_latest=self._options.late_start_is_latest):
            return {}
        partitions = self._planner.partitions(self._topics({}))
        check_bound(bound, partitions, way="starting")
        return self._planner.start(partitions, bound)

    def stop_at_latest(self) -> None:
        """The query ends with what is there now."""
        try:
            self._target = self._latest({})
        except NoSuchTopic:
            # The checkpoint may know it from better days; `advance` is told of that.
            self._is_target_due = True

    def advance(self, start: Offsets, *, limited: bool) -> Offsets:
        """The end of the micro-batch that begins at `start`; `start` itself if none is due."""
        if not start:
            return self._settled()
        end = self._latest(start)
        if self._is_target_due:
            self._target, self._is_target_due = end, False
        if self._target is not None:
            # Partitions that came since are for the next run; a start that was settled since is where this one ends.
            end = {
                partition: min(offset, max(self._target[partition], start.get(partition, 0)))
                for partition, offset in end.items()
                if partition in self._target
            }
        if not limited:
            return end
        begun = self._with_new(start, end)
        if self._target is None and self._must_wait(backlog(begun, end)):
            return start
        limit = self._options.offsets_per_trigger_max
        return end if limit is None else share(begun, end, offsets_max=limit)

    def _settled(self) -> Offsets:
        """Where a stream starts that began at {}. Topics that came later are read from their start."""
        partitions = self._planner.partitions(self._topics({}))
        if self._began_with_nothing:
            return self._planner.earliest(partitions)
        self._began_with_nothing = not partitions
        bound = self._options.starting or FROM_LATEST
        check_bound(bound, partitions, way="starting")
        return self._planner.start(partitions, bound)

    def _must_wait(self, available: int) -> bool:
        options = self._options
        now_s = time.monotonic()
        if (
            options.offsets_per_trigger_min is not None
            and available < options.offsets_per_trigger_min
            and (now_s - self._last_batch_s) * 1000 < options.trigger_delay_ms_max
        ):
            return True
        if available:
            self._last_batch_s = now_s
        return False

    def _latest(self, start: Offsets) -> Offsets:
        topics = self._topics(start)
        self.seen = self._planner.latest(self._planner.partitions(topics))
        return dict(self.seen)

    def _with_new(self, start: Offsets, end: Offsets) -> Offsets:
        """`start`, and the starts of the partitions that it does not know."""
        new = [partition for partition in end if partition not in start]
        return {**start, **self._planner.earliest(new)} if new else start

    def _topics(self, start: Offsets) -> dict[str, TopicMetadata]:
        """What is read now. A topic that the stream knew and that is another one now is reported."""
        self._known.update(topic for topic, _ in start)
        topics = self._planner.topics(known=self._known)
        for name, one in topics.items():
            if self._topic_ids.get(name, one.id) != one.id:
                what = f"the topic {name} was deleted and created again; what was left of the old one is lost"
                report_loss(what, fail=self._options.fail_on_loss)
                self._recreated.add(name)
            self._topic_ids[name] = one.id
            self._known.add(name)
        return topics

    # ---- the tasks of one micro-batch

    def tasks(self, start: Offsets, end: Offsets) -> list[Task]:
        if not start or start == end:
            return []
        topics = self._topics(start)
        self._report_missing(start, end, topics)
        there = {partition: offset for partition, offset in end.items() if self._is_there(partition, topics)}
        earliest = self._planner.earliest(
            [
                partition
                for partition, offset in there.items()
                if partition not in start or partition[0] in self._recreated or offset < start[partition]
            ]
        )
        ranges = []
        for partition, until in there.items():
            since = start.get(partition)
            if partition in earliest:
                since = self._restarted(partition, since, until, earliest[partition])
            assert since is not None
            ranges.append(
                OffsetRange(
                    partition[0],
                    topics[partition[0]].id,
                    partition[1],
                    since,
                    max(since, until),
                )
            )
        self._recreated.clear()
        return self._planner.tasks([one for one in ranges if one.size])

    def _report_missing(self, start: Offsets, end: Offsets, topics: Mapping[str, TopicMetadata]) -> None:
        """Partitions that the stream has read from, or was to read, and that are gone."""
        gone = sorted(
            partition
            for partition in {*start, *end}
            if partition not in end or not self._is_there(partition, topics)
        )
        if gone:
            what = f"{names(gone)} are not read any more: topics were deleted, or the options name others"
            report_loss(what, fail=self._options.fail_on_loss)

    def _restarted(self, partition: TopicPartition, since: int | None, until: int, earliest: int) -> int:
        """Where to read a partition that is new, or whose offsets went back."""
        fail = self._options.fail_on_loss
        if since is None and earliest > 0:
            what = f"{span(*partition, 0, earliest)} are deleted: the partition is new to the stream"
            report_loss(f"{what} and begins at {earliest}", fail=fail)
        elif since is not None and until < since:
            what = f"{partition[0]}-{partition[1]} went back from offset {since} to {until}"
            report_loss(f"{what}: its records were lost, or the topic was created again", fail=fail)
        return earliest

    @staticmethod
    def _is_there(topic_partition: TopicPartition, topics: Mapping[str, TopicMetadata]) -> bool:
        topic, partition = topic_partition
        return topic in topics and partition in topics[topic].partitions

    # ---- what is done

    def publish(self, end: Offsets) -> None:
        """Let the consumer group say how far the stream is. It only tells: Spark's checkpoint is what counts."""
        group = self._options.group_id
        if group is None or not end or end == self._published:
            return
        try:
            set_offsets(self._client, group, end)
            self._published = end
        except FlintError as error:
            logger.warning("the progress of the stream could not be published as group %s: %s", group, error)
