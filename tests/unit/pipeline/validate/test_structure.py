"""What must hold between the parts of a pipeline is checked before Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.lake.tables.table import Format
from flintmq.pipeline import (
    ConsoleSink,
    Decode,
    Examined,
    Pipeline,
    Problem,
    Rule,
    SqlStep,
    TopicSource,
    Watermark,
    check,
    examine,
    examine_all,
)
from flintmq.pipeline.spec.parts import TABLE_FORMATS
from flintmq.pipeline.spec.source_map import NOWHERE

Examine = Callable[..., Examined]

START = """\
name: x
sources:
  a: {topic: a, decode: {format: json, schema: "id long, at timestamp"}, watermark: {column: at, delay: 1 hour}}
  b: {topic: b, decode: {format: json, schema: "id long, at timestamp"}}
  t: {table: lake/t}
"""


def problems(examined: Examined) -> list[tuple[str, str, str]]:
    return [(str(one.severity), str(one.rule), f"{one.message}; {one.hint}") for one in examined.problems]


def with_steps(steps: str, *, sink: str = "z: {from: s, console: 1}") -> str:
    rest = "\n".join(f"  {name}: {{from: {of}, console: 1}}" for name, of in ("ua", "vb", "wt"))
    return f"{START}steps:\n  s: {steps}\nsinks:\n  {sink}\n{rest}\n"


def test_a_good_file_has_no_problems(examined: Examine) -> None:
    assert problems(examined(with_steps("{sql: select * from a join t}"))) == []


@pytest.mark.parametrize(
    ("steps", "severity", "rule", "words"),
    [
        ("{sql: select * from aa}", "error", "unknown-name", "`aa`; did you mean a?"),
        ("{sql: select * from z}", "error", "unknown-name", "a sink cannot be read"),
        ("{sql: select * from s}", "error", "cycle", "`s` reads itself"),
        ("{sql: select * from r}\n  r: {sql: select * from S join a}", "error", "cycle", "s reads r reads s"),
        ("{sql: select (1 from a}", "error", "sql", "never closed"),
        (
            "{sql: select * from a}\n  A: {sql: select * from a}",
            "error",
            "duplicate",
            "`a` already in line 3",
        ),
        ("{sql: select * from a}\n  r: {sql: select * from s}", "warning", "unused", "step `r`"),
        (
            "{sql: select 1 from a, expect: {e: {that: x, otherwise: dead-letter}}}",
            "error",
            "dead-letters",
            "`s.e`",
        ),
        ("{sql: select * from a join b}", "warning", "no-watermark", "all of `b`"),
        ("{sql: select * from b x join b y}", "warning", "no-watermark", "all of `b`"),
        ('{sql: "select a.id from a, b where a.id = b.id"}', "warning", "no-watermark", "all of `b`"),
        ('{sql: "select id from a where id in (select id from b)"}', "warning", "no-watermark", "all of `b`"),
        ("{sql: \"select window(at, '1 s') from b\"}", "warning", "no-watermark", "`b` has no watermark"),
        ("{from: a, dedup: {keys: id}}", "warning", "no-watermark", "within"),
        ("{from: b, dedup: {keys: id, within: 1s}}", "warning", "no-watermark", "`b` has no watermark"),
    ],
)
def test_steps_are_checked(examined: Examine, steps: str, severity: str, rule: str, words: str) -> None:
    found = problems(examined(with_steps(steps)))
    assert [(one[0], one[1]) for one in found] == [(severity, rule)]
    assert words in found[0][2]


@pytest.mark.parametrize(
    "steps",
    [
        "{sql: select * from b union all select * from a}",
        "{sql: select * from t x join t y}",
        "{sql: \"select window(at, '1 s') from r\"}\n  r: {sql: select * from b, watermark: {column: at, delay: 1s}}",
        "{sql: \"select window(at, '1 s') from a\"}",
        "{sql: \"select window(at, '1 s') from t\"}",
        "{from: t, dedup: {keys: id}}",
        "{sql: select * from catalog.other}",
        "{sql: SELECT * FROM A}",
    ],
)
def test_what_is_fine_is_let_through(examined: Examine, steps: str) -> None:
    assert problems(examined(with_steps(steps))) == []


@pytest.mark.parametrize(
    ("source", "rule", "words"),
    [
        (
            "{topic: c, decode: avro}",
            "schema",
            "avro needs a schema; give `schema` or `schema_file` or `registry`",
        ),
        ("{topic: c, decode: csv}", "schema", "csv needs a schema; give `schema`"),
        ("{topic: c, decode: {format: raw, schema: a int}}", "schema", "raw takes no `schema`"),
        ("{topic: c, decode: {format: json, schema: a int, registry: 'http://r'}}", "schema", "one place"),
        ("{topic: c, decode: {format: json, message: M}}", "schema", "one of protobuf"),
        ("{topic: c, decode: {format: json, subject: M}}", "schema", "one of a registry"),
        ("{topic: c, decode: {format: csv, schema: a itn}}", "schema", "int?"),
        ("{topic: c, decode: {format: json, schema: 'a int, _Offset int'}}", "schema", "into: body"),
        ("{topic: c, decode: {format: json, into: _key}}", "schema", "another name"),
        (
            "{topic: c, decode: {format: json, otherwise: dead-letter}}",
            "dead-letters",
            "dead_letters: {topic",
        ),
        (
            "{topic: c, decode: {format: json, schema: at date}, watermark: {column: att, delay: 1s}}",
            "column",
            "at?",
        ),
        ("{topic: c, watermark: {column: at, delay: 1s}}", "column", "no column `at`"),
        (
            "{topic: c, decode: {format: json, schema: a int}, watermark: {column: timestamp, delay: 1s}}",
            "column",
            "did you mean _timestamp?",
        ),
        (
            "{files: '*', decode: {format: csv, schema: x int}, watermark: {column: at, delay: 1s}}",
            "column",
            "`at`",
        ),
        ("{files: '*', decode: csv, stream: true}", "schema", "needs a schema"),
        (
            "{topic: c, decode: {format: csv, schema: a int, options: {sep: '||'}}}",
            "wrong-value",
            "one character",
        ),
        ("{topic: c, decode: {format: csv, schema: a int, options: {sep: ''}}}", "wrong-value", "not ''"),
        ("{topic: c, decode: {format: csv, schema: a int, options: {quote: ''}}}", "wrong-value", "not ''"),
        (
            "{topic: c, decode: {format: csv, schema: a int, options: {header: true}}}",
            "wrong-value",
            "sep, del",
        ),
        (
            "{topic: c, decode: {format: csv, schema: a int, options: {sep: ';', quote: ';'}}}",
            "wrong-value",
            "what another one is",
        ),
        ("{topic: c, decode: {format: csv, schema: a array<long>}}", "schema", "cannot hold the column `a`"),
        ("{topic: c, decode: {format: avro, registry: 'http://'}}", "wrong-value", "http://localhost:8081"),
        ("{topic: c, decode: {format: avro, registry: 'ftp://h'}}", "wrong-value", "http://localhost:8081"),
        (
            "{topic: c, decode: {format: avro, registry: 'http://h:x'}}",
            "wrong-value",
            "http://localhost:8081",
        ),
        ("{topic: c, decode: {format: avro, schema: '{'}}", "schema", "sources.c.decode: "),
        ('{topic: c, decode: {format: avro, schema: \'{"type": "recrd"}\'}}', "schema", "sources.c.decode: "),
        ("{topic: c, decode: {format: protobuf, schema: 'mesage A {}'}}", "schema", "sources.c.decode: "),
        ("{topic: c, decode: {format: json, schema: '{\"type\": 5}'}}", "schema", "a `type` that is no name"),
        ("{topic: c, decode: {format: json, schema: '{\"type\": '}}", "schema", "is no JSON"),
        ("{files: '*', decode: {format: text, schema: x int}}", "schema", "one column"),
        ("{topic: c, start: now}", "wrong-value", "earliest, latest or a time"),
        ("{topic: c, start: '2026-01-01T00:00:00'}", "wrong-value", "with its zone"),
        ("{topic: c d}", "wrong-value", "no name of a topic"),
        ("{topic: c, bootstrap_servers: 'a:b'}", "wrong-value", "host:port"),
        ("{topic: c, options: {startingOffsets: latest}}", "wrong-value", "use `start`"),
        ("{topic: c, options: {failOnDataLos: 'false'}}", "unknown-field", "did you mean failOnDataLoss?"),
    ],
)
def test_sources_are_checked(examined: Examine, source: str, rule: str, words: str) -> None:
    found = problems(examined(f"name: x\nsources: {{c: {source}}}\nsinks: {{z: {{from: c, console: 1}}}}\n"))
    assert [(one[0], one[1]) for one in found] == [("error", rule)]
    assert words in found[0][2]


@pytest.mark.parametrize(
    "source",
    [
        "{topic: 'c,d', start: '2026-01-01T00:00:00Z', options: {failOnDataLoss: false}}",
        "{topic: c, decode: json, watermark: {column: anything, delay: 1s}}",
        "{topic: c, decode: {format: json, schema: _offset int, into: b}, watermark: {column: b.at, delay: 1s}}",
        '{topic: c, decode: {format: json, schema: \'{"properties": {"a": {}}}\'}, '
        "watermark: {column: a, delay: 1s}}",
        "{topic: c, watermark: {column: timestamp, delay: 1s}}",
        "{topic: c, watermark: {column: _timestamp, delay: 1s}}",
        "{topic: c, decode: text, watermark: {column: _timestamp, delay: 1s}}",
        "{topic: c, decode: {format: json, schema: a int}, watermark: {column: _timestamp, delay: 1s}}",
        "{topic: c, decode: {format: json, schema: 'key string, timestamp timestamp, offset long, topic int'}}",
        "{topic: c, decode: {format: json, into: key}}",
        r"{topic: c, decode: {format: csv, schema: a int, options: {sep: '\t', nullValue: '-'}}}",
        r'{topic: c, decode: {format: csv, schema: a int, options: {sep: "\t", quote: "\""}}}',
        "{topic: c, decode: {format: protobuf, schema: 'message A { int64 id = 1; }'}}",
        "{topic: c, decode: {format: avro, registry: 'http://localhost:8081', subject: c-value}}",
        "{files: '*.parquet', decode: parquet, stream: true}",
    ],
)
def test_good_sources_are_let_through(examined: Examine, source: str) -> None:
    text = f"name: x\nsources: {{c: {source}}}\nsinks: {{z: {{from: c, console: 1}}}}\n"
    assert problems(examined(text)) == []


@pytest.mark.parametrize(
    ("sink", "severity", "rule", "words"),
    [
        ("z: {from: s, topic: a}", "warning", "loop", "`a` reads"),
        ("z: {from: s, topic: out, value: avro}", "error", "schema", "avro needs a schema"),
        (
            "z: {from: s, topic: out, value: {format: json, schema: a int}}",
            "error",
            "schema",
            "takes no `schema`",
        ),
        ("z: {from: s, topic: out, options: {writeIdd: x}}", "error", "unknown-field", "writeId"),
        ("z: {from: s, table: t, mode: update}", "error", "wrong-value", "is append or complete"),
        ("z: {from: s, jdbc: 'jdbc:x', into: t, mode: update}", "error", "wrong-value", "append or complete"),
        ("z: {from: s, topic: out, value: protobuf}", "error", "wrong-value", "json, avro, csv, text or raw"),
        ("z: {from: s, jdbc: 'postgresql://h/d', into: t}", "error", "wrong-value", "jdbc:postgresql"),
        (
            "z: {from: s, console: 1}\ndead_letters: b",
            "error",
            "loop",
            "dead_letters writes to the topic b",
        ),
        (
            "z: {from: s, console: 1}\ndead_letters: {topic: 'b c'}",
            "error",
            "wrong-value",
            "no name of a topic",
        ),
        (
            "z: {from: s, console: 1}\ntrigger: {every: 1s, run: available-now}",
            "error",
            "wrong-value",
            "`every`",
        ),
        ("z: {from: s, console: 1}\nbootstrap_servers: ':'", "error", "wrong-value", "host:port"),
    ],
)
def test_sinks_and_the_rest_are_checked(
    examined: Examine, sink: str, severity: str, rule: str, words: str
) -> None:
    first, _, rest = sink.partition("\n")
    text = with_steps("{sql: select * from a}", sink=first) + rest + "\n"
    found = problems(examined(text))
    assert [(one[0], one[1]) for one in found] == [(severity, rule)]
    assert words in found[0][2]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("files: out", "files: ./out/", "folder of `y` in line 9: rows would be left out"),
        ("files: out", "files: '{here}/out', format: csv", "folder of `y`"),
        ("files: 's3://b/out'", "files: 's3://b/out/'", "folder of `y`"),
        ("table: out", "files: out", "folder of `y`"),
        ("table: out, mode: complete", "table: out, mode: complete", "replaces the rows of the other"),
        ("table: out", "table: out, mode: complete", "replaces the rows of the other"),
        ("jdbc: 'jdbc:x', into: t, mode: complete", "jdbc: 'jdbc:x', into: T", "replaces the rows"),
        ("table: out", "table: out", ""),
        ("files: out", "files: out2", ""),
        ("files: out", "files: 's3://b/out'", ""),
        ("table: out, mode: complete", "table: out2, mode: complete", ""),
        ("jdbc: 'jdbc:x', into: t, mode: complete", "jdbc: 'jdbc:y', into: t, mode: complete", ""),
        ("topic: out, mode: complete", "topic: out, mode: complete", ""),
        ("console: 1, mode: complete", "console: 1, mode: complete", ""),
    ],
)
def test_two_sinks_that_would_spoil_each_other_are_told(
    examined: Examine, tmp_path: Path, one: str, other: str, words: str
) -> None:
    sinks = f"y: {{from: s, {one}}}\n  z: {{from: s, {other.format(here=tmp_path)}}}"
    found = examined(with_steps("{sql: select * from a}", sink=sinks))
    assert [(kind, rule) for kind, rule, _ in problems(found)] == [("error", "duplicate")] * bool(words)
    if words:
        assert words in found.problems[0].message
        place = found.problems[0].place
        assert place.line == 10
        assert place.text[: place.column - 1].rstrip("'").endswith(("files: ", "table: ", "into: "))


def test_python_and_schema_files_are_looked_for_without_importing(examined: Examine, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "raise SystemExit('imported')\n"
        "def sessions(a): ...\n"
        "class Fraud: ...\n"
        "try:\n  from m import other\nexcept E: ...\n",
        encoding="utf-8",
    )
    (tmp_path / "odd.py").write_text("def (", encoding="utf-8")
    (tmp_path / "o.avsc").write_text(
        '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}]}', encoding="utf-8"
    )
    (tmp_path / "odd.avsc").write_text("{}", encoding="utf-8")
    good = """\
        name: x
        sources: {a: {topic: a, decode: {format: avro, schema_file: o.avsc}}}
        steps:
          p: {python: steps.py:sessions, from: a}
          q: {python: steps.py:other, from: [a, p]}
          f: {from: q, state: {python: steps.py:Fraud, keys: id, output: id long}}
        sinks: {z: {from: f, console: 1}}
        """
    assert problems(examined(good)) == []
    for old, new, rule, words in [
        ("o.avsc", "oo.avsc", "missing-file", "did you mean o.avsc?"),
        ("o.avsc", "odd.avsc", "schema", "sources.a.decode: "),
        ("steps.py:sessions", "step.py:sessions", "python", "did you mean steps.py?"),
        ("steps.py:sessions", "steps.py:session", "python", "did you mean sessions?"),
        ("steps.py:sessions", "steps.py:Fraud", "python", "is a class, and should be a function"),
        ("steps.py:sessions", "steps.sessions", "python", "steps.py:sessions"),
        ("steps.py:sessions", "odd.py:x", "python", "not valid Python in line 1"),
        ("steps.py:Fraud", "steps.py:sessions", "python", "should be a class"),
        ("output: id long", "output: id lng", "schema", "long?"),
        ("schema_file: o.avsc", "registry: schemas", "missing-file", "a folder of schemas"),
    ]:
        found = problems(examined(good.replace(old, new)))
        assert [(one[0], one[1]) for one in found] == [("error", rule)], new
        assert words in found[0][2]


def test_the_folder_of_files_must_be_there(examined: Examine, tmp_path: Path) -> None:
    text = "name: x\nsources: {a: {files: data/*.csv, decode: csv}}\nsinks: {z: {from: a, console: 1}}\n"
    assert problems(examined(text))[0][1] == "missing-file"
    (tmp_path / "data").mkdir()
    assert problems(examined(text)) == []


def test_two_files_with_one_checkpoint_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "name: x\nsources: {a: {topic: a}}\nsinks: {z: {from: a, console: 1}}\n"
    (tmp_path / "one.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "two.yaml").write_text(
        text.replace("name: x", "name: y\ncheckpoint: ./.flint/x"), encoding="utf-8"
    )
    (tmp_path / "other.yaml").write_text("checkpoint: .flint/x\n", encoding="utf-8")
    alone = examine("two.yaml")
    assert problems(alone)[0][:2] == ("warning", "checkpoint")
    assert (alone.problems[0].place.line, alone.problems[0].place.column) == (2, 13)
    both = examine_all(["one.yaml", "two.yaml"])
    assert not both[1].is_valid
    assert "one.yaml" in both[1].problems[0].message
    (tmp_path / "one.yaml").unlink()
    assert problems(examine("two.yaml")) == []


def test_more_checks_are_asked_only_when_all_else_is_right(tmp_path: Path) -> None:
    asked: list[str] = []

    def spark(pipeline: Pipeline) -> list[Problem]:
        asked.append(pipeline.name)
        return [Problem(Rule.SQL, NOWHERE, "no such column")]

    path = tmp_path / "p.yaml"
    text = "name: x\nsources: {a: {topic: a}}\nsinks: {z: {from: a, console: 1}}\n"
    path.write_text(text, encoding="utf-8")
    assert [one.message for one in examine(str(path), checks=[spark]).problems] == ["no such column"]
    path.write_text(text.replace("from: a", "from: b"), encoding="utf-8")
    assert not examine(str(path), checks=[spark]).is_valid
    assert asked == ["x"]


def test_a_pipeline_that_a_program_makes_is_checked_alike() -> None:
    source = TopicSource(
        name="a",
        topic="a",
        decode=Decode(format="json", schema="id long"),
        watermark=Watermark(column="at", delay="1 hour"),
    )
    made = Pipeline(
        name="x",
        sources={"a": source},
        steps={"s": SqlStep(name="s", sql="select * from b")},
        sinks={"z": ConsoleSink(name="z", from_="s", console=1)},
    )
    assert {str(one.rule) for one in check(made)} == {"unused", "column", "unknown-name"}
    assert check(Pipeline(name="x", sources={}, sinks={}))[0].rule is Rule.MISSING_FIELD


def test_formats_are_those_of_the_lake() -> None:
    assert set(TABLE_FORMATS) == {str(one) for one in Format}
