"""Topics become tables: each record once, whatever it holds, read back by engines that are not ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.client.admin.groups import committed_offsets
from flintmq.lake.limits import SyncLimits
from flintmq.lake.syncing.planner import SyncError, SyncGap
from support.broker.broker_process import BrokerProcess
from support.lake.s3_server import S3Server
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import Topics, numbered
from support.wire.mixed_topic import Writer, write_mixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_has_what_its_topic_has(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, format: str
) -> None:
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.write(topic, numbered(0, 100), partition=partition)
    outcome = lake.sync(topic, format=format)
    assert [commit.rows for commit in outcome.commits] == [200]
    assert lake.rows(topic, format) == topic_rows(broker.address, topic)
    topics.write(topic, numbered(100, 10), partition=1)
    assert lake.sync(topic, format=format).rows == 10
    assert lake.rows(topic, format) == topic_rows(broker.address, topic)
    assert lake.sync(topic, format=format).commits == []


@pytest.fixture(scope="module")
def mixture(broker: BrokerProcess) -> str:
    """Every codec, nulls, headers, 1 MB records, gaps, transactions that were committed, aborted, and one open."""
    unfinished = Writer(broker.address, transactional=True)
    write_mixture(broker.address, "lake-mixture", unfinished)
    return "lake-mixture"


@pytest.mark.parametrize("format", FORMATS)
def test_whatever_a_topic_may_hold_is_in_the_table(
    lake: Lake, broker: BrokerProcess, mixture: str, format: str
) -> None:
    lake.sync(mixture, format=format, piece_bytes=100_000)
    expected = topic_rows(broker.address, mixture)
    assert lake.rows(mixture, format) == expected
    assert len(lake.paths(mixture, format)) > 3


@pytest.mark.parametrize("format", FORMATS)
def test_tables_may_be_in_an_object_store(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    s3: S3Server,
    tmp_path: Path,
    format: str,
) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db" if format == "iceberg" else None
    lake = Lake(spark, broker.address, f"s3://lake/{topic}", settings=s3.settings, catalog=catalog)
    topics.create(topic)
    topics.write(topic, numbered(0, 50))
    assert lake.sync(topic, format=format).rows == 50
    assert lake.sync(topic, format=format).rows == 0
    assert lake.rows(topic, format) == topic_rows(broker.address, topic)


def test_an_empty_topic_gives_an_empty_table(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    assert lake.sync(topic).commits == []
    assert lake.state(topic).progress == {}
    assert lake.paths(topic) == []


def test_several_topics_are_synced_in_one_job(lake: Lake, topics: Topics, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        topics.create(name)
        topics.write(name, numbered(0, 5))
    outcome = lake.sync(*names)
    assert sorted(commit.topic for commit in outcome.commits) == names
    assert all(len(lake.rows(name)) == 5 for name in names)


def test_a_topic_that_fails_does_not_keep_the_others(lake: Lake, topics: Topics, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for name in names:
        topics.create(name)
        topics.write(name, numbered(0, 5))
    lake.sync(*names)
    for name in names:
        topics.write(name, numbered(5, 5))
    topics.delete_before(names[1], 7)
    with pytest.raises(SyncGap, match="offsets 5 to 6 are deleted"):
        lake.sync(*names)
    assert [len(lake.rows(name)) for name in names] == [10, 5, 10]


def test_partitions_that_a_topic_gets_later_are_synced_too(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    lake.sync(topic)
    topics.grow(topic, 3)
    topics.write(topic, numbered(0, 7), partition=2)
    lake.sync(topic)
    assert lake.state(topic).progress[topic].next_offsets == {0: 5, 1: 0, 2: 7}
    assert len(lake.rows(topic)) == 12


def test_a_consumer_group_tells_how_far_the_table_is(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2)
    topics.write(topic, numbered(0, 5), partition=1)
    lake.sync(topic)
    told = committed_offsets(topics.client, f"lake-{topic}")
    assert {place: one.offset for place, one in told.items()} == {(topic, 0): 0, (topic, 1): 5}


def test_a_topic_that_was_made_again_is_refused(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    lake.sync(topic)
    topics.delete(topic)
    topics.create(topic)
    topics.write(topic, numbered(0, 50))
    with pytest.raises(SyncError, match="deleted and made again"):
        lake.sync(topic)
    assert len(lake.rows(topic)) == 5


def test_what_retention_took_is_an_error_or_a_gap_with_a_warning(
    lake: Lake, topics: Topics, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    lake.sync(topic)
    topics.write(topic, numbered(5, 10))
    topics.delete_before(topic, 8)
    with pytest.raises(SyncGap, match=r"offsets 5 to 7 are deleted.*--allow-gaps"):
        lake.sync(topic)
    assert lake.sync(topic, allow_gaps=True).rows == 7
    assert "offsets 5 to 7 are deleted" in caplog.text
    assert [row["offset"] for row in lake.rows(topic)] == [*range(5), *range(8, 15)]


def test_a_first_sync_begins_where_the_topic_begins(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    topics.delete_before(topic, 4)
    lake.sync(topic)
    assert [row["offset"] for row in lake.rows(topic)] == [*range(4, 10)]


def test_a_partition_emptied_by_retention_is_no_reason_to_stop(
    lake: Lake, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    topics.delete_before(topic, 10)
    lake.sync(topic)
    assert lake.state(topic).progress[topic].next_offsets == {0: 10}
    topics.write(topic, numbered(10, 3))
    assert lake.sync(topic).rows == 3


def test_a_commit_takes_so_many_ranges_and_the_next_the_rest(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic, partitions=2, configs={"segment.bytes": "1000"})
    for first in range(0, 200, 20):
        topics.write(topic, numbered(first, 20))
    topics.write(topic, numbered(0, 20), partition=1)
    outcome = lake.sync(topic, piece_bytes=1000, limits=SyncLimits(ranges_max=3))
    assert [commit.files for commit in outcome.commits] == [3, 3]
    assert [row["offset"] for row in lake.rows(topic) if row["partition"] == 0] == list(range(200))
    assert len(lake.rows(topic)) == 220
