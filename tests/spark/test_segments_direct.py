"""Segments read from a real broker's files give what the wire gives, whatever happens to them; no JVM."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from pyspark.sql.datasource import CaseInsensitiveDict, GreaterThanOrEqual

from flintmq.arrow.scan import range_reader, segment_file, task_reader
from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.arrow.scan.segment_planner import FileTask
from flintmq.client.admin.maintenance import maintain_topic
from flintmq.errors import ConfigurationError
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.records.compression import Codec
from flintmq.records.record import NewRecord
from flintmq.spark.source import FlintMQSegments
from support.broker.broker_process import BrokerProcess
from support.spark.spark_direct import Direct, DirectStream, Rows, read
from support.spark.spark_topics import TIME_MS, Topics, numbered

ALL = "key,value,topic,partition,offset,timestamp,timestampType,headers"
SMALL_SEGMENTS = {"segment.bytes": "2000"}
HEADERS = (("a", b"1"), ("b", None))


@pytest.fixture
def direct(broker: BrokerProcess) -> Direct:
    return Direct(broker.address)


class Fetches:
    """What is read over the wire."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, wanted: Any, *args: Any) -> Iterator[Any]:
        self.ranges.append((wanted.start, wanted.end))
        return range_reader.read_range(wanted, *args)

    @property
    def count(self) -> int:
        """Of offsets."""
        return sum(end - start for start, end in self.ranges)


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    made = Fetches()
    monkeypatch.setattr(task_reader, "read_range", made)
    return made


