"""Real Spark and a real broker, one of each for all tests here; topics are what tests make for themselves.

    def test_…(spark, broker, topics):       a session, a broker process, and a way to fill topics

The session's warehouse, checkpoints and scratch files are in temporary folders of the test run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from support.broker.broker_process import BrokerProcess
from support.spark.spark_session import new_session
from support.spark.spark_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
    pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")
    import flintmq.spark

    made = new_session(
        tmp_path_factory.mktemp("spark"),
        {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    )
    flintmq.spark.register(made)
    yield made
    made.stop()


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


_IN_NAMES = {ord(one): "-" for one in "[]{}(),:;/ \"'"}


class Reading:
    """Batch reads of the broker: `reading("topic", columns="offset")`."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess) -> None:
        self._spark = spark
        self._broker = broker

    def __call__(self, topic: str | None = None, **options: Any) -> DataFrame:
        reader = self._spark.read.format("flintmq").options(**self.options(topic, **options))
        return reader.load()

    def stream(self, topic: str | None = None, **options: Any) -> DataFrame:
        return self._spark.readStream.format("flintmq").options(**self.options(topic, **options)).load()

    def options(self, topic: str | None = None, **options: Any) -> dict[str, Any]:
        """`kafka__x` stands for `kafka.x`."""
        named = {} if topic is None else {"subscribe": topic}
        given = {name.replace("__", "."): value for name, value in options.items()}
        return {"kafka.bootstrap.servers": self._broker.address, **named, **given}


@pytest.fixture
def reading(spark: SparkSession, broker: BrokerProcess) -> Reading:
    return Reading(spark, broker)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One session for all that need one, and time for it to start on a busy machine."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
