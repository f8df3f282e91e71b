"""A changed file against the checkpoint of the old one: what may change, and what cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flintmq.pipeline import Examined, Fingerprint, Pipeline, PipelineError, changes, fingerprints
from flintmq.pipeline.runtime.checkpoint import Checkpoint
from flintmq.pipeline.spec.changes import from_json

Examine = Callable[..., Examined]

BASE = """\
name: x
sources:
  a: {topic: a, decode: json, start: earliest, watermark: {column: at, delay: 1 hour}}
  t: {table: lake/t}
steps:
  plain: {sql: select * from a where x > 1}
  totals: {sql: "select id, count(*) n from plain join t using (id) group by id"}
  once: {from: a, dedup: {keys: [id], within: 1 hour}}
sinks:
  out: {from: totals, topic: out, mode: update}
  db:
    {from: once, jdbc: "jdbc:x://u:secret@h/d;password=secret", into: t, password: secret, options: {token: secret}}
"""


def prints(examined: Examine, text: str) -> dict[str, Fingerprint]:
    found = examined(text)
    assert found.is_valid, found.problems
    assert found.pipeline is not None
    return fingerprints(found.pipeline)


@pytest.mark.parametrize(
    ("old", "new", "node", "allowed"),
    [
        ("x > 1", "x > 2", "plain", True),
        ("count(*) n", "sum(id) n", "totals", False),
        ("keys: [id]", "keys: [id, x]", "once", False),
        ("within: 1 hour}", "within: 2 hours}", "once", False),
        ("topic: a,", "topic: b,", "a", False),
        ("start: earliest", "start: latest", "a", True),
        ("delay: 1 hour", "delay: 2 hours", "a", True),
        ("table: lake/t", "table: lake/u", "t", True),
        ("topic: out,", "topic: other,", "out", True),
        ("mode: update", "mode: complete", "out", False),
        ("from: once, jdbc", "from: plain, jdbc", "db", False),
        ("into: t", "into: u", "db", False),
        ("select * from a where x > 1", "select distinct * from a", "plain", False),
    ],
)
def test_a_changed_field_may_or_may_not(
    examined: Examine, old: str, new: str, node: str, allowed: bool
) -> None:
    found = changes(prints(examined, BASE), prints(examined, BASE.replace(old, new)))
    mine = [one for one in found if one.node == node]
    assert mine
    assert all(one.is_allowed for one in mine) == allowed
    assert all(one.is_allowed for one in found if one.node != node)


@pytest.mark.parametrize(
    ("sql", "keeps"),
    [
        ("select * from a, b where a.id = b.id", True),
        ("select * from a where id in (select id from b)", True),
        ("select * from a where exists (select 1 from b where b.id = a.id)", True),
        ("with w as (select * from a) select x.id from w x join w y on x.id = y.id", True),
        ("select id from a union select id from b", True),
        ("select id from a intersect select id from t", True),
        ("select id from a except select id from t", True),
        ("select kurtosis(id) as k from a", True),
        ("select id from a union all select id from b", False),
        ("select * from (select id from a union all select id from b) join t using (id)", False),
        ("select id from a join t using (id) union all select id from b, t where b.id = t.id", False),
        ("select * from a where id in (select id from t)", False),
        ("select kurtosis(id) as k from t union select 1", False),
    ],
)
def test_a_query_that_keeps_state_is_seen(examined: Examine, sql: str, keeps: bool) -> None:
    text = f"""\
