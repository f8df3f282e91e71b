"""What a stream plans and reads at a real broker, micro-batch by micro-batch; no JVM, so that there can be many."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from flintmq.arrow.scan.data_loss import DataLoss
from flintmq.client.admin.groups import committed_offsets
from flintmq.errors import ConfigurationError, RequestError
from flintmq.spark import stream as stream_module
from support.broker.broker_process import BrokerProcess
from support.spark.spark_direct import Direct, DirectStream, range_of
from support.spark.spark_topics import TIME_MS, Topics, numbered


@pytest.fixture(params=["never", "auto"], ids=["wire", "files"])
def direct(broker: BrokerProcess, request: pytest.FixtureRequest) -> Direct:
    return Direct(broker.address, segments=request.param)


@pytest.fixture
def ten(topics: Topics, topic: str) -> str:
    """A topic with offsets 0 to 9 in one partition."""
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    return topic


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


def at(topic: str, *ends: int) -> dict[str, dict[str, int]]:
    return {topic: {str(partition): end for partition, end in enumerate(ends)}}


# ---- where it starts


def test_a_stream_goes_on_where_it_was(direct: Direct, topics: Topics, ten: str) -> None:
    stream = direct.stream(ten, startingOffsets="earliest")
    assert stream.committed == at(ten, 0)
    assert offsets(stream.run()) == list(range(10))
    assert stream.next_end() == stream.committed == at(ten, 10)
    topics.write(ten, numbered(10, 3))
    again = DirectStream(direct.stream(ten, startingOffsets="earliest").reader, stream.committed)
    assert offsets(again.run()) == [10, 11, 12]
    assert again.reader.reportLatestOffset() == at(ten, 13)


def test_latest_is_settled_by_a_first_micro_batch_without_rows(
    direct: Direct, topics: Topics, ten: str
) -> None:
    stream = direct.stream(ten)
    assert stream.committed == {}
    end = stream.next_end()
    assert end == at(ten, 10)
    topics.write(ten, numbered(10, 2))
    # The driver dies after it has logged that end. Whoever restarts asks for the initial offset again.
    again = direct.stream(ten)
    assert again.run(end) == []
    assert offsets(again.run()) == [10, 11]


def test_listed_offsets_and_times(direct: Direct, ten: str) -> None:
    assert offsets(direct.stream(ten, startingOffsets=at(ten, 7)).run()) == [7, 8, 9]
    assert offsets(direct.stream(ten, startingTimestamp=TIME_MS + 8000).run()) == [8, 9]
    with pytest.raises(ConfigurationError, match="so late"):
        direct.stream(ten, startingTimestamp=TIME_MS + 100_000)
    late = direct.stream(
        ten, startingTimestamp=TIME_MS + 100_000, startingOffsetsByTimestampStrategy="latest"
    )
    assert late.run() == []
    assert late.committed == at(ten, 10)


def test_topics_that_come_after_a_pattern_are_read_from_their_start(
    direct: Direct, topics: Topics, topic: str
) -> None:
    stream = direct.stream(subscribePattern=f"{topic}.*")
    assert stream.next_end() == {}
    topics.create(f"{topic}-a")
    topics.write(f"{topic}-a", numbered(0, 3))
    assert stream.run() == []
    assert offsets(stream.run()) == [0, 1, 2]
    topics.create(f"{topic}-b")
    topics.write(f"{topic}-b", numbered(0, 2))
    assert offsets(stream.run()) == [0, 1]


# ---- how far it goes


def test_limits_are_told_to_spark(direct: Direct, ten: str) -> None:
    assert direct.stream(ten).reader.getDefaultReadLimit() == ReadAllAvailable()
    assert direct.stream(ten, maxOffsetsPerTrigger=5).reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert direct.stream(ten, minOffsetsPerTrigger=5).reader.getDefaultReadLimit() == ReadMinRows(5)
    both = direct.stream(ten, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6)
    assert both.reader.getDefaultReadLimit() == ReadMaxRows(6)


def test_a_micro_batch_takes_no_more_than_its_limit(direct: Direct, ten: str) -> None:
    stream = direct.stream(ten, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert [offsets(stream.run()) for _ in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
    fresh = direct.stream(ten, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert fresh.all_there_is() == at(ten, 10)


def test_a_micro_batch_waits_for_enough_but_not_too_long(
    direct: Direct, topics: Topics, ten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("flintmq.spark.stream.time.monotonic", lambda: now_s[0])
    stream = direct.stream(ten, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="60s")
    assert len(stream.run()) == 10
    topics.write(ten, numbered(10, 4))
    assert stream.next_end() == stream.committed
    topics.write(ten, numbered(14, 1))
    assert len(stream.run()) == 5
    topics.write(ten, numbered(15, 1))
    now_s[0] += 59
    assert stream.next_end() == stream.committed
    now_s[0] += 1
    assert len(stream.run()) == 1


def test_available_now_ends_with_what_was_there(direct: Direct, topics: Topics, ten: str) -> None:
    stream = direct.stream(
        ten, startingOffsets="earliest", maxOffsetsPerTrigger=6, minOffsetsPerTrigger=6, maxTriggerDelay="1h"
    )
    stream.reader.prepareForTriggerAvailableNow()
    topics.write(ten, numbered(10, 5))
    topics.grow(ten, 2)
    topics.write(ten, numbered(0, 1), partition=1)
    assert [offsets(stream.run()) for _ in range(2)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    assert stream.next_end() == stream.committed == at(ten, 10)


def test_available_now_from_latest_reads_nothing_and_ends(direct: Direct, topics: Topics, ten: str) -> None:
    stream = direct.stream(ten)
    stream.reader.prepareForTriggerAvailableNow()
    topics.write(ten, numbered(10, 5))
    assert stream.run() == []
    assert stream.next_end() == stream.committed


def test_tasks_are_split(direct: Direct, ten: str) -> None:
    reader = direct.stream(ten, minPartitions=5).reader
    assert [range_of(one).size for one in reader.partitions(at(ten, 0), at(ten, 10))] == [2] * 5
    assert reader.partitions(at(ten, 3), at(ten, 3)) == []


def test_committed_streams_end_at_the_last_stable_offset(direct: Direct, topics: Topics, ten: str) -> None:
    stream = direct.stream(ten, startingOffsets="earliest", kafka__isolation__level="read_committed")
    transaction = topics.transaction(ten)
    transaction.write(ten, numbered(100, 2))
    topics.write(ten, numbered(10, 1))
    assert offsets(stream.run()) == list(range(10))
    assert stream.next_end() == stream.committed
    transaction.end(committed=False)
    assert offsets(stream.run()) == [12]


# ---- topics that change under it


def test_new_partitions_are_read_from_their_start(direct: Direct, topics: Topics, ten: str) -> None:
    stream = direct.stream(ten, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    stream.run()
    topics.grow(ten, 3)
    topics.write(ten, numbered(0, 2), partition=1)
    topics.write(ten, numbered(10, 1))
    found = stream.run()
    assert sorted((row["partition"], row["offset"]) for row in found) == [(0, 10), (1, 0), (1, 1)]
    assert stream.committed == at(ten, 11, 2, 0)


def test_new_partitions_that_lost_records_already(
    direct: Direct, topics: Topics, ten: str, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = (
        direct.stream(ten, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    topics.grow(ten, 2)
    topics.write(ten, numbered(0, 5), partition=1)
    topics.delete_before(ten, 3, partition=1)
    with pytest.raises(DataLoss, match=f"{ten}-1, offsets 0 to 2 are deleted"):
        strict.run()
    assert sorted(offsets(lenient.run())) == [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9]
    assert f"{ten}-1, offsets 0 to 2 are deleted" in caplog.text


def test_retention_that_passes_a_stream(
    direct: Direct, topics: Topics, ten: str, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = (
        direct.stream(ten, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    topics.delete_before(ten, 6)
    with pytest.raises(DataLoss, match=f"{ten}-0, offsets 0 to 5 cannot be read"):
        strict.run()
    assert offsets(lenient.run()) == [6, 7, 8, 9]
    assert f"{ten}-0, offsets 0 to 5 cannot be read" in caplog.text


@pytest.mark.parametrize("records", [4, 30])
def test_a_topic_created_again_under_a_stream(
    direct: Direct, topics: Topics, ten: str, records: int, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = (
        direct.stream(ten, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    strict.run()
    lenient.run()
    topics.delete(ten)
    topics.create(ten)
    topics.write(ten, numbered(0, records))
    with pytest.raises(DataLoss, match="deleted and created again"):
        strict.run()
    assert offsets(lenient.run()) == list(range(records))
    assert "deleted and created again" in caplog.text


def test_offsets_that_went_back_while_nobody_looked(direct: Direct, topics: Topics, ten: str) -> None:
    checkpoint = at(ten, 50)
    with pytest.raises(DataLoss, match=f"{ten}-0 went back from offset 50 to 10"):
        DirectStream(direct.stream(ten).reader, checkpoint).run()
    lenient = DirectStream(direct.stream(ten, failOnDataLoss="false").reader, checkpoint)
    assert offsets(lenient.run()) == list(range(10))


def test_a_topic_deleted_under_a_stream(
    direct: Direct, topics: Topics, ten: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create(f"{topic}-kept")
    both = f"{ten},{topic}-kept"
    strict, lenient = (
        direct.stream(both, startingOffsets="earliest", failOnDataLoss=fails) for fails in ("true", "false")
    )
    strict.run()
    lenient.run()
    topics.delete(ten)
    topics.write(f"{topic}-kept", numbered(0, 2))
    with pytest.raises(DataLoss, match=f"{ten}-0 are not read any more: topics were deleted"):
        strict.run()
    assert offsets(lenient.run()) == [0, 1]
    assert lenient.committed == at(f"{topic}-kept", 2)
    assert f"{ten}-0 are not read any more" in caplog.text


def test_available_now_goes_on_without_a_topic_that_was_deleted(
    direct: Direct, topics: Topics, ten: str, topic: str
) -> None:
    topics.create(f"{topic}-kept")
    both = f"{ten},{topic}-kept"
    checkpoint = direct.stream(both, startingOffsets="earliest").next_end()
    topics.delete(ten)
    topics.write(f"{topic}-kept", numbered(0, 2))
    again = DirectStream(direct.stream(both, failOnDataLoss="false").reader, checkpoint)
    again.reader.prepareForTriggerAvailableNow()
    assert offsets(again.run()) == [0, 1]
    assert again.next_end() == again.committed
    misspelt = direct.stream(f"{topic}-none", failOnDataLoss="false")
    misspelt.reader.prepareForTriggerAvailableNow()
    with pytest.raises(RequestError, match="there is no topic"):
        misspelt.run()


# ---- progress


def test_progress_is_published_as_a_group(direct: Direct, topics: Topics, ten: str, topic: str) -> None:
    stream = direct.stream(ten, startingOffsets="earliest", maxOffsetsPerTrigger=6, groupId=topic)
    stream.run()

    def published() -> dict[tuple[str, int], int]:
        return {place: one.offset for place, one in committed_offsets(topics.client, topic).items()}

    assert published() == {(ten, 0): 6}
    # Spark does not say of a query's last micro-batch that it is done; it only asks what comes after.
    end = stream.next_end()
    stream.committed = end
    stream.next_end()
    assert published() == {(ten, 0): 10}


def test_a_group_that_cannot_be_written_stops_no_stream(
    direct: Direct, ten: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise DataLoss("the group has members")

    monkeypatch.setattr(stream_module, "set_offsets", refused)
    stream = direct.stream(ten, startingOffsets="earliest", groupId="busy")
    assert len(stream.run()) == 10
    assert "could not be published as group busy: the group has members" in caplog.text
