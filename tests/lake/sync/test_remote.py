"""The same over Spark Connect: the session is a client's, and the workers are a server's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("grpc", reason="toolchain: grpcio, for Spark Connect")

from support.broker.broker_process import BrokerProcess
from support.lake.engines import read_plain
from support.spark.spark_daemon import CONNECT, SparkDaemon
from support.spark.spark_topics import Topics, numbered

RUN_TIMEOUT_S = 180.0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sync_runs_on_a_connect_server(
    broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    from flintmq.lake.store.store import open_store
    from flintmq.lake.tables.factory import open_table

    topics.create(topic, partitions=2)
    topics.write(topic, numbered(0, 20))
    topics.write(topic, numbered(0, 30), partition=1)
    root = tmp_path / "lake"
    path = os.pathsep.join(one for one in sys.path if one)
    options = ("--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false")
    binding = (
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
    )
    with SparkDaemon(
        [*options, *binding, "--class", CONNECT, "spark-internal"],
        program="spark-submit",
        ready=r"Spark Connect server started at: (\S+)",
        PYTHONPATH=path,
    ) as server:
        command = [sys.executable, "-m", "flintmq", "lake", "sync", topic, "--to", str(root)]
        command += ["-b", broker.address, "--remote", f"sc://{server.found}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "50 rows in 2 files" in done.stdout
    assert read_plain(open_table(str(root), topic, "parquet"), open_store(f"{root}/{topic}")).num_rows == 50
