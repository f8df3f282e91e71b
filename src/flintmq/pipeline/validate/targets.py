"""Sinks of one pipeline that write to one place, where rows would be lost without a word.

Spark's log of a folder knows batches by their numbers only: of two streams it takes the one's for the other's, and
leaves rows out. A sink with the mode complete removes what others have written. Invariant: several sinks that only
add rows, to a topic or a table, are let through; no file is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import FilesSink, JdbcSink, Pipeline, Sink, TableSink
from flintmq.pipeline.spec.problems import Problem, Rule
from flintmq.pipeline.spec.source_map import place_of

_COMPLETE = "complete"


def check_targets(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    seen: dict[tuple[str, ...], Sink] = {}
    for sink in pipeline.sinks.values():
        target = _target(pipeline, sink)
        if not target:
            continue
        first = seen.setdefault(target, sink)
        if first is sink:
            continue
        where = f" in line {first.place.line}" if first.place.line else ""
        place = place_of(_written(sink), sink.place)
        if isinstance(sink, FilesSink) or isinstance(first, FilesSink):
            message = f"`{sink.name}` writes to the folder of `{first.name}`{where}: rows would be left out"
            hint = "give each its own folder, or combine them with `union all` in a step"
            yield Problem(Rule.DUPLICATE, place, message, hint)
        elif _COMPLETE in (_mode(first), _mode(sink)):
            message = (
                f"`{sink.name}` writes to the table of `{first.name}`{where}: with the mode complete, each "
            )
            hint = "give each its own table, or combine them with `union all` in a step"
            yield Problem(Rule.DUPLICATE, place, message + "batch replaces the rows of the other", hint)


def _target(pipeline: Pipeline, sink: Sink) -> tuple[str, ...]:
    """Where its rows go; empty where others do not matter."""
    if isinstance(sink, JdbcSink):
        return str(sink.jdbc), sink.into.lower()
    if isinstance(sink, (TableSink, FilesSink)):
        path = pipeline.path(_written(sink)).removeprefix("file://")
        return (path.rstrip("/") if "://" in path else os.path.abspath(path),)
    return ()


def _written(sink: Sink) -> str:
    if isinstance(sink, JdbcSink):
        return sink.into
    assert isinstance(sink, (TableSink, FilesSink))
    return sink.files if isinstance(sink, FilesSink) else sink.table


def _mode(sink: Sink) -> str:
    return str(getattr(sink, "mode", ""))
