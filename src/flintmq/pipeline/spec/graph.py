"""Who reads whom: order, cycles, and what follows for streams, state and watermarks. Pure.

Invariant: a Graph can be made of any pipeline, also of a wrong one: names that are not there lead nowhere, and nodes
of a cycle come last in the order. SQL's names mean the same in capitals and in small letters, as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from flintmq.pipeline.spec.model import (
    AnyNode,
    DedupStep,
    FilesSource,
    Pipeline,
    PythonStep,
    SinkBase,
    SqlStep,
    StateStep,
    TableSource,
    TopicSource,
)
from flintmq.pipeline.spec.source_map import Place, place_of
from flintmq.pipeline.spec.sql import SqlQuery, read_query
from flintmq.pipeline.spec.sql_tokens import SqlError

_TABLES: Final = ("sources", "steps")


@dataclass(frozen=True, slots=True)
class Reading:
    """One mention of a source or step."""

    name: str
    place: Place


def query_of(step: SqlStep) -> SqlQuery | None:
    """None if it is no SQL."""
    try:
        return read_query(step.sql)
    except SqlError:
        return None


def readings(node: AnyNode) -> Iterator[Reading]:
    """What a node reads by name, in the order in which it says so; twice what it names twice."""
    if isinstance(node, SqlStep):
        query = query_of(node)
        for table in query.tables if query else ():
            if not table.is_qualified:
                yield Reading(table.name, place_of(node.sql, node.place, offset=table.offset))
    elif isinstance(node, PythonStep):
        for name in node.from_:
            yield Reading(str(name), place_of(name, node.place))
    elif isinstance(node, (DedupStep, StateStep, SinkBase)):
        yield Reading(str(node.from_), place_of(node.from_, node.place))


class Graph:
    def __init__(self, pipeline: Pipeline, *, broken: Mapping[str, str] | None = None) -> None:
        """`broken` are names in the file that could not be read, and what they are in."""
        self.broken = {name.lower(): name for name, group in (broken or {}).items() if group in _TABLES}
        self.is_whole = not broken
        self.has_all_names = not any(
            group in _TABLES and name == group for name, group in (broken or {}).items()
        )
        self.nodes = pipeline.nodes()
        # A sink has no readers, and cannot be named. The first of two things of one name counts.
        self._tables: dict[str, AnyNode] = {}
        for table in (*pipeline.sources.values(), *pipeline.steps.values()):
            self._tables.setdefault(table.name.lower(), table)
        self._inputs: dict[int, tuple[AnyNode, ...]] = {}
        for node in self.nodes:
            found = [self.find(reading.name) for reading in readings(node)]
            unique = {id(one): one for one in found if one is not None}
            self._inputs[id(node)] = tuple(unique.values())

    def find(self, name: str) -> AnyNode | None:
        """A source or step by its name."""
        return self._tables.get(name.lower())

    def inputs(self, node: AnyNode) -> tuple[AnyNode, ...]:
        return self._inputs[id(node)]

    def order(self) -> tuple[AnyNode, ...]:
        done: dict[int, AnyNode] = {}
        waiting = list(self.nodes)
        while waiting:
            ready = [one for one in waiting if all(id(read) in done for read in self.inputs(one))]
            if not ready:
                break
            done[id(ready[0])] = ready[0]
            waiting.remove(ready[0])
        return (*done.values(), *waiting)

    def upstream(self, node: AnyNode) -> tuple[AnyNode, ...]:
        """All that a node needs, itself first, each once."""
        found = {id(node): node}
        waiting = [node]
        while waiting:
            for one in self.inputs(waiting.pop(0)):
                if id(one) not in found:
                    found[id(one)] = one
                    waiting.append(one)
        return tuple(found.values())

    def cycles(self) -> list[tuple[AnyNode, ...]]:
        """Each with its nodes in the order in which they read each other; a node is in one at most."""
        found: list[tuple[AnyNode, ...]] = []
        seen: set[int] = set()
        for node in self.nodes:
            if id(node) not in seen and (cycle := self._way_back(node)):
                found.append(cycle)
                seen.update(map(id, cycle))
        return found

    def _way_back(self, node: AnyNode) -> tuple[AnyNode, ...]:
        """The shortest way from a node's inputs to itself."""
        ways: list[tuple[AnyNode, ...]] = [(node,)]
        seen: set[int] = set()
        for way in ways:
            for one in self.inputs(way[-1]):
                if one is node:
                    return way
                if id(one) not in seen:
                    seen.add(id(one))
                    ways.append((*way, one))
        return ()

    def is_stream(self, node: AnyNode) -> bool:
        sources = (TopicSource, TableSource, FilesSource)
        return any(isinstance(one, sources) and one.stream for one in self.upstream(node))

    def has_watermark(self, node: AnyNode) -> bool:
        """Also where Python may have set one: what it does is not known."""
        return any(
            isinstance(one, PythonStep) or (not isinstance(one, SinkBase) and one.watermark is not None)
            for one in self.upstream(node)
        )

    def stream_readings(self, step: SqlStep) -> list[AnyNode]:
        """The streams that a query names, twice what it names twice."""
        found = [self.find(reading.name) for reading in readings(step)]
        return [one for one in found if one is not None and self.is_stream(one)]

    def joins_streams(self, query: SqlQuery) -> bool:
        """Whether a SELECT reads two streams, or one of them twice, other than by UNION ALL."""
        return any(sum(map(self._has_stream, block)) > 1 for block in query.combined)

    def _has_stream(self, names: Iterable[str]) -> bool:
        found = map(self.find, names)
        return any(one is not None and self.is_stream(one) for one in found)

    def keeps_state(self, node: AnyNode) -> bool:
        """Whether a checkpoint has state of this very node."""
        if not self.is_stream(node):
            return False
        if isinstance(node, SqlStep):
            query = query_of(node)
            return query is not None and (
                query.has_aggregate or query.has_window or self.joins_streams(query)
            )
        return isinstance(node, (DedupStep, StateStep))