name: x
sources: {{a: {{topic: a, decode: json}}, b: {{topic: b, decode: json}}, t: {{table: lake/t}}}}
steps: {{s: {{sql: "{sql}"}}}}
sinks: {{z: {{from: s, console: 1}}}}
"""
    assert prints(examined, text)["s"].keeps_state == keeps


def test_a_changed_start_says_that_it_does_nothing_to_what_has_begun(examined: Examine) -> None:
    later = BASE.replace("start: earliest", "start: latest")
    (told,) = changes(prints(examined, BASE), prints(examined, later))
    assert told.is_allowed
    assert told.message == (
        'start: "earliest" became "latest"; sinks that have begun go on where they were all the same'
    )
    # A source that only a new sink reads begins where it says.
    other = BASE.replace("  t: {table", "  b: {topic: b, start: earliest}\n  t: {table")
    other = other.replace("sinks:\n", "sinks:\n  old: {from: b, console: 1}\n")
    new = other.replace("  old:", "  new:").replace("b, start: earliest", "b, start: latest")
    found = changes(prints(examined, other), prints(examined, new))
    assert [one.message for one in found if one.node == "b"] == ['start: "earliest" became "latest"']


def test_the_same_file_written_otherwise_is_the_same(examined: Examine) -> None:
    other = BASE.replace("1 hour", "60 minutes")
    other = other.replace("sql: select * from a where x > 1}", 'sql: "select *  from a\\n where x > 1"}')
    other = other.replace("  t: {table: lake/t}\n", "").replace(
        "sources:\n", "sources:\n  t: {table: lake/t}\n"
    )
    first, second = prints(examined, BASE), prints(examined, other)
    assert changes(first, second) == []
    assert {name: one.digest for name, one in first.items()} == {
        name: one.digest for name, one in second.items()
    }


def test_a_fingerprint_survives_json_and_has_no_secret(examined: Examine) -> None:
    first = prints(examined, BASE)
    kept = json.dumps(first)
    assert "secret" not in kept
    again = from_json(json.loads(kept))
    assert again == first
    assert changes(again, prints(examined, BASE.replace("password: secret", "password: other"))) == []


def test_a_checkpoint_goes_on_without_a_field_that_it_had_left_empty(examined: Examine) -> None:
    now = prints(examined, BASE)
    before = now["db"]._replace(fixed={**now["db"].fixed, "keys": []})
    assert changes({**now, "db": before}, now) == []


def test_a_sink_comes_and_goes_with_what_only_it_needs(examined: Examine) -> None:
    less = "\n".join(line for line in BASE.splitlines() if "once" not in line and line != "  db:") + "\n"
    both = prints(examined, BASE), prints(examined, less)
    assert [(one.node, one.is_allowed) for one in changes(*both)] == [("once", True), ("db", True)]
    assert [(one.node, one.is_allowed) for one in changes(both[1], both[0])] == [("once", True), ("db", True)]


def test_a_sink_that_stays_gets_no_new_stream_and_loses_none(examined: Examine) -> None:
    more = BASE.replace(
        "  t: {table", "  b: {topic: b, watermark: {column: timestamp, delay: 1s}}\n  t: {table"
    )
    more = more.replace("from a where x > 1", "from a union all select * from b")
    both = prints(examined, BASE), prints(examined, more)
    assert [(one.node, one.is_allowed) for one in changes(*both)] == [("plain", True), ("b", False)]
    assert [(one.node, one.is_allowed) for one in changes(both[1], both[0])] == [
        ("b", False),
        ("plain", True),
    ]


def test_a_sink_of_another_kind_is_refused_under_the_same_name(examined: Examine) -> None:
    other = BASE.replace("topic: out, mode: update", "table: lake/out, mode: complete")
    found = changes(prints(examined, BASE), prints(examined, other))
    assert [(one.node, one.message, one.is_allowed) for one in found] == [
        ("out", "was a sink topic and is a sink table", False)
    ]


KEPT = """\
name: x
sources:
  o: {topic: o, decode: {format: json, schema: id long}}
  p: {topic: p, decode: {format: json, schema: id long}}
steps:
  t: {sql: "select id, count(*) n from o group by id"}
sinks:
  a: {from: p, topic: a}
  b: {from: t, topic: b, mode: update}
