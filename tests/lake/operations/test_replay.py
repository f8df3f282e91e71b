"""A table goes back into a topic as it was, once, whoever is killed on the way."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

from flintmq.errors import ConfigurationError
from flintmq.lake.replay import replay as replaying
from flintmq.lake.replay.replay import ReplayReport, ReplaySelection, replay
from flintmq.lake.syncing.options import make_options
from flintmq.lake.tables.table import TableChange, TableError
from flintmq.records.compression import Codec
from support.broker.broker_process import BrokerProcess
from support.lake import replay_program
from support.lake.replay_program import STEPS
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics, numbered
from support.wire.mixed_topic import Writer, write_mixture

WITHOUT_SPARK = True


def replayed(lake: Lake, topic: str, to_topic: str, format: str = "parquet", **more: Any) -> ReplayReport:
    options = make_options(
        [topic],
        to=lake.root,
        format=format,
        bootstrap_servers=lake.address,
        store=lake.settings,
        catalog=lake.catalog,
    )
    return replay(lake.spark, options, to_topic=to_topic, **more)


def contents(address: str, topic: str) -> list[tuple[Any, ...]]:
    """Without offsets: transactions take some for themselves."""
    columns = ("partition", "timestamp", "key", "value", "headers")
    return [tuple(row[name] for name in columns) for row in topic_rows(address, topic)]


@pytest.fixture(scope="module")
def mixture(broker: BrokerProcess) -> str:
    """Every codec, nulls, headers, 1 MB records, gaps, transactions that were committed, aborted, and one open."""
    unfinished = Writer(broker.address, transactional=True)
    write_mixture(broker.address, "replayed-mixture", unfinished)
    return "replayed-mixture"


@pytest.mark.parametrize(
    "format", [FORMATS[0], *(pytest.param(one, marks=pytest.mark.long) for one in FORMATS[1:])]
)
def test_whatever_a_topic_held_comes_back(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str, mixture: str, format: str
) -> None:
    lake.sync(mixture, format=format, piece_bytes=100_000)
    partitions = len(lake.state(mixture, format).progress[mixture].next_offsets)
    topics.create(topic, partitions=partitions, configs={"max.message.bytes": "8000000"})
    codec = Codec.NONE if format == "parquet" else Codec.ZSTD
    done = replayed(lake, mixture, topic, format, codec=codec)
    expected = contents(broker.address, mixture)
    assert done.rows == len(expected)
    assert contents(broker.address, topic) == expected


def test_times_far_apart_stay_as_they_were(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    times = [TIME_MS, TIME_MS + 1, TIME_MS - 86_400_000 * 3000, 0, TIME_MS + 5, TIME_MS]
    for time_ms in times:
        topics.write(topic, [(b"k", b"v", time_ms, ())])
    lake.sync(topic)
    topics.create(f"{topic}-again")
    replayed(lake, topic, f"{topic}-again")
    assert contents(broker.address, f"{topic}-again") == contents(broker.address, topic)


def test_a_partitioned_table_comes_back_in_order_and_goes_on_later(
    lake: Lake, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=2)
    for partition in range(2):
        records = [(b"%d" % at, b"v", TIME_MS + at % 7 * 43_200_000, ()) for at in range(100)]
        topics.write(topic, records, partition=partition)
    lake.sync(topic, partition_by=["timestamp:day"])
    again = topics.create(f"{topic}-again", partitions=3)
    first = replayed(lake, topic, again)
    assert first.rows == 200
    assert contents(broker.address, again) == contents(broker.address, topic)
    assert replayed(lake, topic, again).rows == 0
    topics.write(topic, numbered(0, 5), partition=1)
    lake.sync(topic)
    second = replayed(lake, topic, again)
    assert (second.rows, second.name) == (5, first.name)
    assert contents(broker.address, again) == contents(broker.address, topic)
    # Under another name it is another replay.
    assert replayed(lake, topic, again, name="once-more").rows == 205


@pytest.fixture
def synced(lake: Lake, topics: Topics, topic: str) -> Lake:
    """30 rows in three files."""
    topics.create(topic, configs={"segment.bytes": "300"})
    for first in (0, 10, 20):
        topics.write(topic, numbered(first, 10))
    lake.sync(topic, piece_bytes=300)
    assert len(lake.paths(topic)) == 3
    return lake


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [
        (ReplaySelection(start_offset=5, end_offset=25), range(5, 25)),
        (ReplaySelection(since_ms=TIME_MS + 7_000), range(7, 30)),
        (ReplaySelection(until_ms=TIME_MS + 12_000, start_offset=3), range(3, 12)),
        (ReplaySelection(start_offset=30), range(0)),
    ],
)
def test_a_range_of_offsets_or_times(
    synced: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    selection: ReplaySelection,
    numbers: range,
) -> None:
    again = topics.create(f"{topic}-again")
    assert replayed(synced, topic, again, selection=selection).rows == len(numbers)
    assert replayed(synced, topic, again, selection=selection).rows == 0
    assert [row[2] for row in contents(broker.address, again)] == [b"k%d" % number for number in numbers]


class Killed(Exception):
    pass


def in_processes(step: str, count: int) -> Callable[..., list[Any]]:
    def run(spark: object, tasks: Sequence[Any], do: object, kind: object, **_: object) -> list[Any]:
        results = []
        for task in tasks:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            program = [sys.executable, replay_program.__file__, step, str(count)]
            done = subprocess.run(
                program, input=pickle.dumps(task), capture_output=True, env=environment, check=False
            )
            if done.returncode == -9:
                raise Killed
            assert done.returncode == 0, done.stderr.decode()
            results.append(pickle.loads(done.stdout))
        return results

    return run


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("step", STEPS)
def test_who_is_killed_anywhere_is_continued_without_a_row_twice(
    synced: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    count: int,
) -> None:
    again = topics.create(f"{topic}-again")
    monkeypatch.setattr(replaying, "map_in_workers", in_processes(step, count))
    with pytest.raises(Killed):
        replayed(synced, topic, again)
    monkeypatch.setattr(replaying, "map_in_workers", in_processes("none", 0))
    done = replayed(synced, topic, again)
    committed = count if step == "after the commit" else count - 1
    assert (done.rows, done.partitions[0].transactions) == (30 - 10 * committed, 3 - committed)
    assert contents(broker.address, again) == contents(broker.address, topic)


def test_what_would_not_be_as_it_was_is_refused(synced: Lake, topics: Topics, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="flintmq topic create nowhere --partitions 1"):
        replayed(synced, topic, "nowhere")
    with pytest.raises(ConfigurationError, match="Replay to another topic"):
        replayed(synced, topic, topic)
    stamped = topics.create(f"{topic}-stamped", configs={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(ConfigurationError, match="CreateTime"):
        replayed(synced, topic, stamped)
    topics.grow(topic, 3)
    topics.write(topic, numbered(0, 1), partition=2)
    synced.sync(topic)
    with pytest.raises(ConfigurationError, match="at least 3"):
        replayed(synced, topic, topics.create(f"{topic}-small", partitions=2))


def test_a_decoded_table_has_no_records_to_give_back(lake: Lake, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, [(b"k", b'{"id": 1}', TIME_MS, ())])
    lake.sync(topic, decode="json", schema="id long")
    with pytest.raises(ConfigurationError, match="decoded"):
        replayed(lake, topic, topics.create(f"{topic}-again"))


def test_a_table_that_is_wrong_is_not_replayed(synced: Lake, topics: Topics, topic: str) -> None:
    table, state = synced.table(topic), synced.state(topic)
    first, *_ = sorted(table.files(state), key=lambda one: one.start_offset)
    progress = dict(state.progress)
    table.commit(TableChange(base=state, removed=[first], progress=progress))
    os.replace(
        os.path.join(synced.root, topic, synced.paths(topic)[0]),
        os.path.join(synced.root, topic, "taken"),
    )
    with pytest.raises(TableError, match="cannot be read"):
        replayed(synced, topic, topics.create(f"{topic}-again"))


def test_a_name_of_another_replay_is_refused(synced: Lake, topics: Topics, topic: str) -> None:
    again = topics.create(f"{topic}-again")
    replayed(synced, topic, again, name=topic, selection=ReplaySelection(end_offset=5))
    with pytest.raises(TableError, match="another replay"):
        replayed(synced, topic, again, name=topic)