@pytest.fixture
def filled(topics: Topics, topic: str) -> str:
    """300 records of every codec, in several segments."""
    topics.create(topic, configs=SMALL_SEGMENTS)
    for first in range(0, 300, 5):
        records: list[NewRecord] = [
            (
                b"k%d" % at if at % 3 else None,
                b"v%d" % at * 20 if at % 4 else None,
                TIME_MS + at * 1000,
                HEADERS[: at % 3],
            )
            for at in range(first, first + 5)
        ]
        topics.write(topic, records, codec=tuple(Codec)[first // 5 % len(Codec)])
    return topic


class Read:
    """A batch read that is planned now, and read when the test wants it."""

    def __init__(self, direct: Direct, topic: str, **options: Any) -> None:
        source = direct.source(topic, {"segments": "always", **options})
        self.reader: Any = source.reader(source.schema())
        self.partitions = self.reader.partitions()
        assert any(isinstance(one.value, FileTask) for one in self.partitions), "no files are in the plan"

    @property
    def paths(self) -> list[str]:
        return [
            one.path
            for task in self.partitions
            if isinstance(task.value, FileTask)
            for one in task.value.segments
        ]

    def rows(self) -> Rows:
        return read(pickle.loads(pickle.dumps(self.reader)), self.partitions)


# ---- the same rows


@pytest.mark.parametrize("mode", ["auto", "always"])
def test_rows_are_those_of_the_wire(direct: Direct, filled: str, fetches: Fetches, mode: str) -> None:
    expected = direct.rows(filled, columns=ALL, segments="never")
    assert len(expected) == 300
    assert fetches.count == 300
    fetches.ranges.clear()
    assert direct.rows(filled, columns=ALL, segments=mode) == expected
    assert fetches.ranges == []


@pytest.mark.parametrize(
    "options",
    [
        {"minPartitions": 23},
        {"maxRecordsPerPartition": 7},
        {"startingOffsets": {"0": 123}, "endingOffsets": {"0": 188}},
    ],
    ids=["tasks", "records", "offsets"],
)
def test_a_range_may_begin_and_end_anywhere_in_a_file(
    direct: Direct, filled: str, fetches: Fetches, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {
        name: {filled: value} if isinstance(value, dict) else value for name, value in options.items()
    }
    expected = direct.rows(filled, segments="never", **given)
    fetches.ranges.clear()
    assert direct.limited(chunk_bytes=500).rows(filled, **given) == expected
    assert fetches.ranges == []


def test_committed_reads_leave_out_what_was_aborted(
    direct: Direct, topics: Topics, topic: str, fetches: Fetches
) -> None:
    topics.create(topic, configs={"segment.bytes": "700"})
    first, second = (topics.transaction(f"{topic}-{name}") for name in "ab")
    for at in range(0, 120, 6):
        first.write(topic, numbered(at, 2))
        second.write(topic, numbered(at + 2, 2))
        if at % 18 == 12:
            first.end(committed=at % 36 == 12)
        if at % 30 == 24:
            second.end(committed=at % 60 == 24)
        topics.write(topic, numbered(at + 4, 2))
    first.end(committed=True)
    second.end(committed=False)
    topics.write(topic, numbered(200, 20))
    for level in ("read_committed", "read_uncommitted"):
        for options in ({}, {"maxRecordsPerPartition": 5}, {"startingOffsets": {topic: {"0": 41}}}):
            given: dict[str, Any] = {"kafka.isolation.level": level, "columns": "offset,value", **options}
            expected = direct.rows(topic, segments="never", **given)
            fetches.ranges.clear()
            assert direct.limited(chunk_bytes=300).rows(topic, **given) == expected
            assert fetches.ranges == []
    assert len(direct.rows(topic, kafka__isolation__level="read_committed")) < 140
    assert len(direct.rows(topic)) == 140


def test_an_open_transaction_keeps_its_segments_out_of_committed_plans(
    direct: Direct, topics: Topics, topic: str
) -> None:
    topics.create(topic, configs=SMALL_SEGMENTS)
    topics.write(topic, numbered(0, 100))
    open_one = topics.transaction(topic)
    open_one.write(topic, numbered(100, 100))
    topics.write(topic, numbered(200, 100))
    topics.write(topic, numbered(300, 1))
    assert direct.offsets(topic, kafka__isolation__level="read_committed") == list(range(100))
    open_one.end(committed=False)
    assert len(direct.offsets(topic, kafka__isolation__level="read_committed")) == 201


# ---- what happens between plan and read


@pytest.mark.timeout(300)  # compaction takes what time others leave it
def test_a_segment_compacted_between_plan_and_read_and_the_gaps_that_leaves(
    direct: Direct, topics: Topics, topic: str, fetches: Fetches, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create(topic, configs={"segment.bytes": "1500", "cleanup.policy": "compact"})
    for at in range(0, 300, 10):
        # Every third key is there once, the others again and again.
        records: list[NewRecord] = [
            (b"once-%d" % one if one % 3 == 0 else b"k%d" % (one % 13), b"%d" % one, TIME_MS, ())
            for one in range(at, at + 10)
        ]
        topics.write(topic, records)
    planned = Read(direct, topic)
    (done,) = maintain_topic(topics.client, topic, MaintenanceAction.COMPACT)
    assert done.records_after < done.records_before
    expected = direct.rows(topic, segments="never")
    assert 100 <= len(expected) < 200
    assert planned.rows() == expected
    assert f"{topic}-0: " in caplog.text
    assert "segments were fetched from the broker" in caplog.text
    fetches.ranges.clear()
    assert direct.rows(topic) == expected
    assert fetches.ranges == []
    assert direct.rows(topic, minPartitions=20) == expected


def test_segments_deleted_between_plan_and_read(
    direct: Direct, topics: Topics, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = (Read(direct, filled, failOnDataLoss=fails) for fails in ("true", "false"))
    topics.delete_before(filled, 150)
    # The segment that holds the new start stays, and with it what was there when the read was planned.
    kept = min(int(Path(path).stem) for path in strict.paths if os.path.exists(path))
    assert 0 < kept < 150
    with pytest.raises(DataLoss, match=f"{filled}-0, offsets 0 to {kept - 1} cannot be read"):
        strict.rows()
    assert [row["offset"] for row in lenient.rows()] == list(range(kept, 300))
    assert f"{filled}-0, offsets 0 to {kept - 1} cannot be read" in caplog.text


def test_a_segment_deleted_while_it_is_read(
    direct: Direct, topics: Topics, filled: str, fetches: Fetches
) -> None:
    planned = Read(direct.limited(chunk_bytes=200), filled, maxRecordsPerPartition=20)
    batches = planned.reader.read(planned.partitions[0])
    found = next(batches)["offset"].to_pylist()
    topics.delete_before(filled, 290)
    assert not os.path.exists(planned.paths[0])
    for batch in batches:
        found += batch["offset"].to_pylist()
    assert found == list(range(20))
    assert fetches.ranges == []


def test_a_topic_created_again_between_plan_and_read(
    direct: Direct, topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(value: bytes) -> None:
        topics.create(topic, configs=SMALL_SEGMENTS)
        for first in range(0, 100, 10):
            topics.write(topic, [(b"k", value * 40, TIME_MS, ()) for _ in range(first, first + 10)])

    fill(b"old")
    strict, lenient = (Read(direct, topic, failOnDataLoss=fails) for fails in ("true", "false"))
    topics.delete(topic)
    fill(b"new")
    assert all(os.path.exists(path) for path in strict.paths), "the new one has files of these names"
    with pytest.raises(DataLoss, match=f"{topic}-0, offsets 0 to 99 .*created again"):
        strict.rows()
    assert lenient.rows() == []
    assert "names another topic" in caplog.text


def test_a_damaged_segment_is_what_the_broker_says_it_is(
    direct: Direct, filled: str, fetches: Fetches
) -> None:
    planned = Read(direct, filled)
    with Path(planned.paths[1]).open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8)
    with pytest.raises(Exception, match=f"{filled}-0.*CRC"):
        planned.rows()
    assert len(fetches.ranges) == 1


# ---- the active segment


@pytest.fixture
def active(topics: Topics, topic: str) -> str:
    """300 records in a segment that grows."""
    topics.create(topic, configs={"index.interval.bytes": "500"})
    for first in range(0, 300, 5):
        topics.write(topic, numbered(first, 5))
    return topic


@pytest.mark.parametrize(
    "options",
    [{}, {"minPartitions": 23}, {"maxRecordsPerPartition": 7}, {"startingOffsets": {"0": 123}}],
    ids=["whole", "tasks", "records", "offsets"],
)
def test_an_active_segment_is_read_from_its_file(
    direct: Direct, active: str, fetches: Fetches, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {
        name: {active: value} if isinstance(value, dict) else value for name, value in options.items()
    }
    expected = direct.rows(active, segments="never", **given)
    fetches.ranges.clear()
    assert direct.rows(active, **given) == expected
    assert direct.limited(chunk_bytes=500).rows(active, **given) == expected
    assert fetches.ranges == []


def test_an_active_segment_is_split_by_its_bytes(direct: Direct, topics: Topics, topic: str) -> None:
    topics.create(topic, configs={"index.interval.bytes": "500"})
    for _ in range(20):
        topics.write(topic, [(None, b"", TIME_MS, ())] * 100)
    for _ in range(20):
        topics.write(topic, [(None, bytes(1000), TIME_MS, ())])
    plan, _ = direct.limited(task_bytes=6000).plan(topic)
    assert len(plan) > 4
    assert plan[-2].start > 2000, "the few large records are in several tasks"
    assert direct.limited(task_bytes=6000).offsets(topic) == list(range(2020))


def test_a_read_of_a_segment_that_grows_ends_where_it_was_planned(
    direct: Direct, topics: Topics, active: str, fetches: Fetches
) -> None:
    planned = Read(direct.limited(chunk_bytes=500), active, columns="offset")
    (partition,) = planned.partitions
    found = []
    for batch in planned.reader.read(partition):
        found += batch["offset"].to_pylist()
        topics.write(active, numbered(0, 3))
    assert found == list(range(300))
    assert fetches.ranges == []


@pytest.mark.timeout(300)  # compaction takes what time others leave it
@pytest.mark.parametrize("more", [0, 400], ids=["smaller", "merged with a later one"])
def test_an_active_segment_rolled_and_compacted_between_plan_and_read(
    direct: Direct, topics: Topics, topic: str, fetches: Fetches, more: int
) -> None:
    topics.create(topic, configs={"cleanup.policy": "compact"})

    def write(first: int, count: int, keys: int) -> None:
        for at in range(first, first + count, 10):
            topics.write(
                topic, [(b"k%d" % (one % keys), b"%d" % one, TIME_MS, ()) for one in range(at, at + 10)]
            )

    write(0, 300, 130)
    planned = [Read(direct.limited(chunk_bytes=500), topic, **one) for one in ({}, {"minPartitions": 9})]
    maintain_topic(topics.client, topic, MaintenanceAction.COMPACT)
    if more:
        write(300, more, 1000)
        maintain_topic(topics.client, topic, MaintenanceAction.COMPACT)
    expected = [row for row in direct.rows(topic, segments="never") if row["offset"] < 300]
    assert len(expected) <= 130
    fetches.ranges.clear()
    for one in planned:
        assert one.rows() == expected
    assert fetches.ranges
    size = os.path.getsize(planned[0].paths[0])
    assert (size > planned[0].partitions[0].value.segments[0].size) == bool(more)


def test_a_topic_with_an_active_segment_only_created_again_between_plan_and_read(
    direct: Direct, topics: Topics, active: str
) -> None:
    planned = Read(direct, active, failOnDataLoss="true")
    topics.delete(active)
    topics.create(active)
    for first in range(0, 400, 5):
        topics.write(active, numbered(first, 5))
    with pytest.raises(DataLoss, match=f"{active}-0, offsets 0 to 299 .*created again"):
        planned.rows()


def test_transactions_in_an_active_segment(
    direct: Direct, topics: Topics, topic: str, fetches: Fetches
) -> None:
    topics.create(topic, configs={"index.interval.bytes": "300"})
    first, second = (topics.transaction(f"{topic}-{name}") for name in "ab")
    for at in range(0, 120, 6):
        first.write(topic, numbered(at, 2))
        second.write(topic, numbered(at + 2, 2))
        if at % 18 == 12:
            first.end(committed=at % 36 == 12)
        if at % 30 == 24:
            second.end(committed=at % 60 == 24)
        topics.write(topic, numbered(at + 4, 2))
    # Both transactions are open; then one of them is aborted, and its marker comes after the stable part.
    for ended in (None, second, first):
        if ended is not None:
            ended.end(committed=ended is first)
        for options in ({}, {"maxRecordsPerPartition": 5}, {"startingOffsets": {topic: {"0": 41}}}):
            for level in ("read_committed", "read_uncommitted"):
                given: dict[str, Any] = {"kafka.isolation.level": level, "columns": "offset,value", **options}
                expected = direct.rows(topic, segments="never", **given)
                fetches.ranges.clear()
                assert direct.limited(chunk_bytes=300).rows(topic, **given) == expected
                assert fetches.ranges == []


def test_a_transaction_aborted_between_plan_and_read(
    direct: Direct, topics: Topics, topic: str, fetches: Fetches
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    open_one = topics.transaction(topic)
    open_one.write(topic, numbered(10, 10))
    topics.write(topic, numbered(20, 10))
    planned = Read(direct, topic, kafka__isolation__level="read_committed")
    open_one.end(committed=False)
    assert [row["offset"] for row in planned.rows()] == list(range(10))
    assert fetches.ranges == []


def test_records_deleted_after_the_plan_are_read_and_before_it_are_lost(
    direct: Direct, topics: Topics, active: str, fetches: Fetches
) -> None:
    planned = Read(direct, active, columns="offset")
    strict, lenient = (
        direct.stream(active, startingOffsets="earliest", failOnDataLoss=fails, columns="offset")
        for fails in ("true", "false")
    )
    topics.delete_before(active, 150)
    assert [row["offset"] for row in planned.rows()] == list(range(300))
    assert fetches.ranges == []
    # The stream begins where its checkpoint says, and asks for no start: the broker's error is what it learns from.
    with pytest.raises(DataLoss, match=f"{active}-0, offsets 0 to 149 cannot be read: they are deleted"):
        strict.run()
    assert [row["offset"] for row in lenient.run()] == list(range(150, 300))
    assert fetches.ranges == [(0, 150)] * 2


# ---- where files are looked for


class NoDisk:
    """A machine that may not look into the broker's folder."""

    def open(self, path: str, **_: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)


def test_folders_that_cannot_be_read(
    direct: Direct,
    filled: str,
    fetches: Fetches,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    expected = direct.rows(filled, segments="never")
    planned = Read(direct, filled)
    monkeypatch.setattr(segment_file, "_DISK", NoDisk())
    with caplog.at_level(logging.INFO):
        assert direct.rows(filled) == expected
    assert "segments were fetched" not in caplog.text, "the driver has seen it, so no worker tries"
    fetches.ranges.clear()
    assert planned.rows() == expected
    assert fetches.ranges == [(0, 300)]
    assert f"{len(planned.paths)} of {len(planned.paths)} segments were fetched" in caplog.text
    assert f"{planned.paths[0]}: Permission denied" in caplog.text


def test_segments_that_are_all_too_old_for_a_filter_are_not_read(
    direct: Direct, topics: Topics, topic: str, fetches: Fetches
) -> None:
    topics.create(topic, configs=SMALL_SEGMENTS)
    # One late record, then many early ones, then late ones again: times need not ascend.
    late, early = TIME_MS + 1_000_000, TIME_MS
    topics.write(topic, [(None, b"first", late, ())])
    for at in range(40):
        topics.write(topic, [(None, b"early" * 20, early + at, ())] * 5)
    topics.write(topic, [(None, b"last", late + 1, ())])
    since = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(late / 1000, UTC))
    plan, left = direct.plan(topic, filters=[since])
    assert left == [since]
    assert len(plan) == 2, "the first segment and the last"
    found = direct.rows(topic, filters=[since])
    assert len(found) < 60
    assert {bytes(row["value"]) for row in found} >= {b"first", b"last"}
    assert len(direct.rows(topic)) == 202


def test_streams_read_files_too(direct: Direct, filled: str, fetches: Fetches, topics: Topics) -> None:
    stream = direct.stream(filled, startingOffsets="earliest", maxOffsetsPerTrigger=90)
    found = [row["offset"] for _ in range(4) for row in stream.run()]
    assert found == list(range(300))
    topics.write(filled, numbered(300, 5))
    assert [row["offset"] for row in stream.run()] == list(range(300, 305))
    assert fetches.ranges == []


def test_the_format_of_segments_reads_them_and_does_nothing_else(
    direct: Direct, filled: str, fetches: Fetches
) -> None:
    def source(**options: str) -> FlintMQSegments:
        return FlintMQSegments(CaseInsensitiveDict(direct.options(filled, options)))

    made = source()
    reader = made.reader(made.schema())
    assert read(reader, reader.partitions()) == direct.rows(filled, segments="never")
    assert fetches.ranges == [(0, 300)], "what the other format has fetched"
    stream = DirectStream(source(startingOffsets="earliest").streamReader(made.schema()))  # type: ignore[arg-type]
    assert len(stream.run()) == 300
    for mode in ("auto", "never"):
        with pytest.raises(ConfigurationError, match=f"for {mode} use the format flintmq"):
            source(segments=mode).schema()
    with pytest.raises(ConfigurationError, match="only reads; write with the format flintmq"):
        made.writer(made.schema(), False)
    with pytest.raises(ConfigurationError, match="only reads; write with the format flintmq"):
        made.streamWriter(made.schema(), False)
