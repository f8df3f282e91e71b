"""Where a row comes from: columns that say so, and who asks for them. Pure.

Every source of a topic can have `_topic`, `_partition`, `_offset`, `_timestamp` and `_key` beside the columns of its
schema. They cost something and are seldom wanted, so a source has those that the pipeline names somewhere, and those
that an expectation needs to say which record did not meet it. Sinks leave them out: `_offset as offset` is how one
gets there. Invariant: a pipeline that names none has none, and its `select *` has the columns of its schemas alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from flintmq.pipeline.spec.model import DedupStep, Pipeline, PythonStep, SqlStep, StateStep, TopicSink
from flintmq.pipeline.spec.parts import DROP

TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY = ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "_key")
RECORD: Final = (TOPIC, PARTITION, OFFSET)
"""Which record it is."""

_NAMED: Final = re.compile(r"(?<![A-Za-z0-9_])(" + "|".join(ORIGIN) + r")(?![A-Za-z0-9_])", re.IGNORECASE)


def asked_for(pipeline: Pipeline, code: Iterable[str] = ()) -> tuple[str, ...]:
    """The columns that sources are to have, in their usual order. `code` are the texts of its Python files."""
    named = {found.lower() for text in (*_texts(pipeline), *code) for found in _NAMED.findall(text)}
    if any(one.otherwise != DROP for step in pipeline.steps.values() for one in step.expect.values()):
        named.update(RECORD)
    return tuple(name for name in ORIGIN if name in named)


def python_files(pipeline: Pipeline) -> tuple[str, ...]:
    """Paths of the files that its steps are in, each once."""
    references = [
        step.python if isinstance(step, PythonStep) else step.state.python
        for step in pipeline.steps.values()
        if isinstance(step, (PythonStep, StateStep))
    ]
    return tuple(dict.fromkeys(pipeline.path(one.rpartition(":")[0]) for one in references))


def _texts(pipeline: Pipeline) -> Iterator[str]:
    for step in pipeline.steps.values():
        if isinstance(step, SqlStep):
            yield step.sql
        elif isinstance(step, DedupStep):
            yield from step.dedup.keys
        elif isinstance(step, StateStep):
            yield from step.state.keys
        for expectation in step.expect.values():
            yield expectation.that
    for node in (*pipeline.sources.values(), *pipeline.steps.values()):
        if node.watermark is not None:
            yield node.watermark.column
    for sink in pipeline.sinks.values():
        if isinstance(sink, TopicSink) and sink.key is not None:
            yield sink.key
