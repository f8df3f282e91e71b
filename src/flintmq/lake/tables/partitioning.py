"""Rows by the partition of the table that they belong to, a record batch at a time. Pure.

    for values, rows in split(batch, fields): …        values: (("timestamp_day", "2026-11-15"),)

Invariant: every row comes out once, and rows of one partition keep their order. Times are cut in UTC, towards the
past. Texts are those that Iceberg shows: `2026`, `2026-11`, `2026-11-15`, `2026-11-15-08`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flintmq.errors import ConfigurationError
from flintmq.lake.tables.data_file import FOLDER_BYTES_MAX, PartitionValues, partition_directory
from flintmq.lake.tables.table import PartitionField, TableError, Transform

_UNITS: Final = {Transform.YEAR: "Y", Transform.MONTH: "M", Transform.DAY: "D", Transform.HOUR: "h"}
_NO_CODE: Final = -1

Codes = npt.NDArray[np.int64]


def parse_partitioning(texts: Sequence[str]) -> tuple[PartitionField, ...]:
    """`timestamp:day`, or a column by itself."""
    found = []
    for text in texts:
        column, _, transform = text.strip().partition(":")
        allowed = [str(one) for one in Transform]
        if not column or (transform and transform not in allowed):
            raise ConfigurationError(
                f"--partition-by {text}: expected a column, or a column and one of {', '.join(allowed)}, "
                "such as timestamp:day"
            )
        found.append(PartitionField(column, Transform(transform or Transform.IDENTITY)))
    if len({one.name for one in found}) < len(found):
        raise ConfigurationError(f"--partition-by names the same twice: {', '.join(texts)}")
    return tuple(found)


def check_partitioning(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """ConfigurationError if the columns are not there, or not of a kind that a path can name."""
    for one in fields:
        at = schema.get_field_index(one.column)
        if at < 0:
            raise ConfigurationError(
                f"--partition-by {one.column}: there is no such column; there are {', '.join(schema.names)}"
            )
        kind = schema.field(at).type
        if one.transform is not Transform.IDENTITY:
            if not (
                pa.types.is_timestamp(kind)
                or (pa.types.is_date(kind) and one.transform is not Transform.HOUR)
            ):
                raise ConfigurationError(
                    f"--partition-by {one.column}:{one.transform}: the column is {kind}, not a time"
                )
        elif not (
            _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)
        ):
            raise ConfigurationError(
                f"--partition-by {one.column}: tables are not partitioned by a column of {kind}; "
                "take one of texts, whole numbers, truth values or dates, or a time with :day"
            )


def split_by_partition(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
    """In the order of the first row of each."""
    if not fields or not batch.num_rows:
        yield (), batch
        return
    coded = [_coded(batch.column(one.column), one) for one in fields]
    combined = coded[0][0]
    for codes, texts in coded[1:]:
        combined = combined * (len(texts) + 1) + codes + 1
    distinct, firsts, inverse = np.unique(combined, return_index=True, return_inverse=True)
    if len(distinct) == 1:
        yield _values(coded, fields, 0), batch
        return
    order = np.argsort(inverse, kind="stable")
    edges = np.concatenate(([0], np.cumsum(np.bincount(inverse))))
    for at in np.argsort(firsts).tolist():
        rows = batch.take(pa.array(order[edges[at] : edges[at + 1]]))
        yield _values(coded, fields, int(firsts[at])), rows


def _values(
    coded: Sequence[tuple[Codes, list[str]]], fields: Sequence[PartitionField], row: int
) -> PartitionValues:
    found = []
    for one, (codes, texts) in zip(fields, coded, strict=True):
        code = int(codes[row])
        found.append((one.name, None if code == _NO_CODE else texts[code]))
    return tuple(found)


def _coded(column: Any, field: PartitionField) -> tuple[Codes, list[str]]:
    """For each row the index of its text; -1 for null."""
    if field.transform is not Transform.IDENTITY:
        # Only what differs is turned into text, which is slow.
        units = pc.cast(column, pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.int64())
        days = pc.fill_null(units, 0).to_numpy(zero_copy_only=False).astype("datetime64[us]")
        distinct, inverse = np.unique(
            days.astype(f"datetime64[{_UNITS[field.transform]}]"), return_inverse=True
        )
        texts = [str(one).replace("T", "-") for one in distinct]
        codes = inverse.astype(np.int64)
        codes[column.is_null().to_numpy(zero_copy_only=False)] = _NO_CODE
    else:
        encoded = column.dictionary_encode()
        texts = [_text(one) for one in encoded.dictionary.to_pylist()]
        codes = pc.fill_null(encoded.indices, _NO_CODE).to_numpy(zero_copy_only=False).astype(np.int64)
    for text in texts:
        if len(partition_directory(field.name, text)) > FOLDER_BYTES_MAX:
            raise TableError(
                f"a value of {field.column} is too long to name a folder after: {text[:40]}…; "
                "partition the table by another column"
            )
    return codes, texts


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
