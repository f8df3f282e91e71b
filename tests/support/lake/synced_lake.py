"""Topics synced to tables, and what other engines find in them.

    lake = Lake(spark, broker.address, "/tmp/lake")
    lake.sync("orders", format="delta")
    lake.rows("orders", format="delta")            as deltalake reads it
    topic_rows(broker.address, "orders")           as the broker has it

Rows are dictionaries in the order of partitions and offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from flintmq.lake.limits import SYNC_LIMITS, SyncLimits
from flintmq.lake.store.store import join, open_store
from flintmq.lake.syncing.metrics import TableCommit
from flintmq.lake.syncing.options import make_options
from flintmq.lake.syncing.sync import Sync, SyncOutcome
from flintmq.lake.tables.factory import NAMESPACE, open_table
from flintmq.lake.tables.iceberg.catalogs import open_catalog
from flintmq.lake.tables.table import Table, TableState
from flintmq.spark.lazy_session import LazySession
from support.lake.engines import read_plain
from support.spark.spark_direct import Direct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
FORMATS = ("parquet", "iceberg", "delta")


class Lake:
    def __init__(
        self,
        spark: SparkSession | LazySession,
        address: str,
        root: str,
        *,
        settings: Mapping[str, str] | None = None,
        catalog: str | None = None,
    ) -> None:
        self.spark = spark
        self.address = address
        self.root = root
        self.settings = dict(settings or {})
        self.catalog = catalog

    def open(
        self,
        *topics: str,
        on_commit: Callable[[TableCommit], None] = lambda commit: None,
        limits: SyncLimits = SYNC_LIMITS,
        **options: Any,
    ) -> Sync:
        made = make_options(
            topics,
            to=self.root,
            bootstrap_servers=self.address,
            store=self.settings,
            catalog=self.catalog,
            **options,
        )
        return Sync(self.spark, made, on_commit=on_commit, limits=limits)

    def sync(self, *topics: str, **options: Any) -> SyncOutcome:
        with self.open(*topics, **options) as sync:
            return sync.run()

    def table(self, name: str, format: str = "parquet") -> Table:
        return open_table(self.root, name, format, settings=self.settings, catalog=self.catalog)

    def state(self, name: str, format: str = "parquet") -> TableState:
        state = self.table(name, format).state()
        assert state is not None, f"there is no table {name}"
        return state

    def paths(self, name: str, format: str = "parquet") -> list[str]:
        """Of all files that count."""
        table = self.table(name, format)
        return sorted(one.path for one in table.files(self.state(name, format)))

    def read(self, name: str, format: str = "parquet") -> pa.Table:
        """By an engine that is not ours: DuckDB, pyiceberg or deltalake."""
        if format == "iceberg":
            catalog = open_catalog(self.root, self.catalog, self.settings)
            return catalog.load_table((NAMESPACE, name)).scan().to_arrow()
        store = open_store(join(self.root, name), self.settings)
        if format == "delta":
            table = deltalake.DeltaTable(store.url, storage_options=dict(store.settings) or None)
            query = deltalake.QueryBuilder().register("t", table).execute("select * from t")
            return pa.table(query.read_all())
        return read_plain(self.table(name), store)

    def rows(self, name: str, format: str = "parquet") -> Rows:
        rows = self.read(name, format).to_pylist()
        if format == "iceberg":
            # pyiceberg 0.12 reads an empty list where a list is null.
            rows = [{**row, "headers": row["headers"] or None} if "headers" in row else row for row in rows]
        return ordered(rows)


def without_spark() -> LazySession:
    """For work that is little enough to be done in this process; more of it fails the test."""

    def refuse() -> SparkSession:
        raise AssertionError("the work is too much to be done without Spark")

    return LazySession(refuse, is_optional=True)


def topic_rows(address: str, topic: str, **options: Any) -> Rows:
    """What committed readers of the topic see."""
    options = {"kafka.isolation.level": "read_committed", "includeHeaders": "true", **options}
    return ordered(Direct(address, segments="never").rows(topic, **options))


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))
