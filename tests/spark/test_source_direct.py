"""What a batch read plans and reads at a real broker, option by option; no JVM, so that there can be many."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan

from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.client.errors import ClientError
from flintmq.errors import ConfigurationError, RequestError
from flintmq.records.compression import Codec
from support.broker.broker_process import BrokerProcess
from support.spark.spark_direct import Direct
from support.spark.spark_topics import TIME_MS, Topics, numbered


@pytest.fixture(params=["never", "auto"], ids=["wire", "files"])
def direct(broker: BrokerProcess, request: pytest.FixtureRequest) -> Direct:
    return Direct(broker.address, segments=request.param)


@pytest.fixture
def two(topics: Topics, topic: str) -> str:
    """A topic of two partitions: offsets 0 to 99 in batches of ten, and 0 to 9 in one."""
    topics.create(topic, partitions=2)
    for first in range(0, 100, 10):
        topics.write(topic, numbered(first, 10), codec=Codec.LZ4)
    topics.write(topic, numbered(0, 10), partition=1)
    return topic


def counted(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """How many rows of each partition."""
    partitions = [row["partition"] for row in rows]
    return [(one, partitions.count(one)) for one in sorted(set(partitions))]


# ---- what is read


def test_a_pattern_takes_whole_names_and_no_internal_topics(
    direct: Direct, topics: Topics, two: str, topic: str
) -> None:
    topics.create(f"{topic}-more")
    plan, _ = direct.plan(subscribePattern=f"{topic}|.*offsets")
    assert {one.topic for one in plan} == {two}


def test_several_topics_and_chosen_partitions(direct: Direct, topics: Topics, two: str, topic: str) -> None:
    topics.create(f"{topic}-more")
    topics.write(f"{topic}-more", numbered(0, 3))
    assert len(direct.rows(f"{two},{topic}-more")) == 113
    assert counted(direct.rows(assign={two: [1]})) == [(1, 10)]
    with pytest.raises(ConfigurationError, match=f"not there: {two}-7"):
        direct.rows(assign={two: [1, 7]})


def test_a_topic_that_is_not_there_is_an_error(direct: Direct) -> None:
    with pytest.raises(RequestError, match="there is no topic nowhere"):
        direct.rows("nowhere")


def test_a_cluster_that_is_not_there_is_an_error_at_once() -> None:
    with pytest.raises(ClientError, match=r"no broker answers at 127\.0\.0\.1:1"):
        Direct("127.0.0.1:1").rows("t")


def test_only_the_columns_asked_for(direct: Direct, two: str) -> None:
    assert direct.rows(two, columns="offset,value")[12] == {"offset": 12, "value": b"v12"}
    assert list(direct.rows(two)[0]) == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert "headers" in direct.rows(two, includeHeaders="true")[0]


# ---- where it starts and ends


def test_offsets_for_each_partition(direct: Direct, two: str) -> None:
    found = direct.rows(
        two, startingOffsets={two: {"0": 25, "1": -2}}, endingOffsets={two: {"0": -1, "1": 4}}
    )
    assert counted(found) == [(0, 75), (1, 4)]
    assert found[0]["offset"] == 25
    with pytest.raises(ConfigurationError, match=f"missing: {two}-1"):
        direct.rows(two, startingOffsets={two: {"0": 25}})


def test_times_for_all_partitions_and_for_each(direct: Direct, two: str) -> None:
    found = direct.rows(two, startingTimestamp=TIME_MS + 5000, endingTimestamp=TIME_MS + 7001)
    assert [(row["partition"], row["offset"]) for row in found] == [
        (0, 5), (0, 6), (0, 7), (1, 5), (1, 6), (1, 7)
    ]  # fmt: skip
    starts = {two: {"0": TIME_MS + 98_000, "1": TIME_MS}}
    ends = {two: {"0": TIME_MS + 500_000, "1": TIME_MS + 1000}}
    found = direct.rows(two, startingOffsetsByTimestamp=starts, endingOffsetsByTimestamp=ends)
    assert [(row["partition"], row["offset"]) for row in found] == [(0, 98), (0, 99), (1, 0)]


def test_a_start_later_than_every_record(direct: Direct, two: str) -> None:
    late = TIME_MS + 50_000
    with pytest.raises(ConfigurationError, match=rf"so late .* in {two}-1.*Strategy to latest"):
        direct.rows(two, startingTimestamp=late)
    found = direct.rows(two, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert counted(found) == [(0, 50)]


def test_committed_reads_end_at_the_last_stable_offset_and_leave_out_what_was_aborted(
    direct: Direct, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    done, undone, open_one = (topics.transaction(f"{topic}-{name}") for name in ("done", "undone", "open"))
    for first in (0, 2):
        undone.write(topic, numbered(100 + first, 2))
        done.write(topic, numbered(first, 2))
    undone.end(committed=False)
    done.end(committed=True)
    undone.write(topic, numbered(200, 1))
    undone.end(committed=True)
    open_one.write(topic, numbered(300, 1))
    topics.write(topic, numbered(400, 1))

    def values(level: str) -> list[bytes]:
        return [row["value"] for row in direct.rows(topic, kafka__isolation__level=level)]

    committed = [b"v0", b"v1", b"v2", b"v3", b"v200"]
    assert values("read_committed") == committed
    assert len(values("read_uncommitted")) == 11
    # A read that begins amid the aborted transaction is told of it too.
    assert direct.offsets(topic, startingOffsets={topic: {"0": 5}}, kafka__isolation__level="read_committed") == [
        6, 7, 10
    ]  # fmt: skip
    open_one.end(committed=True)
    assert values("read_committed") == [*committed, b"v300", b"v400"]


def test_gaps_of_markers_and_deleted_records_cost_nothing(direct: Direct, topics: Topics, topic: str) -> None:
    topics.create(topic)
    transaction = topics.transaction(topic)
    for first in range(5):
        transaction.write(topic, numbered(first, 1))
        transaction.end(committed=True)
    assert direct.offsets(topic) == [0, 2, 4, 6, 8]
    topics.delete_before(topic, 5)
    assert direct.offsets(topic) == [6, 8]


# ---- tasks


def test_tasks_are_split_by_number_by_records_and_by_bytes(direct: Direct, two: str) -> None:
    def shape(direct: Direct = direct, **options: Any) -> list[tuple[int, int]]:
        plan, _ = direct.plan(two, **options)
        return [(one.partition, one.size) for one in plan]

    assert shape() == [(0, 100), (1, 10)]
    assert shape(minPartitions=1) == [(0, 100), (1, 10)]
    assert shape(minPartitions=6) == [(0, 20)] * 5 + [(1, 10)]
    assert shape(maxRecordsPerPartition=50) == [(0, 50), (0, 50), (1, 10)]
    assert sorted(set(direct.offsets(two, minPartitions=40))) == list(range(100))
    small = direct.limited(task_bytes=1000)
    by_bytes = shape(small)
    assert len(by_bytes) > 3
    assert sum(size for _, size in by_bytes) == 110
    assert len(small.rows(two)) == 110


def test_record_batches_have_bounds(direct: Direct, two: str) -> None:
    source = direct.limited(batch_rows_max=7).source(two, {})
    reader: Any = source.reader(source.schema())
    sizes = [batch.num_rows for one in reader.partitions() for batch in reader.read(one)]
    assert sum(sizes) == 110
    assert max(sizes) == 7


def test_small_fetches_read_everything_once(direct: Direct, two: str) -> None:
    assert direct.offsets(two, kafka__max__partition__fetch__bytes=1) == [*range(100), *range(10)]


# ---- filters


def test_filters_on_partition_and_offset_become_ranges(direct: Direct, two: str) -> None:
    plan, left = direct.plan(
        two,
        filters=[EqualTo(("partition",), 0), GreaterThanOrEqual(("offset",), 90), LessThan(("offset",), 95)],
    )
    assert [(one.partition, one.start, one.end) for one in plan] == [(0, 90, 95)]
    assert left == []
    plan, left = direct.plan(two, filters=[In(("topic",), ("another",))])
    assert (plan, left) == ([], [])


def test_a_filter_on_time_is_where_reading_starts(direct: Direct, topics: Topics, topic: str) -> None:
    topics.create(topic)
    # Times that go up and down: the second and the fifth record are the late ones.
    for seconds in (0, 50, 10, 20, 60, 30):
        topics.write(topic, [(None, b"", TIME_MS + seconds * 1000, ())])
    after = GreaterThan(("timestamp",), datetime.fromtimestamp(TIME_MS / 1000 + 40, UTC))
    plan, left = direct.plan(topic, filters=[after])
    assert [(one.start, one.end) for one in plan] == [(1, 6)]
    assert left == [after]
    never = GreaterThan(("timestamp",), datetime(2100, 1, 1, tzinfo=UTC))
    assert direct.plan(topic, filters=[never])[0] == []


# ---- what is gone


def test_deleted_offsets_are_an_error_or_a_warning_that_names_them(
    direct: Direct, topics: Topics, two: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.delete_before(two, 30)
    start = {two: {"0": 10, "1": -2}}
    with pytest.raises(DataLoss, match=f"{two}-0, offsets 10 to 29 are deleted.*failOnDataLoss to false"):
        direct.rows(two, startingOffsets=start)
    with caplog.at_level(logging.WARNING):
        assert counted(direct.rows(two, startingOffsets=start, failOnDataLoss="false")) == [(0, 70), (1, 10)]
    assert f"{two}-0, offsets 10 to 29 are deleted" in caplog.text


def test_an_end_behind_the_log_is_an_error_or_a_warning(
    direct: Direct, two: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = {two: {"0": 120, "1": -1}}
    with pytest.raises(DataLoss, match=f"{two}-0, offsets 100 to 119 are not there"):
        direct.rows(two, endingOffsets=end)
    assert len(direct.rows(two, endingOffsets=end, failOnDataLoss="false")) == 110
    assert "offsets 100 to 119" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_retention_that_passes_a_running_read(
    direct: Direct, topics: Topics, two: str, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # Of files, those that were there when the read was planned are read: see test_segments_direct.
    source = direct.source(two, {"failOnDataLoss": str(fails), "segments": "never"})
    reader: Any = source.reader(source.schema())
    (first, _) = reader.partitions()
    topics.delete_before(two, 40)
    batches = reader.read(first)
    if fails:
        with pytest.raises(DataLoss, match=f"{two}-0, offsets 0 to 39 cannot be read: they are deleted"):
            next(batches)
    else:
        assert sum(batch.num_rows for batch in batches) == 60
        assert f"{two}-0, offsets 0 to 39 cannot be read" in caplog.text


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_deleted_or_created_again_under_a_read(
    direct: Direct, topics: Topics, two: str, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = (direct.source(two, {"failOnDataLoss": fails}) for fails in ("true", "false"))
    readers: list[Any] = [source.reader(source.schema()) for source in (strict, lenient)]
    tasks = [reader.partitions()[0] for reader in readers]
    topics.delete(two)
    if again:
        topics.create(two)
        topics.write(two, numbered(0, 100))
    with pytest.raises(DataLoss, match=f"{two}-0, offsets 0 to 99 .*deleted"):
        list(readers[0].read(tasks[0]))
    assert list(readers[1].read(tasks[1])) == []
    assert f"{two}-0, offsets 0 to 99" in caplog.text


def test_a_schema_of_ones_own_chooses_columns_but_changes_none(direct: Direct, two: str) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    source = direct.source(two, {})
    chosen: Any = source.reader(StructType().add("offset", LongType()))
    (first, *_) = chosen.partitions()
    assert next(chosen.read(first)).schema.names == ["offset"]
    with pytest.raises(ConfigurationError, match=r"cannot have value; .* value binary"):
        source.reader(StructType().add("value", StringType()))
