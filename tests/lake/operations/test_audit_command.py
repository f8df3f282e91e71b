"""`flintmq lake audit` and `flintmq lake replay` as they are typed: their words, their JSON and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from click.testing import CliRunner, Result

from flintmq.cli.main import main
from support.broker.broker_process import BrokerProcess
from support.lake.synced_lake import Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WITHOUT_SPARK = True


class Lines:
    """Commands of the lake, with where it is."""

    def __init__(self, lake: Lake) -> None:
        self._place = ["--to", lake.root, "-b", lake.address]

    def __call__(self, command: str, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["lake", command, *arguments, *self._place])


@pytest.fixture
def lines(lake: Lake) -> Lines:
    return Lines(lake)


@pytest.fixture
def synced(lake: Lake, topics: Topics, topic: str) -> Lake:
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.write(topic, numbered(0, 20), partition=partition)
    lake.sync(topic)
    return lake


# ---- audit


def test_an_audit_that_finds_nothing_says_so_and_ends_well(
    synced: Lake, topics: Topics, topic: str, lines: Lines
) -> None:
    topics.delete_before(topic, 5)
    topics.write(topic, numbered(20, 3))
    done = lines("audit", topic)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        f"{topic} -> {synced.root}/{topic}: agrees",
        "35 rows compared, in 2 files",
        "5 rows that retention has taken from the topic, checked within the table",
        "3 offsets not synced yet",
    ]
    done = lines("audit", topic, "--json")
    assert done.exit_code == 0
    (found,) = json.loads(done.stdout)
    assert found == {
        "topic": topic,
        "table": f"{synced.root}/{topic}",
        "agrees": True,
        "compared": 35,
        "files": 2,
        "only_in_lake": 5,
        "compacted": 0,
        "undecodable": 0,
        "not_yet": 3,
        "extra_fields": {},
        "backfill": [],
        "problem_count": 0,
        "problems": [],
    }


def test_an_audit_that_finds_something_names_it_and_fails(
    synced: Lake, topics: Topics, topic: str, lines: Lines
) -> None:
    good = topics.create(f"{topic}-good")
    topics.write(good, numbered(0, 5))
    synced.sync(good)
    path = next(path for path in synced.paths(topic) if "-1-" in path)
    Path(synced.root, topic, path).unlink()
    done = lines("audit", topic, good)
    assert done.exit_code == 1, done.output
    told = done.stdout.splitlines()
    assert told[0] == f"{topic} -> {synced.root}/{topic}: 1 problem"
    assert path in done.output
    assert f"{good} -> {synced.root}/{good}: agrees" in told
    done = lines("audit", topic, good, "--json")
    assert done.exit_code == 1
    bad, fine = json.loads(done.stdout)
    assert (bad["agrees"], bad["problem_count"], fine["agrees"]) == (False, 1, True)
    (problem,) = bad["problems"]
    assert (problem["kind"], problem["partition"], problem["files"]) == ("unreadable", 1, [path])
    assert (problem["start"], problem["end"]) == (0, 20)


def test_an_audit_of_what_is_not_there_fails_with_a_word(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, lines: Lines
) -> None:
    done = lines("audit", topics.create(topic))
    assert done.exit_code == 1
    assert "There is no parquet table at " in done.output
    assert lines("audit").exit_code == 2


# ---- replay


def test_a_replay_says_how_many_rows_and_under_which_name(
    synced: Lake, broker: BrokerProcess, topics: Topics, topic: str, lines: Lines
) -> None:
    again = topics.create(f"{topic}-again", partitions=2)
    done = lines("replay", topic, "--to-topic", again, "--name", "first")
    assert done.exit_code == 0, done.output
    assert (
        done.output.strip() == f"{synced.root}/{topic} -> {again}: 40 rows, remembered as lake-replay-first"
    )
    assert len(topic_rows(broker.address, again)) == 40
    done = lines("replay", topic, "--to-topic", again, "--name", "first")
    assert done.exit_code == 0
    assert "nothing left to replay; to do it again give it another --name" in done.output
    done = lines("replay", topic, "--to-topic", again, "--name", "part", "--end-offset", "3", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "table": f"{synced.root}/{topic}",
        "topic": again,
        "name": "lake-replay-part",
        "rows": 6,
    }


def test_a_replay_by_time(
    synced: Lake, broker: BrokerProcess, topics: Topics, topic: str, lines: Lines
) -> None:
    again = topics.create(f"{topic}-again", partitions=2)
    # The tests' first record is of 22:13:20, and each is a second later.
    assert TIME_MS == 1_700_000_000_000
    times = ["--since", "2023-11-14T22:13:25+00:00", "--until", "2023-11-14T22:13:27+00:00"]
    done = lines("replay", topic, "--to-topic", again, *times, "--compression", "zstd")
    assert done.exit_code == 0, done.output
    assert [row["value"] for row in topic_rows(broker.address, again)] == [b"v5", b"v6"] * 2


def test_a_replay_that_cannot_be_is_refused(synced: Lake, topic: str, lines: Lines) -> None:
    for arguments, words in (
        (["--to-topic", "nowhere"], "flintmq topic create nowhere --partitions 2"),
        (["--to-topic", "t", "--since", "yesterday"], "expected a time such as"),
        (["--to-topic", "t", "--start-offset", "-1"], "--start-offset"),
        ([], "--to-topic"),
    ):
        done = lines("replay", topic, *arguments)
        assert done.exit_code == 2, done.output
        assert words in done.output


def test_a_broker_that_does_not_answer_has_an_exit_code_of_its_own(synced: Lake, topic: str) -> None:
    for command in (["audit", topic], ["replay", topic, "--to-topic", "t"]):
        done = CliRunner().invoke(main, ["lake", *command, "--to", synced.root, "-b", "127.0.0.1:1"])
        assert done.exit_code == 3, done.output
        assert "--bootstrap-server" in done.output
