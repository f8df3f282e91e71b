"""The examples as their READMEs tell them: data is made by the commands that stand there; one broker, one Spark.

def test_…(example):       example("iot-rollups") is a copy of the folder; `follow` does what its README says

"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.broker.broker_process import BrokerProcess
from support.pipeline.examples import Example
from support.spark.spark_session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    for name in ("pyspark", "pyarrow", "obstore", "deltalake"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    made = new_session(tmp_path_factory.mktemp("spark"), {"spark.sql.shuffle.partitions": "1"})
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started


@pytest.fixture
def example(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Callable[[str], Example]:
    return lambda name: Example(name, spark, broker.address, tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One session for all that need one, and time for it to start on a busy machine."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(300))
