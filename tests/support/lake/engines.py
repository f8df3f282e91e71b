"""Tables of the lake as other engines read them: DuckDB for plain files, deltalake and pyiceberg for theirs."""

from __future__ import annotations

from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from flintmq.lake.store.store import Store
from flintmq.lake.tables.schema_evolution import small_types
from flintmq.lake.tables.table import Format, Table


def read_rows(table: Table, format: Format, store: Store, catalog: Any = None) -> pa.Table:
    """All rows, by offset."""
    if format is Format.ICEBERG:
        found = catalog.load_table(("flintmq", table.location.rpartition("/")[2])).scan().to_arrow()
    elif format is Format.DELTA:
        options = dict(store.settings) or None
        opened = deltalake.DeltaTable(table.location, storage_options=options)
        found = pa.table(deltalake.QueryBuilder().register("t", opened).execute("select * from t").read_all())
    else:
        found = read_plain(table, store)
    small = pa.schema([field.with_type(small_types(field.type)) for field in found.schema])
    return found.cast(small).sort_by("offset")


def read_plain(table: Table, store: Store) -> pa.Table:
    """By the list of files, which DuckDB is given; of a bucket through Arrow, for DuckDB needs an extension there."""
    state = table.state()
    assert state is not None
    paths = [one.path for one in table.files(state)]
    if "://" not in table.location:
        names = [f"{table.location}/{path}" for path in paths]
        query = "select * from read_parquet(?, union_by_name=true, hive_partitioning=false)"
        found = duckdb.sql(query, params=[names])
        assert found is not None
        return found.to_arrow_table()
    parts = []
    for path in paths:
        with store.open(path) as file:
            parts.append(pq.read_table(file))
    return pa.concat_tables(parts, promote_options="permissive") if parts else state.schema.empty_table()
