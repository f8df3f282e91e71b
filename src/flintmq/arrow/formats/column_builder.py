"""Python objects, decoded one by one, as Arrow columns: column by column, not object by object.

    columns = StructColumn((StructField("id", ItemGetter("id"), ScalarColumn(pa.int64())), …))
    rows, errors = build_rows(columns, objects)

A format says with these where in its objects the columns are, and of what type. Invariant: what a column cannot hold
is an error of that object alone. Column builders can be pickled.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import pyarrow as pa

from flintmq.arrow.formats.decoder import DecodedValues, RowError, Values
from flintmq.arrow.formats.value_errors import ColumnPath, value_error

Convert = Callable[[Any], Any]

REFUSALS = (pa.ArrowException, ArithmeticError, ValueError, TypeError, LookupError)
"""What it means that a value does not fit its column."""


class ColumnBuilder(Protocol):
    @property
    def type(self) -> pa.DataType: ...

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Of as many rows, where None is null."""


class FieldGetter(Protocol):
    """Gets a field of objects, none of which is None."""

    def __call__(self, objects: Sequence[Any]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class AttributeGetter:
    name: str

    def __call__(self, objects: Sequence[Any]) -> list[Any]:
        return list(map(attrgetter(self.name), objects))


@dataclass(frozen=True, slots=True)
class ItemGetter:
    key: str

    def __call__(self, objects: Sequence[Any]) -> list[Any]:
        return list(map(itemgetter(self.key), objects))


@dataclass(frozen=True, slots=True)
class ScalarColumn:
    type: pa.DataType
    convert: Convert | None = None
    """From what the format's reader gives, if that is not None, to what Arrow takes; a function of a module."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        if (convert := self.convert) is not None:
            values = [None if one is None else convert(one) for one in values]
        return pa.array(values, self.type)


@dataclass(frozen=True, slots=True)
class StructField:
    name: str
    getter: FieldGetter
    column: ColumnBuilder


@dataclass(frozen=True, slots=True)
class StructColumn:
    fields: tuple[StructField, ...]

    @property
    def type(self) -> pa.StructType:
        return pa.struct([(one.name, one.column.type) for one in self.fields])

    def array(self, values: Sequence[Any]) -> pa.StructArray:
        there = [one for one in values if one is not None]
        columns = [one.column.array(one.getter(there)) for one in self.fields]
        dense = pa.StructArray.from_arrays(columns, fields=list(self.type))
        return dense if len(there) == len(values) else _spread(dense, values)


@dataclass(frozen=True, slots=True)
class ListColumn:
    item: ColumnBuilder

    @property
    def type(self) -> pa.ListType:
        return pa.list_(self.item.type)

    def array(self, values: Sequence[Any]) -> pa.ListArray:
        if isinstance(self.item, ScalarColumn) and self.item.convert is None:
            return pa.array(values, self.type)
        items = self.item.array(list(chain.from_iterable(one for one in values if one is not None)))
        return pa.ListArray.from_arrays(_offsets(values), items, type=self.type, mask=_nulls(values))


@dataclass(frozen=True, slots=True)
class MapColumn:
    """Of dicts, or what else has `keys` and `values` and a length."""

    key: ColumnBuilder
    item: ColumnBuilder

    @property
    def type(self) -> pa.MapType:
        return pa.map_(self.key.type, self.item.type)

    def array(self, values: Sequence[Any]) -> pa.MapArray:
        there = [one for one in values if one is not None]
        keys = self.key.array(list(chain.from_iterable(one.keys() for one in there)))
        items = self.item.array(list(chain.from_iterable(one.values() for one in there)))
        dense = pa.MapArray.from_arrays(_offsets(there), keys, items, type=self.type)
        return dense if len(there) == len(values) else _spread(dense, values)


def build_rows(column: StructColumn, objects: Sequence[Any]) -> DecodedValues:
    """A row for each object; None is a null row."""
    try:
        return DecodedValues(column.array(objects), [])
    except REFUSALS as why:
        if len(objects) < 2:
            errors = [
                RowError(0, value_error(why, column.type, column=_refusing(column, one))) for one in objects
            ]
            return DecodedValues(pa.nulls(len(objects), column.type), errors)
    half = len(objects) // 2
    first, second = build_rows(column, objects[:half]), build_rows(column, objects[half:])
    errors = first.errors + [RowError(half + row, message) for row, message in second.errors]
    return DecodedValues(pa.concat_arrays([first.rows, second.rows]), errors)


def decode_each(
    column: StructColumn, values: Values, read: Convert, refusals: tuple[type[Exception], ...]
) -> DecodedValues:
    """`read` makes an object of one value's bytes; `refusals` are what it raises if they are bad."""
    objects: list[Any] = []
    errors: list[RowError] = []
    columns = column.type
    with _no_collection():
        for value in values.to_pylist():
            one = None
            if value is not None:
                try:
                    one = read(value)
                except refusals as why:
                    errors.append(RowError(len(objects), value_error(why, columns)))
            objects.append(one)
        built = build_rows(column, objects)
    return DecodedValues(built.rows, sorted(errors + built.errors))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Many thousand objects that hold no cycles are made at once: looking for cycles would take half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _spread(dense: pa.Array, values: Sequence[Any]) -> pa.Array:
    """The rows where values are not None; the others null."""
    position = iter(range(len(dense)))
    return dense.take(pa.array([None if one is None else next(position) for one in values], pa.int32()))


def _offsets(values: Sequence[Any]) -> pa.Array:
    offsets, position = [0], 0
    for one in values:
        if one is not None:
            position += len(one)
        offsets.append(position)
    return pa.array(offsets, pa.int32())


def _nulls(values: Sequence[Any]) -> pa.Array | None:
    nulls = [one is None for one in values]
    return pa.array(nulls, pa.bool_()) if any(nulls) else None


def _refusing(column: StructColumn, one: Any) -> ColumnPath | None:
    """The column that cannot hold its part of an object; None if all can, each for itself."""
    for field in column.fields:
        try:
            values = field.getter([one])
        except REFUSALS:
            return ColumnPath(field.name, field.column.type)
        try:
            field.column.array(values)
        except REFUSALS:
            found = _refusing(field.column, values[0]) if isinstance(field.column, StructColumn) else None
            if found is None:
                return ColumnPath(field.name, field.column.type)
            return ColumnPath(f"{field.name}.{found.name}", found.type)
    return None
