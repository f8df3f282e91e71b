"""One Spark session and one S3 server for all tests here; brokers are started on copies of stored directories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.spark.spark_session import new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.lake.s3_server import S3Server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    for name in ("pyspark", "pyarrow", "obstore"):
        pytest.importorskip(name, reason=f"toolchain: {name}, of flintmq[spark]")
    import flintmq.spark

    made = new_session(tmp_path_factory.mktemp("spark"), {"spark.sql.shuffle.partitions": "2"})
    flintmq.spark.register(made)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server of its own, with the bucket `lake`."""
    pytest.importorskip("moto.server", reason="toolchain: moto[s3]")
    from support.lake.s3_server import S3Server

    with S3Server() as started:
        yield started


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One session for all that need one, and time for it to start on a busy machine."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
