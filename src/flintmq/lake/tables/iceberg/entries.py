"""Between Arrow and Iceberg: schemas, partitions, and what a manifest says of a data file. Pure.

Invariant: a field keeps its id. A bound in an entry is one of the footer's, cut as Iceberg's writers cut it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import StatsAggregator, parquet_path_to_id_mapping, schema_to_pyarrow
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    YearTransform,
)
from pyiceberg.transforms import Transform as SpecTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
)

from flintmq.lake.tables import schema_evolution
from flintmq.lake.tables.data_file import DataFile, PartitionValues
from flintmq.lake.tables.statistics import statistics_of
from flintmq.lake.tables.table import PartitionField, TableError, Transform

_TRANSFORMS: Final[dict[Transform, SpecTransform[Any, Any]]] = {
    Transform.IDENTITY: IdentityTransform(),
    Transform.HOUR: HourTransform(),
    Transform.DAY: DayTransform(),
    Transform.MONTH: MonthTransform(),
    Transform.YEAR: YearTransform(),
}
_FIRST_PARTITION_ID: Final = 1000
_CUT: Final = 16
"""Of texts and bytes in bounds, as Iceberg's writers do by default."""


def schema_of(schema: pa.Schema) -> Schema:
    """With new ids."""
    from pyiceberg.catalog import Catalog

    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(without_ids(schema)))


def arrow_of(schema: Schema) -> pa.Schema:
    """What workers write, ids in the fields' metadata."""
    found = schema_to_pyarrow(schema)
    return pa.schema([field.with_type(schema_evolution.small_types(field.type)) for field in found])


def without_ids(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(one.name, _bare(one.type), one.nullable) for one in schema])


def spec_of(schema: Schema, partitioning: Sequence[PartitionField]) -> PartitionSpec:
    if not partitioning:
        return UNPARTITIONED_PARTITION_SPEC
    return PartitionSpec(
        *(
            SpecField(
                source_id=schema.find_field(one.column).field_id,
                field_id=_FIRST_PARTITION_ID + index,
                transform=_TRANSFORMS[one.transform],
                name=one.name,
            )
            for index, one in enumerate(partitioning)
        )
    )


def partitioning_of(spec: PartitionSpec, schema: Schema, table: str) -> tuple[PartitionField, ...]:
    known = {str(transform): name for name, transform in _TRANSFORMS.items()}
    found = []
    for field in spec.fields:
        transform, column = known.get(str(field.transform)), schema.find_column_name(field.source_id)
        if transform is None or column is None or PartitionField(column, transform).name != field.name:
            raise TableError(
                f"{table} is partitioned by {field.name} ({field.transform}), which FlintMQ cannot write. Use "
                "another table."
            )
        found.append(PartitionField(column, transform))
    return tuple(found)


def entry_of(one: DataFile, location: str, schema: Schema, spec: PartitionSpec) -> Entry:
    figures = statistics_of(one.footer)
    ids = parquet_path_to_id_mapping(schema)
    sizes, counts, nulls, lows, highs = {}, {}, {}, {}, {}
    for column in figures.columns:
        if (field_id := ids.get(column.path)) is None:
            continue
        sizes[field_id] = column.size
        counts[field_id] = column.values
        if column.nulls is not None:
            nulls[field_id] = column.nulls
        if column.is_repeated or not column.is_bounded or column.minimum is None:
            continue
        kind = schema.find_type(field_id)
        low, high = _bounds(kind, column.physical_type, column.minimum, column.maximum)
        if low is not None and high is not None:
            lows[field_id], highs[field_id] = low, high
    entry = Entry.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/{one.path}",
        file_format=FileFormat.PARQUET,
        partition=_record(one, schema, spec),
        record_count=figures.rows,
        file_size_in_bytes=one.size,
        column_sizes=sizes,
        value_counts=counts,
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds=lows,
        upper_bounds=highs,
        split_offsets=list(figures.split_offsets),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    entry.spec_id = spec.spec_id
    return entry


def values_of(record: Record, spec: PartitionSpec, schema: Schema) -> PartitionValues:
    found: list[tuple[str, str | None]] = []
    for index, field in enumerate(spec.fields):
        value = record[index]
        if value is None:
            found.append((field.name, None))
            continue
        text = field.transform.to_human_string(schema.find_type(field.source_id), value)
        found.append((field.name, text.lower() if isinstance(value, bool) else text))
    return tuple(found)


def _bounds(kind: IcebergType, physical_type: str, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    if not isinstance(kind, PrimitiveType):
        return None, None
    cut = _CUT if isinstance(kind, (StringType, BinaryType)) else None
    try:
        bounds = StatsAggregator(kind, physical_type, cut)
    except ValueError:
        return None, None  # a type in the file that has no bounds in the table
    bounds.update_min(low)
    bounds.update_max(high)
    return bounds.min_as_bytes(), bounds.max_as_bytes()


def _record(one: DataFile, schema: Schema, spec: PartitionSpec) -> Record:
    values = dict(one.partition_values)
    found = []
    for field in spec.fields:
        if field.name not in values:
            raise TableError(f"{one.path} has no value for the partitions' {field.name}; write it anew.")
        found.append(_number(values[field.name], field, schema.find_type(field.source_id)))
    return Record(*found)


def _number(text: str | None, field: SpecField, kind: IcebergType) -> Any:
    """As Iceberg keeps it: times as a number of hours, days, months or years since 1970."""
    if text is None:
        return None
    if isinstance(field.transform, IdentityTransform):
        if isinstance(kind, (IntegerType, LongType)):
            return int(text)
        if isinstance(kind, BooleanType):
            return text == "true"
        return _days(text) if isinstance(kind, DateType) else text
    if isinstance(field.transform, HourTransform):
        day, _, hour = text.rpartition("-")
        return _days(day) * 24 + int(hour)
    if isinstance(field.transform, DayTransform):
        return _days(text)
    year, _, month = text.partition("-")
    if isinstance(field.transform, MonthTransform):
        return (int(year) - 1970) * 12 + int(month) - 1
    return int(year) - 1970


def _days(text: str) -> int:
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def _bare(kind: pa.DataType) -> pa.DataType:
    """Without metadata, in which ids are."""
    types = pa.types
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([pa.field(one.name, _bare(one.type), one.nullable) for one in fields])
    if types.is_list(kind):
        return pa.list_(pa.field("element", _bare(kind.value_type), kind.value_field.nullable))
    if types.is_map(kind):
        return pa.map_(
            pa.field("key", _bare(kind.key_type), nullable=False),
            pa.field("value", _bare(kind.item_type), kind.item_field.nullable),
        )
    return kind
