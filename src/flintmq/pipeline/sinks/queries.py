"""Sinks as streaming queries: each its own, with its own folder of the checkpoint.

    writer = sink_writer(compiled, sink, checkpoint)
    query = writer.start()

Topics, tables and files are written exactly once, databases at least once. Invariant: no row is written before
`start`, though a table that is not there is made; what cannot be written is a PipelineError at the sink's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flintmq.arrow.write.options import parse_sink
from flintmq.pipeline.runtime.checkpoint import Checkpoint
from flintmq.pipeline.runtime.compiler import Compiled
from flintmq.pipeline.runtime.spark_problems import as_problems
from flintmq.pipeline.security import connection_options
from flintmq.pipeline.sinks.encoding import encoded
from flintmq.pipeline.sinks.lake import LakeSink
from flintmq.pipeline.sinks.topic import TopicSinkBatches
from flintmq.pipeline.sources.frames import without_origin
from flintmq.pipeline.spec.model import ConsoleSink, FilesSink, JdbcSink, Pipeline, Sink, TableSink, TopicSink
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule, did_you_mean
from flintmq.pipeline.spec.source_map import place_of
from flintmq.settings.durations import normalized_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_NOT_YET: Final = "use append or complete, or a step that gives whole rows"


def sink_writer(
    compiled: Compiled, sink: Sink, checkpoint: Checkpoint, *, run: str, once: bool
) -> DataStreamWriter:
    """`run` is the name of a run that is not the usual one."""
    frame = compiled.frame(sink.from_)
    with as_problems(Rule.WRONG_VALUE, f"the sink `{sink.name}`", None, sink.place):
        writer = _writer(compiled, sink, frame, checkpoint, run)
    writer = (
        writer.queryName(f"{compiled.pipeline.name}.{sink.name}")
        .option("checkpointLocation", checkpoint.of_sink(sink.name))
        .outputMode(str(getattr(sink, "mode", "append")))
    )
    return triggered(writer, compiled.pipeline, once=once)


def is_written(pipeline: Pipeline, sink: Sink, checkpoint: Checkpoint, batch: int, *, run: str) -> bool:
    """Whether the sink has a batch that was not committed, and skips it when it comes again."""
    if isinstance(sink, TableSink):
        with as_problems(Rule.WRONG_VALUE, f"the sink `{sink.name}`", sink.table, sink.place):
            return LakeSink(pipeline, sink, checkpoint.id, run=run).has(batch)
    return isinstance(sink, FilesSink) and checkpoint.has_files(pipeline.path(sink.files), batch)


def _writer(
    compiled: Compiled, sink: Sink, frame: DataFrame, checkpoint: Checkpoint, run: str
) -> DataStreamWriter:
    if not frame.isStreaming:
        message = f"`{sink.name}` writes `{sink.from_}`, which is no stream"
        hint = "a pipeline goes on for ever: read one of the sources as a stream"
        raise PipelineError([Problem(Rule.WRONG_VALUE, place_of(sink.from_, sink.place), message, hint)])
    if isinstance(sink, TopicSink):
        return _topic(compiled.pipeline, sink, frame, checkpoint)
    frame = without_origin(frame)
    if isinstance(sink, TableSink):
        if sink.mode == "update":
            _refuse_update(sink)
        lake = LakeSink(compiled.pipeline, sink, checkpoint.id, run=run)
        lake.prepare(frame.schema)
        return frame.writeStream.foreachBatch(lake)
    if isinstance(sink, FilesSink):
        return _files(compiled.pipeline, sink, frame, checkpoint)
    if isinstance(sink, JdbcSink):
        if sink.mode == "update":
            _refuse_update(sink)
        return frame.writeStream.foreachBatch(JdbcBatches(sink))
    return _console(sink, frame)


def _topic(pipeline: Pipeline, sink: TopicSink, frame: DataFrame, checkpoint: Checkpoint) -> DataStreamWriter:
    if sink.key is not None and sink.key.lower() not in (name.lower() for name in frame.columns):
        place = place_of(sink.key, sink.place)
        message = f"`{sink.name}`: `{sink.from_}` has no column `{sink.key}`"
        raise PipelineError([Problem(Rule.COLUMN, place, message, did_you_mean(sink.key, frame.columns))])
    records = encoded(pipeline, sink, frame)
    options = parse_sink(
        {
            **sink.options,
            **connection_options(pipeline, sink),
            "topic": str(sink.topic),
        },
        streaming=True,
    )
    options.check_columns((field.name, field.dataType.simpleString()) for field in records.schema.fields)
    return records.writeStream.foreachBatch(
        TopicSinkBatches(options, f"pipeline-{checkpoint.id}-{sink.name}")
    )


def _files(pipeline: Pipeline, sink: FilesSink, frame: DataFrame, checkpoint: Checkpoint) -> DataStreamWriter:
    path = pipeline.path(sink.files)
    checkpoint.check_files(sink, path)
    writer = frame.writeStream.format(str(sink.format)).options(**sink.options).option("path", path)
    columns = [str(column) for column in sink.partition_by]
    return writer.partitionBy(*columns) if columns else writer


def _console(sink: ConsoleSink, frame: DataFrame) -> DataStreamWriter:
    return frame.writeStream.format("console").option("numRows", sink.console).option("truncate", "false")


def triggered(writer: DataStreamWriter, pipeline: Pipeline, *, once: bool) -> DataStreamWriter:
    if once or pipeline.trigger.run == "available-now":
        return writer.trigger(availableNow=True)
    if pipeline.trigger.every is not None:
        return writer.trigger(processingTime=normalized_duration(pipeline.trigger.every))
    return writer


def _refuse_update(sink: TableSink | JdbcSink) -> None:
    """A file cannot say so; a program can."""
    message = f"`{sink.name}`: rows that replace others cannot be written here yet"
    raise PipelineError([Problem(Rule.WRONG_VALUE, place_of(sink.mode, sink.place), message, _NOT_YET)])


class JdbcBatches:
    """Writes each batch to a table of a database. A batch that is run again after a crash is written again."""

    def __init__(self, sink: JdbcSink) -> None:
        options = {"url": sink.jdbc, "dbtable": sink.into, "user": sink.user, "password": sink.password}
        named = {name: str(value) for name, value in options.items() if value is not None}
        driver = {} if sink.driver is None else {"driver": str(sink.driver)}
        self._options = {**sink.options, **named, **driver}
        self._mode = "overwrite" if sink.mode == "complete" else "append"

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        writer: Any = batch.write.format("jdbc").options(**self._options).mode(self._mode)
        # The table stays as somebody has made it, and only its rows change.
        writer.option("truncate", "true").save()
