"""Columns in DDL, for pipeline files and for decoders."""

from __future__ import annotations

import pytest

from flintmq.arrow.ddl_parser import DdlError, Dialect, parse_columns
from flintmq.arrow.formats import SchemaError, ddl

GOOD = [
    "id long",
    "id LONG NOT NULL, name string COMMENT 'what it''s called', at timestamp",
    "`odd ``name` int, b decimal(10, 2), c decimal, d varchar(20), e dec(5)",
    "a array<struct<x: double, y: map<string, array<int>>>>, b: binary",
    "a struct<b struct<c int not null>>, j json",
]
BAD = [
    ("", "a column's name", 0),
    ("id", "a type such as", 2),
    ("id lng", "long?", 3),
    ("id long,", "a column's name", 8),
    ("id long name string", "a comma or the end", 8),
    ("id long, ID int", "twice", 9),
    ("a array<int", "'>'", 11),
    ("a array int", "'<'", 8),
    ("a map<string>", "','", 12),
    ("a decimal(x)", "a number", 10),
    ("a decimal(1, 2, 3)", r"'\)'", 14),
    ("a int not", "'null'", 9),
    ("a int comment x", "single quotes", 14),
    ("a int ! b", "a comma or the end", 6),
    ("a " + "array<" * 200, "deep", 602),
    ("id long, a decimal(50, 99)", "no decimal\\(50, 99\\)", 11),
    ("a decimal(0)", "no decimal\\(0\\)", 2),
    ("a numeric(5, 6)", "behind the point", 2),
    ("a decimal(99999999999)", "a number", 10),
    ("a varchar, b int", "'\\('", 9),
    ("a variant", "a type such as", 2),
    ("a map<array<int>, int>", "keys are strings", 6),
    ("a map<int, int>", "keys are strings", 6),
]


@pytest.mark.parametrize("text", GOOD)
def test_an_arrow_schema_has_the_same_names(text: str) -> None:
    assert [column.name for column in parse_columns(text, Dialect.RECORDS)] == ddl.parse(text).names


@pytest.mark.parametrize(("text", "message", "offset"), BAD)
def test_an_error_says_where_it_is(text: str, message: str, offset: int) -> None:
    with pytest.raises(DdlError, match=message) as caught:
        parse_columns(text, Dialect.RECORDS)
    assert caught.value.offset == offset


@pytest.mark.parametrize("text", [text for text, _, _ in BAD if "ID" not in text])
def test_decoders_refuse_it_as_a_schema_error(text: str) -> None:
    with pytest.raises(SchemaError):
        ddl.parse(text)


def test_a_column_knows_its_type_and_where_it_begins() -> None:
    found = parse_columns("id long, tags array<string> not null")
    assert [(one.name, one.offset, one.type_text) for one in found] == [
        ("id", 0, "long"),
        ("tags", 9, "array<string>"),
    ]


def test_columns_that_spark_reads_are_those_of_spark() -> None:
    assert [
        one.name for one in parse_columns("a variant, b map<array<int>, int>, c map<int, char(3)>")
    ] == list("abc")
    for text in ("a json", "a varchar", "a decimal(39)"):
        with pytest.raises(DdlError):
            parse_columns(text)
