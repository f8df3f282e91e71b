"""A changed file against the checkpoint of the old one: what may change, and what cannot."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from flintmq.pipeline import Examined, Fingerprint, changes, fingerprints
from flintmq.pipeline.changes import from_json

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
