"""What a table remembers about its columns (P4)."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

import pyarrow as pa

from flintmq.lake.syncing.column_notes import (
    BACKFILL,
    EXTRA_FIELDS,
    extra_fields,
    open_backfill,
    with_backfilled,
    with_extra_fields,
    with_open_columns,
)
from flintmq.lake.tables.table import TableError, TableState, TopicProgress


def state(properties: dict[str, str]) -> TableState:
    return TableState(version="1", schema=pa.schema([]), properties=properties)


def test_fields_add_up_until_they_become_columns() -> None:
    kept = with_extra_fields({"flintmq.shape": "x"}, {"a": 2, "b": 1}, ())
    kept = with_extra_fields(kept, {"a": 3, "c": 1}, {"b"})
    assert extra_fields(state(kept)) == {"a": 5, "c": 1}
    assert with_extra_fields(kept, {}, {"a", "c"}) == {"flintmq.shape": "x"}


def test_a_column_is_open_in_all_rows_that_are_there_and_closed_partition_by_partition() -> None:
    progress = TopicProgress("id", {0: 10, 1: 5, 2: 0})
    kept = with_open_columns({}, ["a"], progress)
    kept = with_open_columns(kept, ["b"], TopicProgress("id", {0: 20, 1: 5, 2: 0}))
    assert open_backfill(state(kept)) == {"a": {0: (0, 10), 1: (0, 5)}, "b": {0: (0, 20), 1: (0, 5)}}
    kept = with_backfilled(kept, {0: 12}, {"a", "b"})
    assert open_backfill(state(kept)) == {"a": {1: (0, 5)}, "b": {0: (12, 20), 1: (0, 5)}}
    kept = with_backfilled(kept, {0: 20, 1: 5}, {"b"})
    assert open_backfill(state(kept)) == {"a": {1: (0, 5)}}
    assert with_backfilled(kept, {1: 5}, {"a"}) == {}


def test_an_empty_table_has_no_rows_that_lack_a_column() -> None:
    assert with_open_columns({}, ["a"], None) == {}
    assert with_open_columns({}, ["a"], TopicProgress("id", {0: 0})) == {}


@pytest.mark.parametrize("name", [BACKFILL, EXTRA_FIELDS])
def test_a_property_that_makes_no_sense_is_named(name: str) -> None:
    with pytest.raises(TableError, match=name):
        (open_backfill if name == BACKFILL else extra_fields)(state({name: "[1"}))
