"""A pipeline's file becomes typed values, and what is wrong in it is told with its place."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintmq.pipeline import (
    DedupStep,
    Examined,
    PipelineError,
    Place,
    Rule,
    SqlStep,
    TopicSink,
    TopicSource,
    Watermark,
    load,
)
from flintmq.pipeline.spec.document import compose
from flintmq.pipeline.spec.problems import Problem
from flintmq.pipeline.spec.reader import SpecReader
from flintmq.pipeline.spec.source_map import SourceFile, place_of
from flintmq.pipeline.validate.structure import check

Examine = Callable[..., Examined]

GOOD = """\
name: orders
sources:
  orders:
    topic: orders
    decode: {format: json, schema: "id long, at timestamp"}
    watermark: {column: at, delay: 10 minutes}
steps:
  big: {sql: select * from orders, expect: {has_id: id is not null}}
  once: {from: big, dedup: {keys: id, within: 5m}}
sinks:
  out: {from: once, topic: out, value: avro, options: {kafka.batch.size: 1000}}
"""


def told(examined: Examined) -> list[tuple[str, int, int]]:
    return [(str(one.rule), one.place.line, one.place.column) for one in examined.problems]


def test_fields_become_attributes_with_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(GOOD.replace("value: avro, ", ""), encoding="utf-8")
    pipeline = load(str(path))
    source = pipeline.sources["orders"]
    assert isinstance(source, TopicSource)
    assert source.start == "earliest"
    assert source.stream
    assert source.watermark == Watermark(column="at", delay="10 minutes")
    big, once, out = pipeline.steps["big"], pipeline.steps["once"], pipeline.sinks["out"]
    assert isinstance(big, SqlStep)
    assert big.expect["has_id"].that == "id is not null"
    assert big.expect["has_id"].otherwise == "fail"
    assert isinstance(once, DedupStep)
    assert once.dedup.keys == ("id",)
    assert isinstance(out, TopicSink)
    assert out.value.format == "json"
    assert out.options == {"kafka.batch.size": "1000"}
    assert pipeline.checkpoint_path == str(tmp_path / ".flint/orders")
    assert [node.name for node in pipeline.order()] == ["orders", "big", "once", "out"]


def test_every_node_and_every_text_knows_its_place(examined: Examine) -> None:
    pipeline = examined(GOOD).pipeline
    assert pipeline is not None
    assert pipeline.steps["once"].place == Place("p.yaml", 9, 3)
    step = pipeline.steps["big"]
    assert isinstance(step, SqlStep)
    assert place_of(step.sql, step.place, offset=14) == Place("p.yaml", 8, 28)
    assert step.expect["has_id"].place == Place("p.yaml", 8, 45)


def test_a_text_of_the_file_is_pickled_without_the_file(examined: Examine) -> None:
    pipeline = examined(GOOD).pipeline
    assert pipeline is not None
    step = pickle.loads(pickle.dumps(pipeline.steps["big"]))
    assert step == pipeline.steps["big"]
    assert type(step.sql) is str


@pytest.mark.parametrize(
    ("text", "rule", "place", "words"),
    [
        (GOOD.replace("watermark:", "watermrk:"), Rule.UNKNOWN_FIELD, (6, 5), "did you mean watermark?"),
        (GOOD.replace("{from: once,", "{form: once,"), Rule.MISSING_FIELD, (11, 8), "needs `from`"),
        (GOOD.replace("topic: orders", "topic: [orders]"), Rule.WRONG_VALUE, (4, 12), "a text, not a list"),
        (GOOD.replace("topic: orders", "topic: yes"), Rule.WRONG_VALUE, (4, 12), 'quotes: "yes"'),
        (GOOD.replace("topic: orders", "topic:"), Rule.WRONG_VALUE, (4, 11), "not nothing"),
        (GOOD.replace("format: json", "format: jsn"), Rule.WRONG_VALUE, (5, 22), "did you mean json?"),
        (GOOD.replace("10 minutes", "10"), Rule.WRONG_VALUE, (6, 36), "write it like 10 seconds"),
        (GOOD.replace("10 minutes", "1 month"), Rule.WRONG_VALUE, (6, 36), "is a time"),
        (GOOD.replace("10 minutes", "99999999 weeks"), Rule.WRONG_VALUE, (6, 36), "at most 36500 days"),
        (
            GOOD.replace("topic: orders", "topic: orders\n    stream: 1"),
            Rule.WRONG_VALUE,
            (5, 13),
            "true or false",
        ),
        (
            GOOD.replace("topic: orders", "topic: o\n    max_records: 0"),
            Rule.WRONG_VALUE,
            (5, 18),
            "from 1 on",
        ),
        (
            GOOD.replace("sql: select * from orders", "sqll: select 1"),
            Rule.MISSING_FIELD,
            (8, 8),
            "did you mean sql?",
        ),
        (GOOD.replace("dedup:", "sql: select 1, dedup:"), Rule.WRONG_VALUE, (9, 9), "`sql` and `dedup`"),
        (
            GOOD.replace("sql: select", "keys: [a], sql: select"),
            Rule.UNKNOWN_FIELD,
            (8, 9),
            "no field `keys`",
        ),
        (GOOD.replace("{sql:", "{from: a, sql:"), Rule.UNKNOWN_FIELD, (8, 9), "those with `python`"),
        (GOOD.replace("  big:", "  b-ig:"), Rule.WRONG_VALUE, (8, 3), "letters, digits and _"),
        (GOOD.replace("  once:", "  big:"), Rule.DUPLICATE, (9, 3), "the first is in line 8"),
        (GOOD.replace("topic: orders", "topic: ${T}"), Rule.ENVIRONMENT, (4, 12), "no T"),
        (GOOD.replace("topic: orders", "topic: a${1}"), Rule.ENVIRONMENT, (4, 13), "`$${`"),
        (GOOD.replace("keys: id", "keys: []"), Rule.WRONG_VALUE, (9, 35), "nothing in it"),
        (GOOD.replace("{kafka.batch.size: 1000}", "[a]"), Rule.WRONG_VALUE, (11, 55), "names and values"),
        ("name: x\nsources: {a: {topic: a}}\nsinks: {}\n", Rule.WRONG_VALUE, (3, 8), "nothing in it"),
        (GOOD.replace("name: orders", "name: .."), Rule.WRONG_VALUE, (1, 7), "no name of a pipeline"),
        ("- a\n", Rule.WRONG_VALUE, (1, 1), "the pipeline has fields"),
        ("", Rule.YAML, (1, 1), "empty"),
        ("a: b: c\n", Rule.YAML, (1, 5), "into quotes"),
        ("a: b\n--- \nc: d\n", Rule.YAML, (2, 1), "one pipeline"),
        ("a:\n\t- b\n", Rule.YAML, (2, 1), "not valid YAML"),
        ("a: \x01\n", Rule.YAML, (1, 4), "character"),
        ("[" * 5000, Rule.YAML, (1, 1), "too deep"),
        ("? [a]\n: b\n", Rule.WRONG_VALUE, (1, 3), "a name belongs here"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_column(
    examined: Examine, text: str, rule: Rule, place: tuple[int, int], words: str
) -> None:
    found = [one for one in examined(text).problems if one.rule is rule]
    assert (found[0].place.line, found[0].place.column) == place
    assert words in f"{found[0].message} {found[0].hint}"
    assert found[0].is_error


def test_all_errors_are_found_at_once(examined: Examine) -> None:
    found = examined(
        """\
        name: x
        nme: y
        sources:
          a: {topic: a, strt: latest}
          b: {tpic: b}
        sinks:
          c: {from: a, console: many}
          d: {console: 1}
          e: {from: nothing, console: 1}
        """
    )
    assert told(found) == [
        ("unknown-field", 2, 1),
        ("unknown-field", 4, 17),
        ("missing-field", 5, 6),
        ("wrong-value", 7, 25),
        ("missing-field", 8, 6),
        ("unknown-name", 9, 13),
    ]


def test_what_is_broken_is_not_also_said_to_be_missing_or_unused(examined: Examine) -> None:
    found = examined(
        """\
        name: x
        sources:
          a: {topic: [a]}
          b: {topic: b}
        steps:
          c: {sql: select * from a join B}
        sinks:
          d: {from: c, console: none}
        """
    )
    assert told(found) == [("wrong-value", 3, 14), ("wrong-value", 8, 25)]


@pytest.mark.parametrize("sources", ["sources: [a]", "sorces: {a: {topic: a}}"])
def test_without_any_sources_no_name_is_said_to_be_missing(examined: Examine, sources: str) -> None:
    found = examined(f"name: x\n{sources}\nsinks: {{b: {{from: a, console: 1}}}}\n")
    assert not found.is_valid
    assert Rule.UNKNOWN_NAME not in {one.rule for one in found.problems}


def test_values_come_from_the_environment(examined: Examine) -> None:
    text = """\
        name: x
        sources: {a: {topic: "${TOPIC}-${STAGE:-test}", max_records: "${MAX}", stream: "${STREAM:-false}"}}
        sinks: {b: {from: a, console: 1}}
        """
    pipeline = examined(text, TOPIC="orders", MAX="500", STAGE="").pipeline
    assert pipeline is not None
    source = pipeline.sources["a"]
    assert isinstance(source, TopicSource)
    assert (source.topic, source.max_records, source.stream) == ("orders-test", 500, False)


def test_a_dollar_can_be_written_twice(examined: Examine) -> None:
    pipeline = examined(
        """\
        name: x
        sources: {a: {topic: a}}
        steps: {s: {sql: "select '$${b}', '$5' from a"}}
        sinks: {b: {from: s, console: 1}}
        """
    ).pipeline
    assert pipeline is not None
    step = pipeline.steps["s"]
    assert isinstance(step, SqlStep)
    assert step.sql == "select '${b}', '$5' from a"


def test_the_error_shows_the_line_and_a_caret(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(
        "name: x\nsources: {a: {topic: a}}\nsinks:\n  b: {from: aa, console: 1}\n", encoding="utf-8"
    )
    with pytest.raises(PipelineError) as caught:
        load(str(path))
    assert str(caught.value).splitlines() == [
        f"{path}:2:11: warning: no sink needs the source `a`: it will not run",
        "  2 | sources: {a: {topic: a}}",
        "    |           ^",
        "  read it in a step or a sink, or remove it",
        f"{path}:4:13: error: there is no source or step `aa`",
        "  4 |   b: {from: aa, console: 1}",
        "    |             ^",
        "  did you mean a?",
    ]
    assert [one.rule for one in caught.value.problems] == [Rule.UNUSED, Rule.UNKNOWN_NAME]


def test_a_long_line_is_shown_around_its_caret(examined: Examine) -> None:
    text = (
        "name: x\nsources: {a: {topic: a, decode: {format: json, schema: '" + "c int, " * 60 + "d itn'}}}\n"
    )
    problem = next(one for one in examined(text).problems if one.rule is Rule.SCHEMA)
    shown, caret = problem.render().splitlines()[1:3]
    assert len(shown) < 120
    assert shown[caret.index("^") :].startswith("c int")


@pytest.mark.parametrize("data", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "p.yaml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(PipelineError, match=r"UTF-8|No such file"):
        load(str(path))


PIECES = st.sampled_from(
    ["", "{", "}", "[", ": ", "\n", "  ", "'", '"', "&x ", "*x", "${", "}", "a", "null", "- ", "#", "|"]
)


@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), PIECES), min_size=1, max_size=6))
def test_whatever_is_in_the_file_is_read_or_told(edits: list[tuple[int, int, str]]) -> None:
    text = GOOD
    for at, size, piece in edits:
        text = text[:at] + piece + text[at + size :]
    source = SourceFile("p.yaml", text)
    node = compose(source)
    problems = [node] if isinstance(node, Problem) else []
    if not isinstance(node, Problem):
        reader = SpecReader(source, {})
        pipeline = reader.pipeline(node)
        problems = reader.problems + ([] if pipeline is None else check(pipeline, broken=reader.broken))
        assert pipeline is not None or problems
    lines = text.split("\n")
    for problem in problems:
        assert problem.message in problem.render()
        assert 1 <= problem.place.column <= len(lines[problem.place.line - 1]) + 1
