"""The lines of Delta's log, as its protocol describes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from deltalake import Schema

from flintmq.lake.tables.commit_log import Action
from flintmq.lake.tables.data_file import DataFile
from flintmq.lake.tables.statistics import ColumnStatistics, statistics_of
from flintmq.lake.tables.table import PartitionField, TableError, Transform

KNOWN_FEATURES: Final = frozenset(("appendOnly", "invariants", "timestampNtz", "typeWidening"))

_READ_FEATURES: Final = frozenset(("timestampNtz", "typeWidening"))
_INDEXED_MAX: Final = 32
"""Columns with figures, as Delta's writers have it."""
_TEXT_MAX: Final = 64


def commit_info(operation: str, commit_id: str, now_ms: int) -> Action:
    return {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": operation,
            "operationParameters": {},
            "engineInfo": "flintmq",
            "txnId": commit_id,
        }
    }


def protocol(features: Iterable[str]) -> Action:
    if not (named := set(features)):
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(named & _READ_FEATURES),
            "writerFeatures": sorted(named | {"appendOnly", "invariants"}),
        }
    }


def columns_json(schema: pa.Schema, partitioning: Sequence[PartitionField], before: str | None = None) -> str:
    """Delta's schema, with the columns that partitions need, and what became of the types since `before`."""
    made = json.loads(Schema.from_arrow(pa.schema([field.remove_metadata() for field in schema])).to_json())
    for one in partitioning:
        if one.transform is Transform.IDENTITY:
            continue
        if one.name in schema.names:
            raise TableError(
                f"Column {one.name!r} is needed for the partitions of the table; rename the one of the records."
            )
        kind = "date" if one.transform is Transform.DAY else "string"
        made["fields"].append({"name": one.name, "type": kind, "nullable": True, "metadata": {}})
    if before is not None:
        _keep_history(json.loads(before), made)
    return json.dumps(made)


def features_of(columns: str) -> set[str]:
    found = set()
    if '"timestamp_ntz"' in columns:
        found.add("timestampNtz")
    if '"delta.typeChanges"' in columns:
        found.add("typeWidening")
    return found


def add(one: DataFile, partitioning: Sequence[PartitionField], now_ms: int, *, is_change: bool) -> Action:
    if any(value == "" for _, value in one.partition_values):
        raise TableError(
            f"{one.path}: a partition's value is an empty text, which Delta takes for null. Partition the table by "
            "another column."
        )
    columns = {field.column for field in partitioning if field.transform is Transform.IDENTITY}
    return {
        "add": {
            "path": quote(one.path, safe="/=+:@,~"),
            "partitionValues": dict(one.partition_values),
            "size": one.size,
            "modificationTime": now_ms,
            "dataChange": is_change,
            "stats": json.dumps(_figures(one, columns)),
        }
    }


def remove(one: DataFile, now_ms: int, *, is_change: bool) -> Action:
    return {
        "remove": {
            "path": quote(one.path, safe="/=+:@,~"),
            "deletionTimestamp": now_ms,
            "dataChange": is_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(one.partition_values),
            "size": one.size,
        }
    }


def text_of(value: object) -> str | None:
    """A partition's value as paths have it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _figures(one: DataFile, left_out: set[str]) -> dict[str, Any]:
    if not one.footer:
        return {"numRecords": one.rows}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    figures = [column for column in statistics_of(one.footer).columns if not column.is_repeated]
    for column in figures[:_INDEXED_MAX]:
        names = column.path.split(".")
        if names[0] in left_out:
            continue
        if column.nulls is not None:
            _put(nulls, names, column.nulls)
        low, high = _bounds(column)
        if low is not None and high is not None:
            _put(lows, names, low)
            _put(highs, names, high)
    return {"numRecords": one.rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _bounds(column: ColumnStatistics) -> tuple[Any, Any]:
    low, high = column.minimum, column.maximum
    if not column.is_bounded or low is None:
        return None, None
    if isinstance(low, datetime):
        # To milliseconds, as Delta has it: the upper one must not become less.
        return _instant(low), _instant(high + timedelta(microseconds=999))
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    if isinstance(low, str):
        return (low, high) if max(len(low), len(high)) <= _TEXT_MAX else (None, None)
    if isinstance(low, int) and not isinstance(low, bool):
        return low, high
    # Of a float Parquet does not tell whether there are NaNs, which Delta's readers take for the greatest.
    return None, None


def _instant(value: datetime) -> str:
    return (
        value.strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{value.microsecond // 1000:03d}"
        + ("Z" if value.tzinfo else "")
    )


def _put(into: dict[str, Any], names: Sequence[str], value: object) -> None:
    for name in names[:-1]:
        into = into.setdefault(name, {})
    into[names[-1]] = value


def _keep_history(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """In each field's metadata what was there, and how its type has changed, as the feature typeWidening wants it."""
    known = {field["name"]: field for field in before["fields"]}
    for field in after["fields"]:
        if (was := known.get(field["name"])) is None:
            continue
        field["metadata"] = dict(was.get("metadata") or {})
        changes = list(field["metadata"].get("delta.typeChanges", ()))
        changes += _type_changes(was["type"], field["type"], "")
        if changes:
            field["metadata"]["delta.typeChanges"] = changes


def _type_changes(was: Any, now: Any, path: str) -> list[dict[str, str]]:
    if isinstance(was, str) and isinstance(now, str):
        if was == now:
            return []
        change = {"fromType": was, "toType": now}
        return [{**change, "fieldPath": path} if path else change]
    if was["type"] == "struct":
        _keep_history(was, now)
        return []
    if was["type"] == "array":
        return _type_changes(was["elementType"], now["elementType"], _below(path, "element"))
    return _type_changes(was["keyType"], now["keyType"], _below(path, "key")) + _type_changes(
        was["valueType"], now["valueType"], _below(path, "value")
    )


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
