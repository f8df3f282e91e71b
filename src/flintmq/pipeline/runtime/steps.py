"""Steps as data frames made from others: SQL, functions, deduplication, state.

Invariant: what is wrong with a step is a PipelineError at its place in the file; a step is made of frames that are
right. Temporary views are the tables that SQL names, in a session that belongs to the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from flintmq.pipeline.runtime.expectations import expected
from flintmq.pipeline.runtime.spark_problems import as_problems
from flintmq.pipeline.runtime.user_code import describe_error, load_reference
from flintmq.pipeline.sources.frames import SourceFrame, with_watermark
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import DedupStep, Pipeline, PythonStep, SinkBase, SqlStep, StateStep, Step
from flintmq.pipeline.spec.origin import ORIGIN
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule, did_you_mean
from flintmq.pipeline.spec.source_map import place_of
from flintmq.settings.durations import duration_words, parse_duration_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES: Final = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}


class Steps:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, sources: SourceFrame) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._graph = Graph(pipeline)
        self._sources = sources

    def frame(self, step: Step, frames: Mapping[str, DataFrame]) -> DataFrame:
        """`frames` are those of all that the step reads, by name in lower case."""
        if isinstance(step, SqlStep):
            with as_problems(Rule.SQL, f"the SQL of `{step.name}`", step.sql, step.place):
                made = _with_single_names(step, self._spark.sql(str(step.sql)))
        elif isinstance(step, PythonStep):
            made = self._python(step, frames)
        elif isinstance(step, DedupStep):
            made = self._dedup(step, frames[step.from_.lower()])
        else:
            made = self._state(step, frames[step.from_.lower()])
        if step.watermark is not None and not _has_own_time(step):
            with as_problems(
                Rule.COLUMN, f"the watermark of `{step.name}`", step.watermark.column, step.place
            ):
                made = with_watermark(made, step.watermark)
        stage = self._sources.stage_of(is_stream=self._graph.is_stream(step))
        return expected(made, step, self._graph, stage)

    def _python(self, step: PythonStep, frames: Mapping[str, DataFrame]) -> DataFrame:
        from pyspark.sql import DataFrame

        path = self._pipeline.path(step.python.rpartition(":")[0])
        function = load_reference(step.python, path, step.place)
        try:
            made = function(*(frames[name.lower()] for name in step.from_))
        except Exception as error:  # whatever the user's code raises
            message = f"`{step.name}`: {describe_error(error, path)}"
            raise PipelineError([Problem(Rule.PYTHON, place_of(step.python, step.place), message)]) from error
        if not isinstance(made, DataFrame):
            message = f"`{step.name}`: {step.python} returned {type(made).__name__} and no DataFrame"
            raise PipelineError([Problem(Rule.PYTHON, place_of(step.python, step.place), message)])
        return made

    def _dedup(self, step: DedupStep, frame: DataFrame) -> DataFrame:
        keys = [str(key) for key in step.dedup.keys]
        self._check_columns(step, step.dedup.keys, frame)
        if step.dedup.within is None or not frame.isStreaming:
            return frame.dropDuplicates(keys)
        self._check_within(step)
        with as_problems(Rule.NO_WATERMARK, f"`{step.name}`", step.dedup.within, step.place):
            return frame.dropDuplicatesWithinWatermark(keys)

    def _check_within(self, step: DedupStep) -> None:
        """Spark keeps a key for as long as its watermark is late; that must be at least what is asked for."""
        assert step.dedup.within is not None
        delays = [
            parse_duration_ms(node.watermark.delay) or 0
            for node in self._graph.upstream(step)[1:]
            if not isinstance(node, SinkBase) and node.watermark is not None
        ]
        wanted = parse_duration_ms(step.dedup.within) or 0
        if delays and min(delays) < wanted:
            message = (
                f"`{step.name}` looks back {step.dedup.within}, and the watermark of what it reads is late by "
                f"{duration_words(min(delays))} only"
            )
            hint = "make the watermark's delay as long, or look back less"
            place = place_of(step.dedup.within, step.place)
            raise PipelineError([Problem(Rule.WRONG_VALUE, place, message, hint)])

    def _state(self, step: StateStep, frame: DataFrame) -> DataFrame:
        state = step.state
        path = self._pipeline.path(state.python.rpartition(":")[0])
        processor = load_reference(state.python, path, step.place)
        self._check_columns(step, state.keys, frame)
        with as_problems(Rule.SCHEMA, f"the output of `{step.name}`", state.output, step.place):
            output: Any = StructType.fromDDL(str(state.output))
        own_time = step.watermark.column if step.watermark is not None and _has_own_time(step) else ""
        with as_problems(Rule.PYTHON, f"`{step.name}`", state.python, step.place):
            return frame.groupBy(*(str(key) for key in state.keys)).transformWithState(
                processor(),
                output,
                str(state.mode).capitalize(),
                _TIMES[state.time],
                eventTimeColumnName=str(own_time),
            )

    def _check_columns(self, step: Step, columns: tuple[str, ...], frame: DataFrame) -> None:
        known = frame.columns
        for column in columns:
            if column.lower() not in (name.lower() for name in known):
                raise PipelineError(
                    [
                        Problem(
                            Rule.COLUMN,
                            place_of(column, step.place),
                            f"`{step.name}` has the key `{column}`, which what it reads does not have",
                            did_you_mean(column, known),
                        )
                    ]
                )


def _with_single_names(step: SqlStep, frame: DataFrame) -> DataFrame:
    """Without the origin of both sides of a join, of which there are two; other columns must not be there twice."""
    names = [name.lower() for name in frame.columns]
    twice = list(dict.fromkeys(name for name in names if names.count(name) > 1))
    frame = frame.drop(*(name for name in twice if name in ORIGIN))
    for name in twice:
        if name not in ORIGIN:
            message = f"the SQL of `{step.name}` gives two columns `{name}`"
            hint = "name the columns one by one, or join with `using (…)`"
            raise PipelineError([Problem(Rule.SQL, place_of(step.sql, step.place), message, hint)])
    return frame


def _has_own_time(step: Step) -> bool:
    """Rows that come from timers of events carry the watermark on by themselves."""
    return isinstance(step, StateStep) and step.state.time == "event"
