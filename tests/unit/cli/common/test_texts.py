"""What is typed and what is printed: starting points, templates, lines, tables, settings."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

import pytest

from flintmq.cli.common.output import many, plain_table, size, time_of
from flintmq.cli.common.record_printer import as_json, columns, compile_template
from flintmq.cli.common.record_text import RecordLineParser, UnreadableLine, parse_headers, unescape
from flintmq.cli.common.settings_options import load_settings, parse_assignment
from flintmq.cli.consume.starting_point import StartingPoint, StartMode, parse_start, position
from flintmq.cli.produce.input_lines import read_lines
from flintmq.cli.topic.configs import parse_topic_settings
from flintmq.errors import ConfigurationError, RequestError
from flintmq.records.record import Record

NOW_MS = 1_800_000_000_000
RECORD = Record(7, 1_700_000_000_123, b"k", b"v\xff", (("h", b"1"), ("n", None)))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", StartingPoint(StartMode.BEGINNING)),
        ("END", StartingPoint(StartMode.END)),
        ("120", StartingPoint(StartMode.OFFSET, 120)),
        ("-10", StartingPoint(StartMode.BEFORE_END, 10)),
        ("-1h", StartingPoint(StartMode.TIME, NOW_MS - 3_600_000)),
        ("-1.5 h", StartingPoint(StartMode.TIME, NOW_MS - 5_400_000)),
        ("@17", StartingPoint(StartMode.TIME, 17)),
        ("2026-01-31T12:00:00Z", StartingPoint(StartMode.TIME, 1_769_860_800_000)),
        ("2026-01-31T13:00+01:00", StartingPoint(StartMode.TIME, 1_769_860_800_000)),
    ],
)
def test_where_to_begin_is_a_word_an_offset_a_distance_an_age_or_a_time(
    text: str, start: StartingPoint
) -> None:
    assert parse_start(text, NOW_MS) == start


def test_a_time_without_a_zone_is_local() -> None:
    expected = datetime(2026, 1, 31, 12, 0).astimezone(UTC).timestamp() * 1000
    assert parse_start("2026-01-31T12:00", NOW_MS).number == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-1y", "1h", "--1", "@x"])
def test_any_other_beginning_is_a_usage_error_that_lists_the_forms(text: str) -> None:
    with pytest.raises(ConfigurationError, match="beginning, end, an offset"):
        parse_start(text, NOW_MS)


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (StartingPoint(StartMode.BEGINNING), 5),
        (StartingPoint(StartMode.END), 20),
        (StartingPoint(StartMode.BEFORE_END, 3), 17),
        (StartingPoint(StartMode.BEFORE_END, 100), 5),
        (StartingPoint(StartMode.OFFSET, 20), 20),
        (StartingPoint(StartMode.TIME, 1), 9),
    ],
)
def test_the_position_lies_within_what_the_partition_holds(start: StartingPoint, offset: int) -> None:
    assert position(start, 5, 20, at_time=9) == offset


def test_a_time_after_the_last_record_means_the_end() -> None:
    assert position(StartingPoint(StartMode.TIME, 1), 5, 20, at_time=None) == 20


@pytest.mark.parametrize("offset", [4, 21])
def test_an_offset_that_is_not_there_is_refused(offset: int) -> None:
    with pytest.raises(RequestError, match="it holds 5 to 19"):
        position(StartingPoint(StartMode.OFFSET, offset), 5, 20, None)


# ---- printing records


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


# ---- reading lines


def test_a_line_is_a_value_or_a_key_and_a_value() -> None:
    assert RecordLineParser().read(b"a:b") == (None, b"a:b")
    assert RecordLineParser(key=b"k").read(b"v") == (b"k", b"v")
    assert RecordLineParser(separator=b":").read(b"a:b:c") == (b"a", b"b:c")
    assert RecordLineParser(separator=b":", null=b"-").read(b"a:-") == (b"a", None)
    assert RecordLineParser(separator=b":", null=b"-").read(b"-:b") == (None, b"b")
    with pytest.raises(UnreadableLine, match="without the separator ':': abc"):
        RecordLineParser(separator=b":").read(b"abc")


def test_headers_may_repeat_and_may_be_empty() -> None:
    assert parse_headers(["a=1", "a=", "b=x=y"]) == (("a", b"1"), ("a", b""), ("b", b"x=y"))
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        parse_headers(["oops"])


def test_escapes_are_those_people_type() -> None:
    assert unescape(r"\t|\n|\\t|\x") == "\t|\n|\\t|\\x"


def test_a_pause_of_the_input_is_told_and_the_last_line_needs_no_end() -> None:
    readable, writable = os.pipe()
    try:
        lines = read_lines(readable)
        os.write(writable, b"one\r\ntwo\nth")
        assert [next(lines) for _ in range(3)] == [b"one", b"two", None]
        os.write(writable, b"ree\nfour")
        os.close(writable)
        # Whether the closed end counts as a pause is the system's affair.
        assert [line for line in lines if line is not None] == [b"three", b"four"]
    finally:
        os.close(readable)


# ---- tables and numbers


def test_a_plain_table_is_aligned_with_numbers_on_the_right() -> None:
    assert plain_table(("name", "count"), [("a", "1"), ("long name", "1,000")], numbers=("count",)) == [
        "NAME       COUNT",
        "a              1",
        "long name  1,000",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (None, "-"),
    ],
)
def test_sizes_are_told_in_powers_of_1024(count: int | None, text: str) -> None:
    assert size(count) == text


def test_times_that_cannot_be_are_told_as_numbers() -> None:
    assert (time_of(-1), time_of(1 << 62)) == ("-", f"@{1 << 62}")


def test_counts_agree_with_their_nouns() -> None:
    assert (many(1, "record"), many(1200, "record")) == ("1 record", "1,200 records")


# ---- settings


def load(*assignments: str, environ: dict[str, str] | None = None, **options: object) -> dict[str, object]:
    given = {"port": None, "host": None, "data_dir": None, "config_file": None, **options}
    loaded = load_settings(assignments=assignments, environ=environ or {}, **given)  # type: ignore[arg-type]
    return {one.setting.name: one.value for one in loaded.values}


def test_flags_become_settings() -> None:
    values = load("num.partitions=3", port=0, host="0.0.0.0", data_dir="/d")
    assert values["num.partitions"] == 3
    assert values["log.dirs"] == ("/d",)
    assert str(values["listeners"][0]) == "PLAINTEXT://0.0.0.0:0"  # type: ignore[index]


def test_the_file_may_be_named_by_the_environment(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "flint.toml")
    with open(path, "w") as file:
        file.write('"num.partitions" = 9\n')
    assert load(environ={"FLINTMQ_CONFIG": path})["num.partitions"] == 9


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: os.PathLike[str]) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load(config_file=os.path.join(tmp_path, "missing.yaml"))


@pytest.mark.parametrize("text", ["novalue", "=x"])
def test_an_assignment_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        parse_assignment(text, "--set")


def test_topic_settings_take_units_and_refuse_near_misses_but_pass_on_the_unknown() -> None:
    assert parse_topic_settings(["retention.ms=7d", "future.option=x"]) == {
        "retention.ms": "604800000",
        "future.option": "x",
    }
    with pytest.raises(ConfigurationError, match=r"did you mean retention\.ms"):
        parse_topic_settings(["retention.mss=1"])
    with pytest.raises(ConfigurationError, match=r"retention\.ms"):
        parse_topic_settings(["retention.ms=soon"])
