"""Tables in Google Cloud Storage and in Azure (P4): other engines read them, and a sync's workers write them.

Azure is Azurite; Google is a small server of the tests' own, which has no API that pyiceberg could use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flintmq.lake.clean import clean
from flintmq.lake.tables.commit_log import new_id
from flintmq.lake.tables.table import Conflict, Format
from support.broker.broker_process import BrokerProcess
from support.lake.data_files import SCHEMA
from support.lake.synced_lake import Lake, topic_rows
from support.lake.table_location import TableLocation
from support.spark.spark_topics import Topics, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = [
    pytest.param("gcs", "gs", Format.PARQUET, id="gs-parquet"),
    pytest.param("gcs", "gs", Format.DELTA, id="gs-delta"),
    pytest.param("azure", "az", Format.PARQUET, id="az-parquet"),
    pytest.param("azure", "az", Format.DELTA, id="az-delta"),
    pytest.param("azure", "az", Format.ICEBERG, id="az-iceberg"),
]


def catalog_of(format: Format, folder: Path) -> str | None:
    return f"sqlite:///{folder}/catalog.db" if format is Format.ICEBERG else None


@pytest.mark.parametrize(("cloud", "scheme", "format"), TABLES)
def test_a_table_is_made_read_and_never_committed_to_twice(
    request: pytest.FixtureRequest, tmp_path: Path, cloud: str, scheme: str, format: Format
) -> None:
    settings: dict[str, str] = request.getfixturevalue(cloud).settings
    root, catalog = f"{scheme}://lake/{new_id()}", catalog_of(format, tmp_path)
    made = TableLocation(root, format, settings=settings, catalog=catalog)
    state = made.fill([1])
    # Two that commit on the same state: one of them is told.
    file = made.write(state, made.rows().slice(0, 0), 10, 20)
    other = TableLocation(root, format, settings=settings, catalog=catalog)
    seen = other.state()
    made.add(state, [], at=20)
    with pytest.raises(Conflict):
        other.add(seen, [file], at=20)
    with pytest.raises(Conflict):
        other.table.create(SCHEMA)
    assert made.table.location == f"{root}/{made.table.location.rpartition('/')[2]}"
    assert len(other.rows()) == 10
    # The file of the one that was too late is a leftover.
    assert [one.path for one in clean(other.table, other.store)] == [file.path]
    assert len(other.rows()) == 10


@pytest.mark.parametrize(
    ("cloud", "scheme", "format"),
    [
        pytest.param("gcs", "gs", Format.DELTA, id="gs-delta"),
        pytest.param("azure", "az", Format.ICEBERG, id="az-iceberg"),
    ],
)
def test_a_topic_is_synced(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    topic: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    cloud: str,
    scheme: str,
    format: Format,
) -> None:
    server: Any = request.getfixturevalue(cloud)
    lake = Lake(
        spark,
        broker.address,
        f"{scheme}://lake/{new_id()}",
        settings=server.settings,
        catalog=catalog_of(format, tmp_path),
    )
    topics.create(topic, partitions=2)
    for partition in range(2):
        topics.write(topic, numbered(partition, 50), partition=partition)
    assert lake.sync(topic, format=format).rows == 100
    topics.write(topic, numbered(7, 3))
    assert lake.sync(topic, format=format).rows == 3
    assert lake.rows(topic, format) == topic_rows(broker.address, topic)