"""
WITHOUT = KEPT.replace("  b: {from: t, topic: b, mode: update}\n", "")


def pipeline_of(examined: Examine, text: str) -> Pipeline:
    found = examined(text)
    assert found.is_valid, found.problems
    assert found.pipeline is not None
    return found.pipeline


def runs(examined: Examine, text: str, *, left_out: tuple[str, ...] = ()) -> list[str]:
    """What a run tells of changes, as far as the checkpoint sees it; its sinks have folders then."""
    pipeline = pipeline_of(examined, text)
    checkpoint = Checkpoint.open(pipeline)
    found = checkpoint.check(pipeline, left_out=left_out)
    checkpoint.save(pipeline)
    for name in pipeline.sinks:
        checkpoint.store.put(f"sinks/{name}/metadata", json.dumps({"id": name}).encode())
    return [f"{one.node}: {one.message}" for one in found]


def refused(examined: Examine, text: str) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        runs(examined, text)
    return [f"{one.place.line} {one.message}; {one.hint}" for one in caught.value.problems]


def test_a_sink_that_comes_back_is_compared_with_what_it_was(examined: Examine) -> None:
    assert runs(examined, KEPT) == []
    assert runs(examined, WITHOUT) == ["b: removed sink topic"]
    # With another run in between, and its step changed while nobody needs it.
    changed = KEPT.replace("count(*) n", "sum(id) n")
    runs(examined, WITHOUT.replace("count(*) n", "sum(id) n"))
    (told,) = refused(examined, changed)
    assert told.startswith("6 `t`: sql: ")
    assert "since the sink `b` was removed; undo it, or give the sink another name" in told
    (told,) = refused(examined, KEPT.replace("b: {from: t", "b: {from: o"))
    assert told.startswith("9 `b`: from:")
    back = runs(examined, KEPT)
    assert "b: back, and goes on where it was: sink topic" in back
    assert not any(one.startswith("b: new") for one in back)
    assert runs(examined, KEPT) == []


def test_a_sink_whose_folder_is_gone_is_new(examined: Examine, tmp_path: Path) -> None:
    runs(examined, KEPT)
    runs(examined, WITHOUT)
    (tmp_path / ".flint/x/sinks/b/metadata").unlink()
    assert runs(examined, KEPT.replace("b: {from: t", "b: {from: o")) == ["b: new sink topic"]


@pytest.mark.parametrize("target", ["topic: b", "table: b", "files: b", "jdbc: 'jdbc:x', into: b"])
def test_a_renamed_sink_does_not_write_all_rows_again(examined: Examine, tmp_path: Path, target: str) -> None:
    text = KEPT.replace("b: {from: t, topic: b, mode: update", f"b: {{from: o, {target}")
    other = text.replace("b: {from: o", "c: {from: o")
    runs(examined, text)
    (told,) = refused(examined, other)
    assert told.startswith(
        "9 `c`: new, and writes to where `b`, which was removed, has written its rows; call it `b`"
    )
    # Not only the first time.
    runs(examined, WITHOUT)
    refused(examined, other)
    assert runs(examined, other.replace("from: o", "from: p")) == ["c: new sink " + target.partition(":")[0]]
    runs(examined, text.replace(": b", ": d").replace("b: {from: o", "e: {from: o"))
    (tmp_path / ".flint/x/sinks/b/metadata").unlink()
    runs(examined, other.replace("c: {", "f: {"))


def test_a_sink_that_a_replay_leaves_out_is_not_removed(examined: Examine) -> None:
    both = KEPT.replace("b: {from: t, topic: b, mode: update}", "b: {from: p, topic: a}")
    first = both.replace("  b: {from: p, topic: a}\n", "")
    runs(examined, first, left_out=("b",))
    assert runs(examined, both.replace("  a: {from: p, topic: a}\n", ""), left_out=("a",)) == [
        "a: removed sink topic",
        "b: new sink topic",
    ]


def test_a_table_that_is_replaced_may_have_another_sink(examined: Examine) -> None:
    text = KEPT.replace("b: {from: t, topic: b, mode: update", "b: {from: t, table: b, mode: complete")
    runs(examined, text)
    runs(examined, text.replace("b: {from: t", "c: {from: t"))
