"""A pipeline as data frames of Spark: every source and step that a sink needs, checked, before anything runs.

    compiled = compile_pipeline(session, pipeline, stage=stage, schemas=schemas)
    compiled.frames["big"]

Invariant: nothing runs here, and no query starts unless all of them are right: all problems are told at once, each
with its place in the file. What reads something that is wrong is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flintmq.pipeline.dead_letters.staging import DeadLetterStage
from flintmq.pipeline.runtime.spark_problems import as_problems, silence_pyspark
from flintmq.pipeline.runtime.steps import Steps
from flintmq.pipeline.sources.decoded_source import FlintMQDecoded
from flintmq.pipeline.sources.frames import SourceFrame, on_error_of
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import AnyNode, Pipeline, SinkBase, StateStep, TopicSource
from flintmq.pipeline.spec.origin import asked_for, python_files
from flintmq.pipeline.spec.parts import DEAD_LETTER
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule
from flintmq.pipeline.spec.source_map import place_of
from flintmq.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Compiled:
    pipeline: Pipeline
    spark: SparkSession
    """The run's own session: its views and settings are nobody else's."""
    frames: Mapping[str, DataFrame]
    """Of sources and steps that sinks need, by name."""

    def frame(self, name: str) -> DataFrame:
        return self.frames[name.lower()]


def own_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """One that has the sources, and the settings of the pipeline that a session may have."""
    silence_pyspark()
    made = spark.newSession()
    fresh = made.conf.getAll
    for name, value in spark.conf.getAll.items():
        # What was set since the session began is meant for the pipeline too.
        if fresh.get(name) != value and made.conf.isModifiable(name):
            made.conf.set(name, value)
    register(made)
    made.dataSource.register(FlintMQDecoded)
    if any(isinstance(step, StateStep) for step in pipeline.steps.values()):
        made.conf.set(STATE_STORE, ROCKSDB)
    for name, value in pipeline.spark.items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made


def compile_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    stage: DeadLetterStage | None = None,
    schemas: MutableMapping[str, Any] | None = None,
    reading: Callable[..., SourceFrame] = SourceFrame,
) -> Compiled:
    """PipelineError has all that is wrong. `spark` is a session of `own_session`."""
    graph = Graph(pipeline)
    needed = {id(one) for sink in pipeline.sinks.values() for one in graph.upstream(sink)}
    sources = reading(
        spark=spark,
        pipeline=pipeline,
        origin=asked_for(pipeline, map(_text, python_files(pipeline))),
        stage=stage,
        schemas={} if schemas is None else schemas,
    )
    steps = Steps(spark, pipeline, sources)
    frames: dict[str, DataFrame] = {}
    problems: list[Problem] = []
    for node in graph.order():
        if id(node) not in needed or isinstance(node, SinkBase):
            continue
        if any(one.name.lower() not in frames for one in graph.inputs(node)):
            continue
        try:
            frame = _made(node, sources, steps, frames)
        except PipelineError as error:
            problems += error.problems
            continue
        frame.createOrReplaceTempView(node.name)
        frames[node.name.lower()] = frame
    problems += _other_brokers(pipeline)
    if problems:
        raise PipelineError(problems)
    return Compiled(pipeline, spark, frames)


def _other_brokers(pipeline: Pipeline) -> Iterator[Problem]:
    """A dead letter and how far its topic is go into one transaction, which is of one cluster."""
    expects = any(
        one.otherwise == DEAD_LETTER for step in pipeline.steps.values() for one in step.expect.values()
    )
    for source in pipeline.sources.values():
        if not isinstance(source, TopicSource) or source.bootstrap_servers in (
            None,
            pipeline.bootstrap_servers,
        ):
            continue
        if pipeline.dead_letters is not None and (expects or on_error_of(pipeline, source) == DEAD_LETTER):
            message = f"`{source.name}` is on other brokers than the topic of dead letters"
            hint = "set `otherwise` to drop or fail, or mirror the topic"
            place = place_of(source.bootstrap_servers, source.place)
            yield Problem(Rule.DEAD_LETTERS, place, message, hint)


def _made(node: AnyNode, sources: SourceFrame, steps: Steps, frames: Mapping[str, DataFrame]) -> DataFrame:
    if isinstance(node, SinkBase):
        raise AssertionError("a sink is no table")
    if node.name in sources.pipeline.sources:
        with as_problems(Rule.WRONG_VALUE, f"the source `{node.name}`", None, node.place):
            return sources.frame(sources.pipeline.sources[node.name])
    return steps.frame(sources.pipeline.steps[node.name], frames)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
