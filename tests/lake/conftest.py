"""Real Spark, a real broker and a real object store, one of each for all tests here; tables are what tests make.

def test_…(spark, broker, topics, topic, lake):       `lake` syncs topics to tables in a folder, and reads them

"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.broker.broker_process import BrokerProcess
from support.spark.spark_session import new_session
from support.spark.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.spark.lazy_session import LazySession
    from support.lake.azure_server import AzureServer
    from support.lake.gcs_server import GcsServer
    from support.lake.s3_server import S3Server
    from support.lake.synced_lake import Lake


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    for name in ("pyspark", "pyarrow", "obstore"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    made = new_session(tmp_path_factory.mktemp("spark"), {"spark.sql.shuffle.partitions": "2"})
    yield made
    made.stop()


@pytest.fixture
def spark(request: pytest.FixtureRequest) -> SparkSession | LazySession:
    """The session, unless the module says WITHOUT_SPARK = True: then work is done as commands do little of it."""
    from support.lake.synced_lake import without_spark

    if _is_without_spark(request.module):
        return without_spark()
    session: SparkSession = request.getfixturevalue("spark_session")
    return session


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


@pytest.fixture
def topics(broker: BrokerProcess) -> Iterator[Topics]:
    with Topics(broker.address) as made:
        yield made


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return str(request.node.name).translate(_IN_NAMES)[:200]


_IN_NAMES = {ord(one): "-" for one in "[]{}(),:;/= \"'"}


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server of its own, with the bucket `lake`."""
    pytest.importorskip("moto.server", reason="toolchain: moto[s3]")
    from support.lake.s3_server import S3Server

    with S3Server() as started:
        yield started


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A server of its own, with the bucket `lake`."""
    from support.lake.gcs_server import GcsServer

    with GcsServer() as started:
        yield started


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureServer]:
    """A server of its own, with the container `lake`."""
    from support.lake.azure_server import AzureServer, azurite_program

    if azurite_program() is None:
        pytest.skip("toolchain: Azurite is not here (npm, see .ci/run)")
    with AzureServer() as started:
        yield started


@pytest.fixture
def lake(spark: SparkSession | LazySession, broker: BrokerProcess, tmp_path: Path) -> Lake:
    from support.lake.synced_lake import Lake

    return Lake(spark, broker.address, str(tmp_path / "lake"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One session for all that need one, and time for it to start on a busy machine."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if {"spark", "spark_session"} & set(names) and not _is_without_spark(getattr(item, "module", None)):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


def _is_without_spark(module: object) -> bool:
    return bool(getattr(module, "WITHOUT_SPARK", False))
