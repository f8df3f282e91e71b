"""What goes wrong between plan and commit, step by step in this process: afterwards the table equals the topic.

The same with real processes and `kill -9` is in `test_lake_kills`.
"""

from __future__ import annotations

import pkgutil
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")
pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("obstore", reason="toolchain: obstore, of flintmq[spark]")

import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.arrow.formats.decoder import DecodedValues, RowError
from flintmq.arrow.scan.options import parse
from flintmq.arrow.scan.task_reader import read_task
from flintmq.arrow.value_decoding import ValueDecoder
from flintmq.lake.limits import SyncLimits
from flintmq.lake.store.store import StoreError, open_store
from flintmq.lake.syncing.metrics import TableCommit
from flintmq.lake.syncing.planner import SyncPlan, SyncPlanner, SyncRequest, range_of
from flintmq.lake.syncing.range_runner import RangeRunner, SyncStopped
from flintmq.lake.syncing.range_writer import FileLayout, ParquetSettings, RangeTarget, write_range
from flintmq.lake.syncing.row_decoder import POISON, RowDecoder
from flintmq.lake.syncing.sync import Sync, SyncUnavailable
from flintmq.lake.tables.partitioning import parse_partitioning
from support.broker.broker_process import BrokerProcess
from support.lake.s3_server import S3Server
from support.lake.synced_lake import FORMATS, Lake, topic_rows
from support.spark.spark_topics import TIME_MS, Topics, numbered
from support.wire.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIG = 300_000


class Killed(BaseException):
    """Nobody catches it, and nothing is cleaned up by it."""


def dies(*_: object, **__: object) -> Any:
    raise Killed


def dies_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        function(*args, **options)
        raise Killed

    return call


DRIVER_STEPS: list[Any] = [
    pytest.param(
        "flintmq.lake.syncing.synced_table.check_partitioning", False, id="before-the-table-is-made"
    ),
    pytest.param("flintmq.lake.syncing.planner.SyncPlanner.plan", False, id="before-the-plan"),
    pytest.param("flintmq.lake.syncing.range_runner.RangeRunner.run", False, id="planned"),
    pytest.param("flintmq.lake.syncing.range_runner.RangeRunner.run", True, id="written"),
    pytest.param("flintmq.lake.syncing.synced_table.PreparedTable.commit", False, id="before-the-commit"),
    pytest.param("flintmq.lake.syncing.synced_table.PreparedTable.commit", True, id="committed"),
    pytest.param("flintmq.lake.syncing.sync.set_offsets", False, id="before-the-group-is-told"),
]


