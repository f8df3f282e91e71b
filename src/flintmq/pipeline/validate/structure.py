"""What must hold between the fields and the nodes of a pipeline, without looking at any file. Pure.

    problems = list(check(pipeline))

Each check is one function over the pipeline and its graph, in `CHECKS`. Those that need Spark come later, as more of
the same. Invariant: a check takes any pipeline, however wrong, and says each thing once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from flintmq.pipeline.spec.graph import Graph, query_of, readings
from flintmq.pipeline.spec.model import AnyNode, DedupStep, Pipeline, SqlStep, TopicSink, TopicSource
from flintmq.pipeline.spec.parts import DEAD_LETTER
from flintmq.pipeline.spec.problems import Problem, Rule, Severity, did_you_mean, in_order
from flintmq.pipeline.spec.source_map import place_of
from flintmq.pipeline.spec.sql import read_query
from flintmq.pipeline.spec.sql_tokens import SqlError
from flintmq.pipeline.validate.schemas import check_schemas
from flintmq.pipeline.validate.targets import check_targets
from flintmq.pipeline.validate.values import check_values

Check: TypeAlias = Callable[[Pipeline], Iterable[Problem]]
"""More checks for `load`: those that know Spark."""


def check(pipeline: Pipeline, *, broken: Mapping[str, str] | None = None) -> list[Problem]:
    """All that is wrong; `broken` are names in the file that could not be read, and what they are in."""
    graph = Graph(pipeline, broken=broken)
    return in_order(problem for one in CHECKS for problem in one(pipeline, graph))


def _tables(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if graph.find(node.name) is node] + list(graph.broken.values())


def _double_names(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    seen: dict[str, AnyNode] = {}
    for node in graph.nodes:
        first = seen.setdefault(node.name.lower(), node)
        if first is not node:
            where = f" in line {first.place.line}" if first.place.line else ""
            hint = "sources, steps and sinks share their names, in capitals or not; rename one of them"
            yield Problem(Rule.DUPLICATE, node.place, f"there is a `{first.name}` already{where}", hint)


def _unknown_names(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    if not graph.has_all_names:
        return
    for node in graph.nodes:
        for reading in readings(node):
            if graph.find(reading.name) is None and reading.name.lower() not in graph.broken:
                is_sink = any(reading.name == name for name in pipeline.sinks)
                hint = "a sink cannot be read; read what it is made from" if is_sink else ""
                yield Problem(
                    Rule.UNKNOWN_NAME,
                    reading.place,
                    f"there is no source or step `{reading.name}`",
                    hint or did_you_mean(reading.name, _tables(graph)),
                )


def _cycles(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    for cycle in graph.cycles():
        names = [node.name for node in cycle]
        if len(names) == 1:
            yield Problem(
                Rule.CYCLE, cycle[0].place, f"`{names[0]}` reads itself", "read another source or step"
            )
            continue
        way = " reads ".join([*names, names[0]])
        yield Problem(
            Rule.CYCLE,
            cycle[0].place,
            f"steps need each other: {way}",
            "one of them must read something else",
        )


def _unused(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    if not graph.is_whole:
        return  # what is broken may be what needs it
    needed = {id(one) for sink in pipeline.sinks.values() for one in graph.upstream(sink)}
    for node in graph.nodes:
        if id(node) not in needed and graph.find(node.name) is node:
            what = "source" if node.name in pipeline.sources else "step"
            yield Problem(
                Rule.UNUSED,
                node.place,
                f"no sink needs the {what} `{node.name}`: it will not run",
                "read it in a step or a sink, or remove it",
                Severity.WARNING,
            )


def _sql(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    for step in pipeline.steps.values():
        if not isinstance(step, SqlStep):
            continue
        try:
            read_query(step.sql)
        except SqlError as error:
            place = place_of(step.sql, step.place, offset=error.offset)
            yield Problem(Rule.SQL, place, f"the SQL of `{step.name}`: {error}")


def _dead_letters(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    if pipeline.dead_letters is not None:
        return
    hint = "add `dead_letters: {topic: NAME}`, or use drop or fail"
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource) and source.decode.otherwise == DEAD_LETTER:
            place = place_of(source.decode.otherwise, source.decode.place)
            yield Problem(
                Rule.DEAD_LETTERS, place, f"`{source.name}` has dead letters and nowhere to put them", hint
            )
    for step in pipeline.steps.values():
        for name, expectation in step.expect.items():
            if expectation.otherwise == DEAD_LETTER:
                place = place_of(expectation.otherwise, expectation.place)
                message = f"`{step.name}.{name}` has dead letters and nowhere to put them"
                yield Problem(Rule.DEAD_LETTERS, place, message, hint)


def _watermarks(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    hint = "give it a watermark, such as {column: at, delay: 10 minutes}"

    def warning(step: AnyNode, message: str, what_to_do: str) -> Problem:
        return Problem(Rule.NO_WATERMARK, step.place, message, what_to_do, Severity.WARNING)

    for step in pipeline.steps.values():
        if not graph.is_stream(step):
            continue
        if isinstance(step, DedupStep):
            if step.dedup.within is None:
                message = f"`{step.name}` keeps every key for ever"
                yield warning(step, message, "say how long with `within: 10 minutes`")
            elif not graph.has_watermark(step):
                yield warning(
                    step, f"`{step.name}` never forgets a key: `{step.from_}` has no watermark", hint
                )
        query = query_of(step) if isinstance(step, SqlStep) else None
        if not isinstance(step, SqlStep) or query is None:
            continue
        streams = graph.stream_readings(step)
        bare = list(dict.fromkeys(one.name for one in streams if not graph.has_watermark(one)))
        if not bare or step.watermark is not None:
            continue
        if graph.joins_streams(query):
            names = " and ".join(f"`{name}`" for name in bare)
            yield warning(step, f"`{step.name}` joins streams and keeps all of {names}: no watermark", hint)
        elif query.has_window and len(bare) == len({one.name for one in streams}):
            message = f"`{step.name}` never finishes a window: `{bare[0]}` has no watermark"
            yield warning(step, message, hint)


def _loops(pipeline: Pipeline, graph: Graph) -> Iterator[Problem]:
    read = {
        topic.strip(): source.name
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource)
        for topic in source.topic.split(",")
    }
    written = [
        (sink.topic, sink.place, f"`{sink.name}`")
        for sink in pipeline.sinks.values()
        if isinstance(sink, TopicSink)
    ]
    dead = pipeline.dead_letters
    if dead is not None and dead.topic in read:
        yield Problem(
            Rule.LOOP,
            place_of(dead.topic, dead.place),
            f"dead_letters writes to the topic {dead.topic}, which `{read[dead.topic]}` reads: a letter that fails "
            "again goes round for ever",
            "write them to a topic of their own",
        )
    for topic, place, who in written:
        if topic in read:
            yield Problem(
                Rule.LOOP,
                place_of(topic, place),
                f"{who} writes to the topic {topic}, which `{read[topic]}` reads: rows may go round for ever",
                "write to another topic, unless this is what you want",
                Severity.WARNING,
            )


CHECKS: Final[tuple[Callable[[Pipeline, Graph], Iterable[Problem]], ...]] = (
    _double_names,
    _unknown_names,
    _cycles,
    _unused,
    _sql,
    _dead_letters,
    _watermarks,
    _loops,
    check_schemas,
    check_values,
    check_targets,
)
