"""What a table remembers about its columns: fields that have none, and columns that older rows do not have yet.

    flintmq.fields.extra = {"note": 12, "place.zip": 1}            records with the field, by its path
    flintmq.backfill     = {"total": {"0": [0, 417]}}              offsets, by column and partition

Both are properties of the table and change in its commits. Invariant: rows within the offsets of a column in
`flintmq.backfill` may have null where the topic has a value; rows beyond them do not. This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec

from flintmq.arrow.formats.extra_fields import ExtraFields
from flintmq.lake.tables.table import TableError, TableState, TopicProgress

T = TypeVar("T")

EXTRA_FIELDS: Final = "flintmq.fields.extra"
BACKFILL: Final = "flintmq.backfill"

OpenRanges: TypeAlias = dict[str, dict[int, tuple[int, int]]]
"""By column and partition: the first offset, and the one behind the last."""


def extra_fields(state: TableState) -> dict[str, int]:
    """Return in how many records of the table each field was that had no column."""
    return _read(state.properties, EXTRA_FIELDS, dict[str, int])


def open_backfill(state: TableState) -> OpenRanges:
    """Return the offsets whose rows lack columns that were added later."""
    return _read(state.properties, BACKFILL, OpenRanges)


def with_extra_fields(
    properties: Mapping[str, str], new: Mapping[str, int], columns: Collection[str]
) -> dict[str, str]:
    """Return the properties with `new` fields counted, without those that have become `columns`."""
    together = ExtraFields()
    for records in (_read(properties, EXTRA_FIELDS, dict[str, int]), new):
        together.merge({name: count for name, count in records.items() if name not in columns})
    return _with(properties, EXTRA_FIELDS, together.records)


def with_open_columns(
    properties: Mapping[str, str], columns: Iterable[str], progress: TopicProgress | None
) -> dict[str, str]:
    """Return the properties of a table that has come so far, if none of its rows has values of `columns`."""
    there = {} if progress is None else {part: (0, end) for part, end in progress.next_offsets.items() if end}
    ranges = _read(properties, BACKFILL, OpenRanges)
    return _with(properties, BACKFILL, {**ranges, **{name: there for name in columns if there}})


def with_backfilled(
    properties: Mapping[str, str], done: Mapping[int, int], columns: Collection[str]
) -> dict[str, str]:
    """Return the properties once rows of `columns` are filled up to the offsets `done` of partitions."""
    ranges: OpenRanges = {}
    for name, partitions in _read(properties, BACKFILL, OpenRanges).items():
        if name not in columns:
            ranges[name] = partitions
            continue
        left = {
            partition: (max(start, done.get(partition, start)), end)
            for partition, (start, end) in partitions.items()
        }
        if left := {partition: (start, end) for partition, (start, end) in left.items() if start < end}:
            ranges[name] = left
    return _with(properties, BACKFILL, ranges)


def _read(properties: Mapping[str, str], name: str, kind: type[dict[str, T]]) -> dict[str, T]:
    if (text := properties.get(name)) is None:
        return {}
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise TableError(f"The table's property {name} makes no sense ({error}); restore it") from error


def _with(properties: Mapping[str, str], name: str, value: Mapping[str, object]) -> dict[str, str]:
    left = {key: text for key, text in properties.items() if key != name}
    return {**left, name: msgspec.json.encode(value).decode()} if value else left
