"""A topic's retention beside a table that is synced for real (P4, P5): what a sync publishes, and the hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flintmq.cli.main import main
from flintmq.client.admin.groups import committed_offsets, delete_group, set_offsets
from flintmq.client.admin.topics import EARLIEST, alter_topic, offsets
from flintmq.lake.limits import SyncLimits
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import Lake, without_spark
from support.spark.spark_topics import Topics, numbered

WITHOUT_SPARK = True

SMALL = {"segment.bytes": "300"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def write_segments(topics: Topics, topic: str, first: int, count: int) -> None:
    """Three records in a segment."""
    for number in range(first, first + count):
        topics.write(topic, [(b"k", b"x" * 60, number, ())] * 3)


def start_of(topics: Topics, topic: str) -> int:
    topics.client.topic(topic)
    return offsets(topics.client, [(topic, 0)], EARLIEST)[topic, 0]


def test_a_synced_table_holds_retention_back_until_it_has_the_records(
    broker: BrokerProcess, topics: Topics, topic: str, lake: Lake
) -> None:
    topics.create(topic, configs={**SMALL, "flint.lake.hold": str(1 << 20)})
    write_segments(topics, topic, 0, 2)
    lake.sync(topic)
    group = f"lake-{topic}"
    published = committed_offsets(topics.client, group)
    assert published[topic, 0] == (6, f"flintmq-lake:{lake.root}/{topic}")
    write_segments(topics, topic, 2, 3)
    alter_topic(topics.client, topic, settings={"retention.bytes": "0"})
    place = [topic, "--to", lake.root, "-b", broker.address]
    assert run("topic", "retain", topic, "-b", broker.address).exit_code == 0
    # What the table has is gone, the rest is held back; and both commands say so.
    assert start_of(topics, topic) == 6
    said = run("lake", "status", *place).output
    assert f"{topic}-0: retention is held back for the table {lake.root}/{topic} (group {group})" in said
    (found,) = json.loads(run("lake", "status", *place, "--json").output)
    assert [one.partition(":")[0] for one in found["retention_risks"]] == [f"{topic}-0"]
    assert "retention is held back" in run("topic", "describe", topic, "-b", broker.address).output
    lake.sync(topic)
    assert json.loads(run("lake", "status", *place, "--json").output)[0]["retention_risks"] == []
    assert run("topic", "retain", topic, "-b", broker.address).exit_code == 0
    # The active segment never goes by size.
    assert start_of(topics, topic) == 12
    assert [row["offset"] for row in lake.rows(topic)] == list(range(15))


def test_a_sync_that_finds_nothing_new_publishes_again(
    broker: BrokerProcess, topics: Topics, topic: str, lake: Lake
) -> None:
    """A group expires if nobody commits to it, and one of an older version does not name its table."""
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    lake.sync(topic)
    group = f"lake-{topic}"
    expected = {(topic, 0): (5, f"flintmq-lake:{lake.root}/{topic}")}
    delete_group(topics.client, group)
    assert lake.sync(topic).commits == []
    assert committed_offsets(topics.client, group) == expected
    with lake.open(topic) as sync:
        sync.run()
        set_offsets(topics.client, group, {(topic, 0): 5})
        sync.run()
        # Not at every turn of a sync that goes on.
        assert committed_offsets(topics.client, group) == {(topic, 0): (5, "")}
    with lake.open(topic, limits=SyncLimits(publish_again_s=0)) as sync:
        sync.run()
        set_offsets(topics.client, group, {(topic, 0): 5})
        sync.run()
        assert committed_offsets(topics.client, group) == expected


def test_a_second_table_that_takes_over_the_group_is_noticed(
    topics: Topics, topic: str, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """P5: a group names one table, so retention does not wait for the other."""
    topics.create(topic)
    topics.write(topic, numbered(0, 5))
    other = Lake(lake.spark, lake.address, f"{lake.root}-2")
    lake.sync(topic)
    lake.sync(topic)
    assert caplog.messages == []
    other.sync(topic)
    (message,) = caplog.messages
    assert f"the group lake-{topic} showed the progress of the table {lake.root}/{topic} until now" in message
    assert "--group" in message
    caplog.clear()
    other.sync(topic)
    lake.sync(topic, group=f"{topic}-of-its-own")
    assert caplog.messages == []


def test_a_broker_without_room_for_metadata_still_shows_the_lag(tmp_path: Path, topic: str) -> None:
    settings = ("--set", "offset.metadata.max.bytes=5")
    with BrokerProcess(tmp_path / "data", settings) as broker, Topics(broker.address) as topics:
        topics.create(topic)
        topics.write(topic, numbered(0, 5))
        Lake(without_spark(), broker.address, str(tmp_path / "lake")).sync(topic)
        assert committed_offsets(topics.client, f"lake-{topic}") == {(topic, 0): (5, "")}
