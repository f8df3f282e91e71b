"""A broker that is killed and comes back while it is read: nothing lost, nothing twice, no error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from flintmq.client.errors import ClientError
from support.broker.broker_process import BrokerProcess
from support.spark.spark_direct import Direct
from support.spark.spark_topics import TIME_MS, Topics, numbered

RECORDS = 2000


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that has its port again when it is started again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerProcess(tmp_path / "data", ["--port", str(port)]) as started:
        yield started


@pytest.fixture
def filled(mortal: BrokerProcess, topic: str) -> str:
    with Topics(mortal.address) as topics:
        topics.create(topic, configs={"flush.messages": "1"})
        for first in range(0, RECORDS, 100):
            topics.write(
                topic, [(None, b"x" * 1000, TIME_MS + number, ()) for number in range(first, first + 100)]
            )
    return topic


def test_a_read_goes_on_where_the_broker_was_killed(mortal: BrokerProcess, filled: str) -> None:
    source = Direct(mortal.address, segments="never").source(
        filled, {"kafka.max.partition.fetch.bytes": "100000"}
    )
    reader: Any = source.reader(source.schema())
    (task,) = reader.partitions()
    batches = reader.read(task)
    offsets = next(batches)["offset"].to_pylist()
    mortal.kill()
    starting = threading.Timer(0.5, mortal.start)
    starting.start()
    offsets += [offset for batch in batches for offset in batch["offset"].to_pylist()]
    starting.join()
    assert offsets == list(range(RECORDS))


def test_a_task_that_begins_while_the_broker_is_away_waits_for_it(mortal: BrokerProcess, filled: str) -> None:
    source = Direct(mortal.address, segments="never").source(filled, {})
    reader: Any = source.reader(source.schema())
    (task,) = reader.partitions()
    mortal.kill()
    starting = threading.Timer(0.5, mortal.start)
    starting.start()
    assert sum(batch.num_rows for batch in reader.read(task)) == RECORDS
    starting.join()


def test_a_broker_that_stays_away_is_an_error_in_the_end(mortal: BrokerProcess, filled: str) -> None:
    source = Direct(mortal.address, segments="never").source(filled, {"kafkaConsumer.pollTimeoutMs": "300"})
    reader: Any = source.reader(source.schema())
    (task,) = reader.partitions()
    mortal.kill()
    with pytest.raises(ClientError, match="no broker answers"):
        next(reader.read(task))


def test_a_stream_outlives_its_broker(mortal: BrokerProcess, filled: str) -> None:
    stream = Direct(mortal.address, segments="never").stream(filled, startingOffsets="earliest")
    assert len(stream.run()) == RECORDS
    mortal.kill()
    starting = threading.Timer(0.5, mortal.start)
    starting.start()
    assert stream.next_end() == stream.committed
    starting.join()
    with Topics(mortal.address) as topics:
        topics.write(filled, numbered(0, 3))
    assert [row["offset"] for row in stream.run()] == [RECORDS, RECORDS + 1, RECORDS + 2]