@pytest.mark.parametrize("format", FORMATS)
def test_a_driver_that_ends_at_any_step_is_made_up_for(
    lake: Lake,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    topics.create(topic, partitions=2)
    for at, step in enumerate(DRIVER_STEPS):
        path, is_after = step.values
        topics.write(topic, numbered(at * 10, 10), partition=at % 2)
        with monkeypatch.context() as patched, lake.open(topic, format=format) as sync:
            patched.setattr(path, dies_after(pkgutil.resolve_name(path)) if is_after else dies)
            with pytest.raises(Killed):
                sync.run()
    lake.sync(topic, format=format)
    assert lake.rows(topic, format) == topic_rows(broker.address, topic)


# ---- a worker


@pytest.fixture
def piece(broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path) -> tuple[Any, RangeTarget]:
    """Something to write in this process, as a worker does."""
    topics.create(topic)
    topics.write(topic, [(b"k%d" % number, b"x" * BIG, TIME_MS, ()) for number in range(3)])
    options = parse({"kafka.bootstrap.servers": broker.address, "subscribe": topic, "includeHeaders": "true"})
    planner = SyncPlanner(topics.client, options, piece_bytes=1 << 30)
    plan = planner.plan({topic: SyncRequest("t", None)}, planner.topics())[topic]
    assert isinstance(plan, SyncPlan)
    (task,) = plan.tasks
    layout = FileLayout(store=open_store(str(tmp_path / "t")), schema=RowDecoder().schema)
    return task, RangeTarget(
        source=options, row_decoder=RowDecoder(), rows=layout, digest=layout.digest(), poison=None
    )


def test_attempts_at_the_same_piece_give_the_same_file(piece: Any, tmp_path: Path) -> None:
    first = write_range(*piece)
    (made,) = (tmp_path / "t" / "data").iterdir()
    before = made.stat()
    assert write_range(*piece) == first
    (again,) = (tmp_path / "t" / "data").iterdir()
    assert (again.stat().st_ino, again.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert first.rows[0].rows == 3
    assert first.rows[0].size == before.st_size


def test_a_race_for_a_piece_is_won_by_the_first_and_taken_by_the_other(
    piece: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, target = piece
    publish = type(target.rows.store).publish

    def late(self: Any, draft: Any, path: str) -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(type(self), "publish", publish)
            assert write_range(task, target).rows[0].path == path
        return bool(publish(self, draft, path))

    monkeypatch.setattr(type(target.rows.store), "publish", late)
    written = write_range(task, target)
    assert written.rows[0].rows == 3
    assert len(list(target.rows.store.list("data"))) == 1


def test_a_worker_that_ends_before_its_file_is_named_leaves_none(
    piece: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, target = piece
    with monkeypatch.context() as patched:
        patched.setattr(type(target.rows.store), "publish", dies)
        with pytest.raises(Killed):
            write_range(task, target)
    assert list(target.rows.store.list("data")) == []
    assert write_range(task, target).rows[0].rows == 3


class Reader:
    """A decoder that knows so many schemas: values are the number of theirs."""

    schema = pa.schema([("number", pa.int64())])

    def __init__(self, known: int) -> None:
        self._known = known

    def decode(self, values: Any) -> DecodedValues:
        numbers = [int(value) for value in values.to_pylist()]
        rows = pa.array(
            [{"number": one} if one < self._known else None for one in numbers], pa.struct(self.schema)
        )
        return DecodedValues(
            rows, [RowError(at, "unknown") for at, one in enumerate(numbers) if one >= self._known]
        )


def test_what_was_poison_for_an_attempt_that_died_may_be_a_row_of_the_next(
    piece: Any, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, target = piece
    name = range_of(task).topic
    start = topics.write(name, [(None, b"%d" % number, TIME_MS, ()) for number in range(4)])
    task = range_of(task)._replace(start=start, end=start + 4)

    def written(known: int) -> tuple[int, int]:
        row_decoder = RowDecoder(ValueDecoder(Reader(known)))
        rows = replace(target.rows, schema=row_decoder.schema)
        poison = FileLayout(store=open_store(str(tmp_path / "poison")), schema=POISON)
        found = write_range(task, replace(target, row_decoder=row_decoder, rows=rows, poison=poison))
        return sum(one.rows for one in found.rows), sum(one.rows for one in found.poison)

    assert written(2) == (2, 2)
    assert written(4) == (4, 0)
    assert written(2) == (2, 2)
    assert written(3) == (3, 1)


def test_attempts_that_cut_a_partition_differently_do_not_mix(
    piece: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, target = piece
    name = range_of(task).topic
    records: list[Any] = [
        (b"%d" % number, b"v", TIME_MS + number % 3 * 86_400_000, ()) for number in range(60)
    ]
    start = topics.write(name, records)
    task = range_of(task)._replace(start=start, end=start + 60)
    rows = replace(
        target.rows,
        partitioning=parse_partitioning(["timestamp:day"]),
        parquet=ParquetSettings(row_group_bytes=500),
    )
    target = replace(target, rows=rows, open_files_max=1)

    def offsets(step: int) -> list[int]:
        """What an attempt gives that reads so many rows at a time."""

        def in_steps(*args: Any) -> Iterator[pa.RecordBatch]:
            for batch in read_task(*args):
                for at in range(0, batch.num_rows, step):
                    yield batch.slice(at, step)

        monkeypatch.setattr("flintmq.lake.syncing.range_writer.read_task", in_steps)
        found = []
        for one in write_range(task, target).rows:
            with target.rows.store.open(one.path) as file:
                found += pq.read_table(file).column("offset").to_pylist()
        return found

    for step in (7, 10, 60, 7, 1):
        found = offsets(step)
        assert sorted(found) == list(range(start, start + 60)), step


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """As a disk that is full: writes behind it fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_error_and_leaves_no_file(piece: Any) -> None:
    task, target = piece
    layout = replace(target.rows, parquet=ParquetSettings(compression="none", level=None))
    target = replace(target, rows=layout, digest=layout.digest())
    with file_size_limit(BIG), pytest.raises(StoreError, match=r"cannot be written|too large"):
        write_range(task, target)
    assert list(target.rows.store.list("data")) == []
    assert write_range(task, target).rows[0].rows == 3


# ---- stores and brokers that go away


@pytest.fixture
def far_lake(
    spark: SparkSession, broker: BrokerProcess, topic: str, s3: S3Server
) -> Iterator[tuple[Lake, TcpProxy]]:
    """A lake in an object store that can be taken away."""
    with TcpProxy() as proxy:
        proxy.target = ("127.0.0.1", s3.port)
        settings = {**s3.settings, "endpoint": f"http://{proxy.address}"}
        yield Lake(spark, broker.address, f"s3://lake/{topic}", settings=settings), proxy


def test_a_store_that_goes_away_fails_the_sync_and_the_next_makes_up_for_it(
    far_lake: tuple[Lake, TcpProxy],
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, proxy = far_lake
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    lake.sync(topic)
    topics.write(topic, numbered(10, 10))
    run = RangeRunner.run

    def while_away(self: RangeRunner, *args: Any, **options: Any) -> Any:
        proxy.target = None
        proxy.cut()
        return run(self, *args, **options)

    with monkeypatch.context() as patched, lake.open(topic) as sync:
        patched.setattr(RangeRunner, "run", while_away)
        with pytest.raises(SyncUnavailable):
            sync.run()
    proxy.target = ("127.0.0.1", s3.port)
    lake.sync(topic)
    assert lake.rows(topic) == topic_rows(broker.address, topic)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that has its port again when it is started again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerProcess(tmp_path / "data", ["--port", str(port)]) as started:
        yield started


def test_a_broker_killed_in_the_middle_is_waited_for(
    spark: SparkSession, mortal: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, mortal.address, str(tmp_path / "lake"))
    with Topics(mortal.address) as topics:
        topics.create(topic, partitions=2, configs={"flush.messages": "1"})
        for partition in range(2):
            topics.write(topic, numbered(0, 100), partition=partition)
    run = RangeRunner.run
    starting = threading.Timer(0.5, mortal.start)

    def while_away(self: RangeRunner, *args: Any, **options: Any) -> Any:
        mortal.kill()
        starting.start()
        return run(self, *args, **options)

    monkeypatch.setattr(RangeRunner, "run", while_away)
    lake.sync(topic)
    starting.join()
    assert lake.rows(topic) == topic_rows(mortal.address, topic)
    assert len(lake.rows(topic)) == 200


def test_retention_that_passes_while_files_are_written_is_found_by_the_next_plan(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each batch is a segment: the file of the first one is deleted too.
    topics.create(topic, configs={"segment.bytes": "300"})
    for first in range(0, 30, 10):
        topics.write(topic, numbered(first, 10))
    run = RangeRunner.run
    passed: list[bool] = []

    def while_deleting(self: RangeRunner, *args: Any, **options: Any) -> Any:
        if not passed:
            passed.append(True)
            topics.delete_before(topic, 10)
        return run(self, *args, **options)

    monkeypatch.setattr(RangeRunner, "run", while_deleting)
    # Nothing was in the table yet, so nothing is missing from it.
    lake.sync(topic)
    assert [row["offset"] for row in lake.rows(topic)] == list(range(10, 30))


# ---- being stopped, and going on


def test_a_sync_stops_when_asked_and_the_next_goes_on(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    with lake.open(topic) as sync:
        run = RangeRunner.run

        def and_stop(self: RangeRunner, *args: Any, **options: Any) -> Any:
            results = run(self, *args, **options)
            sync.stop()
            return results

        monkeypatch.setattr(RangeRunner, "run", and_stop)
        with pytest.raises(SyncStopped):
            sync.run()
    monkeypatch.undo()
    assert lake.paths(topic) == []
    assert lake.sync(topic).rows == 10


def test_following_takes_what_comes_and_outlives_failures(
    lake: Lake, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    run, fails = Sync.run, [True]

    def sometimes(self: Sync) -> Any:
        if fails:
            fails.clear()
            raise SyncUnavailable("the store is away")
        return run(self)

    monkeypatch.setattr(Sync, "run", sometimes)
    rows: list[int] = []

    def heard(commit: TableCommit) -> None:
        rows.append(commit.rows)
        if len(rows) == 1:
            topics.write(topic, numbered(10, 5))
        else:
            sync.stop()

    with lake.open(topic, on_commit=heard, limits=SyncLimits(failure_pause_s=0.01)) as sync:
        sync.follow(interval_s=0.05)
    assert rows == [10, 5]
    assert len(lake.rows(topic)) == 15


def test_a_slow_store_is_waited_for(
    far_lake: tuple[Lake, TcpProxy], broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    lake, proxy = far_lake
    topics.create(topic)
    topics.write(topic, numbered(0, 10))
    proxy.silence()
    speaking = threading.Timer(1.0, proxy.speak)
    speaking.start()
    lake.sync(topic)
    speaking.join()
    assert lake.rows(topic) == topic_rows(broker.address, topic)
