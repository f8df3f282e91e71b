"""Records as they are printed."""

from __future__ import annotations

import json

import pytest

from flintmq.cli.common.record_printer import as_json, columns, compile_template, unescape
from flintmq.errors import ConfigurationError
from flintmq.records.record import Record

RECORD = Record(7, 1_700_000_000_123, b"k", b"v\xff", (("h", b"1"), ("n", None)))


def test_a_template_prints_fields_escapes_and_braces() -> None:
    printer = compile_template(
        r"{topic}-{partition}@{ offset }\t{key}={value} {{{headers}}} {timestamp} {size}\n"
    )
    assert printer("t", 3, RECORD) == b"t-3@7\tk=v\xff {h=1,n=null} 1700000000123 2\n"


def test_columns_are_separated_by_tabs_and_null_is_told() -> None:
    assert (
        columns(["time", "key", "value"])("t", 0, Record(0, 0, None, None))
        == b"1970-01-01T00:00:00.000Z\tnull\tnull\n"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [("{ofset}", r"did you mean \{offset\}"), ("{", "single {"), ("{xyzzy}", "there are topic")],
)
def test_a_template_that_cannot_be_is_a_usage_error(template: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        compile_template(template)


def test_json_keeps_bytes_that_are_no_text() -> None:
    assert json.loads(as_json("t", 1, RECORD)) == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
        "time": "2023-11-14T22:13:20.123Z",
        "key": "k",
        "value_base64": "dv8=",
        "headers": [{"name": "h", "value": "1"}, {"name": "n", "value": None}],
    }


def test_escapes_are_those_people_type() -> None:
    assert unescape(r"\t|\n|\\t|\x") == "\t|\n|\\t|\\x"
