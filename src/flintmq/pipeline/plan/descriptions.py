"""What each node of a pipeline does, in a few short lines for people. Pure. No secret is in them."""

from __future__ import annotations

from textwrap import dedent
from typing import Final

from flintmq.pipeline.spec.declaration import without_credentials
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import (
    AnyNode,
    ConsoleSink,
    DedupStep,
    FilesSink,
    FilesSource,
    JdbcSink,
    Pipeline,
    PythonStep,
    SinkBase,
    SqlStep,
    StateStep,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)
from flintmq.pipeline.spec.parts import DEAD_LETTER, Decode, Encode

_STATE: Final = "keeps state"


def describe(node: AnyNode, graph: Graph) -> list[str]:
    """The most important first."""
    lines = _lines(node)
    if not isinstance(node, SinkBase) and node.watermark is not None:
        lines.append(f"late by up to {node.watermark.delay} ({node.watermark.column})")
    if graph.keeps_state(node):
        lines.append(_STATE)
    if isinstance(node, (SqlStep, PythonStep, DedupStep, StateStep)):
        for name, expectation in node.expect.items():
            lines.append(f"expect {name}: {_one_line(expectation.that)}, else {expectation.otherwise}")
    return lines


def dead_letter_origins(pipeline: Pipeline) -> list[str]:
    """Who may send dead letters, and why."""
    found = []
    for source in pipeline.sources.values():
        if not isinstance(source, TopicSource) or source.decode.format in ("raw", "text"):
            continue
        if source.decode.otherwise in (None, DEAD_LETTER):
            found.append(f"{source.name} ({source.decode.format})")
    for step in pipeline.steps.values():
        names = [name for name, one in step.expect.items() if one.otherwise == DEAD_LETTER]
        if names:
            found.append(f"{step.name} ({', '.join(names)})")
    return found


def describe_run(pipeline: Pipeline) -> str:
    if pipeline.trigger.run == "available-now":
        return "until all is done"
    return f"every {pipeline.trigger.every}" if pipeline.trigger.every else "as soon as there is something"


def _lines(node: AnyNode) -> list[str]:
    match node:
        case TopicSource():
            when = f"from {node.start}" if node.stream else "once, as a table"
            return [f"topic {node.topic}, {when}", *_coding(node.decode)]
        case TableSource():
            return [f"{node.format} table {node.table}", *(["goes on with new rows"] if node.stream else [])]
        case FilesSource():
            said = [
                f"{node.decode.format} files {node.files}",
                *([_one_line(node.decode.schema)] if node.decode.schema else []),
            ]
            return [*said, *(["goes on with new files"] if node.stream else [])]
        case SqlStep():
            return [_sql(node.sql)]
        case PythonStep():
            return [f"{node.python} of {', '.join(node.from_)}"]
        case DedupStep():
            within = f" within {node.dedup.within}" if node.dedup.within else ""
            return [f"one row of each {', '.join(node.dedup.keys)}{within}"]
        case StateStep():
            return [
                f"{node.state.python} for each {', '.join(node.state.keys)}",
                _one_line(node.state.output),
            ]
        case TopicSink():
            key = f"key {node.key}, " if node.key else ""
            return [f"topic {node.topic}", f"{key}value {_coding(node.value)[0]}", *_mode(node.mode)]
        case TableSink():
            parts = [f"partitioned by {', '.join(node.partition_by)}"] if node.partition_by else []
            return [f"{node.format} table {node.table}", *parts, *_mode(node.mode)]
        case FilesSink():
            return [f"{node.format} files in {node.files}"]
        case JdbcSink():
            return [without_credentials(node.jdbc), f"table {node.into}", *_mode(node.mode)]
        case ConsoleSink():
            return [f"{node.console} rows of each batch to the terminal", *_mode(node.mode)]


def _coding(part: Decode | Encode) -> list[str]:
    where = part.schema_file or (part.registry and f"schemas of {without_credentials(part.registry)}")
    first = f"{part.format}, {where}" if where else part.format
    if isinstance(part, Decode) and part.format == "json" and not where and part.schema is None:
        first = f"json, as in {part.sample} records"
    text = part.schema if part.format in ("json", "csv") else None
    return [first] if text is None else [f"{first}: {_one_line(text)}"]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sql(text: str) -> str:
    """In its own lines, without the empty ones."""
    return "\n".join(line.rstrip() for line in dedent(text.expandtabs(2)).splitlines() if line.strip())


def _mode(mode: str) -> list[str]:
    return [] if mode == "append" else [f"mode {mode}"]
