"""Members of JSON objects that have no column: found, counted, kept and inferred (P4)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flintmq.arrow.formats import ddl
from flintmq.arrow.formats.decoder import DecodedValues, SchemaError
from flintmq.arrow.formats.extra_fields import NAMES_MAX, OTHERS, Extras, described
from flintmq.arrow.formats.json.decoder import JsonDecoder

COLUMNS = "id long, place struct<x: double>, items array<struct<sku: string>>, prices map<string, struct<cents: int>>"
ALL = Extras(are_counted=True, are_inferred=True, column="rest")


def decoded(columns: str, *values: object, extras: Extras = ALL) -> DecodedValues:
    decoder = pickle.loads(pickle.dumps(JsonDecoder(ddl.parse(columns), extras)))
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    result: DecodedValues = decoder.decode(pa.array(texts, pa.binary()))
    return result


def rest_of(result: DecodedValues) -> list[Any]:
    return [
        None if row is None or row["rest"] is None else json.loads(row["rest"])
        for row in result.rows.to_pylist()
    ]


def test_members_without_a_column_are_named_by_their_paths_and_kept() -> None:
    result = decoded(
        COLUMNS,
        {"id": 1},
        {"id": 2, "note": "hi", "place": {"x": 1, "zip": "9"}},
        {"id": 3, "items": [{"sku": "a", "n": 1}, None], "prices": {"eur": {"cents": 1, "vat": 2}}},
        {"id": 4, "note": None},
        {"id": 5, "place": None, "items": None},
    )
    assert result.errors == []
    assert result.extra is not None
    assert result.extra.records == {"note": 2, "place.zip": 1, "items.element.n": 1, "prices.value.vat": 1}
    assert rest_of(result) == [
        None,
        {"note": "hi", "place": {"zip": "9"}},
        {"items": [{"sku": "a", "n": 1}, None], "prices": {"eur": {"cents": 1, "vat": 2}}},
        {"note": None},
        None,
    ]
    assert result.extra.columns is not None
    # A member of a map's values gets no column: the map has one type for all of its values.
    assert (
        ddl.write(result.extra.columns)
        == "note string, place struct<zip: string>, items array<struct<n: bigint>>"
    )


def test_a_value_that_does_not_fit_is_refused_and_its_members_are_not_counted() -> None:
    result = decoded("id long", {"id": "text", "note": 1}, {"id": 1}, b"no JSON", {"id": 2, "note": 1})
    assert [one.row for one in result.errors] == [0, 2]
    assert result.extra is not None
    assert result.extra.records == {"note": 1}


def test_nothing_is_counted_unless_it_is_asked_for() -> None:
    result = decoded("id long", {"id": 1, "note": 2}, extras=Extras())
    assert result.extra is None
    assert result.rows.to_pylist() == [{"id": 1}]


def test_a_member_that_is_named_as_the_column_of_the_rest_is_kept_in_it() -> None:
    result = decoded("id long", {"id": 1, "rest": "mine", "kept": 5})
    assert rest_of(result) == [{"rest": "mine", "kept": 5}]


def test_a_text_that_is_no_unicode_is_refused_where_it_would_be_kept() -> None:
    assert [one.row for one in decoded("id long", b'{"id": 1, "note": "\xff"}').errors] == [0]
    assert decoded("id long", b'{"id": 1, "note": "\xff"}', extras=Extras(are_counted=True)).errors == []


def test_the_column_of_the_rest_cannot_be_one_of_the_others() -> None:
    with pytest.raises(SchemaError, match="Choose another name"):
        JsonDecoder(ddl.parse("id long, rest string"), ALL)


def test_kinds_that_vary_are_kept_as_text_and_reserved_names_get_no_column() -> None:
    extras = Extras(are_counted=True, are_inferred=True, reserved=frozenset({"offset", "id"}))
    result = decoded(
        "id long",
        {"id": 1, "a": 1, "b": 1, "Offset": 1},
        {"id": 2, "a": "x", "b": 1.5, "ID": 7},
        extras=extras,
    )
    assert result.extra is not None
    assert result.extra.columns is not None
    assert ddl.write(result.extra.columns) == "a json, b double"
    assert set(result.extra.records) == {"a", "b", "Offset", "ID"}


def test_names_that_are_data_cost_bounded_memory() -> None:
    values = [{"id": 1, f"name{number}": 1} for number in range(NAMES_MAX + 50)]
    result = decoded("id long", *values, extras=Extras(are_counted=True))
    assert result.extra is not None
    assert len(result.extra.records) == NAMES_MAX + 1
    assert result.extra.records[OTHERS] == 50


def test_fields_are_described_the_most_frequent_first() -> None:
    assert described({"b": 1, "a": 1200}) == "a (1,200 records), b (1 record)"


_SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
_NAMES = st.sampled_from(["a", "b", "c", "d"])
_OBJECTS = st.dictionaries(_NAMES, _SCALARS | st.dictionaries(_NAMES, _SCALARS, max_size=3), max_size=4)


@given(st.lists(_OBJECTS, min_size=1, max_size=6))
def test_columns_and_rest_together_are_the_value(values: list[dict[str, Any]]) -> None:
    """Whatever the values are, what no column takes is in the rest, and nothing else is."""
    result = decoded("a json, b struct<a: json, c: json>", *values)
    wrong = {one.row for one in result.errors}
    for at, (value, row, rest) in enumerate(
        zip(values, result.rows.to_pylist(), rest_of(result), strict=True)
    ):
        if at in wrong:
            assert not isinstance(value.get("b"), dict | None)
            continue
        inner = {name: one for name, one in (value.get("b") or {}).items() if name not in ("a", "c")}
        expected = {name: one for name, one in value.items() if name not in ("a", "b")} | (
            {"b": inner} if inner else {}
        )
        assert (rest or {}) == expected
        assert (None if row["a"] is None else json.loads(row["a"])) == value.get("a")
