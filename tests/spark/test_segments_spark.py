"""Spark's workers read the broker's files: the rows are the same, and the broker hardly hears of it."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flintmq.metrics import parse
from flintmq.records.compression import Codec
from support.broker.broker_process import BrokerProcess
from support.spark.spark_topics import TIME_MS, Topics

ROWS = 20_000
BATCH_ROWS = 500
SEGMENT_BYTES = 200_000


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own, that counts what it sends."""
    with BrokerProcess(
        tmp_path_factory.mktemp("measured") / "data", ["--set", "flint.rest.port=0"]
    ) as started:
        with Topics(started.address) as topics:
            topics.create("t", partitions=2, configs={"segment.bytes": str(SEGMENT_BYTES)})
            for first in range(0, ROWS, BATCH_ROWS):
                topics.write(
                    "t",
                    [
                        (b"%d" % at, b"%100d" % at, TIME_MS + at, (("h", b""),))
                        for at in range(first, first + BATCH_ROWS)
                    ],
                    partition=first // BATCH_ROWS % 2,
                    codec=(Codec.NONE, Codec.NONE, Codec.ZSTD)[first // BATCH_ROWS % 3],
                )
        yield started


def sent(broker: BrokerProcess) -> float:
    """Bytes of all answers to fetches."""
    found = re.search(r"http://(\S+):(\d+) ", broker.errors)
    assert found is not None, broker.errors
    connection = http.client.HTTPConnection(found[1], int(found[2]), timeout=30)
    try:
        connection.request("GET", "/metrics")
        return parse(connection.getresponse().read().decode()).total("flintmq_bytes_out_total", api="Fetch")
    finally:
        connection.close()


def rows(reader: Any, broker: BrokerProcess, **options: Any) -> list[tuple[Any, ...]]:
    given = {"kafka.bootstrap.servers": broker.address, "subscribe": "t", "includeHeaders": "true", **options}
    return sorted(tuple(row) for row in reader.options(**given).load().drop("timestamp").collect())


def test_files_are_read_and_not_fetched(spark: Any, measured: BrokerProcess) -> None:
    before = sent(measured)
    expected = rows(spark.read.format("flintmq"), measured, segments="never")
    assert len(expected) == ROWS
    fetched = sent(measured) - before
    logs = sum(path.stat().st_size for path in Path(measured.data_dir).glob("t-*/*.log"))
    assert fetched >= logs
    for name in ("flintmq", "flintmq_segments"):
        before = sent(measured)
        assert rows(spark.read.format(name), measured, minPartitions=5) == expected
        assert sent(measured) - before <= 2 * SEGMENT_BYTES, "no more than the active segments"


def test_a_stream_reads_files_too(spark: Any, measured: BrokerProcess, tmp_path: Path) -> None:
    before = sent(measured)
    stream = spark.readStream.format("flintmq_segments").options(
        **{"kafka.bootstrap.servers": measured.address, "subscribe": "t", "startingOffsets": "earliest"}
    )
    written = (
        stream.load()
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    written.awaitTermination(60)
    assert written.exception() is None
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert (found.count(), found.distinct().count()) == (ROWS, ROWS)
    assert sent(measured) - before <= 2 * SEGMENT_BYTES
