"""Sources as data frames: topics decoded, tables by the files that count, files by Spark.

Invariant: a frame of a stream can be read again and again with the same rows for the same offsets. Tables of the lake
are read as they are when the pipeline starts; files that no commit names are not seen.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from flintmq.arrow.scan.options import parse
from flintmq.errors import ConfigurationError
from flintmq.pipeline.dead_letters.staging import DeadLetterStage
from flintmq.pipeline.security import connection_options
from flintmq.pipeline.sources.decoded_source import DECODING_OPTION, NAME, encode_decoding
from flintmq.pipeline.sources.decoders import value_decoder_of
from flintmq.pipeline.sources.decoding import SourceDecoding
from flintmq.pipeline.spec.model import FilesSource, Pipeline, Source, TableSource, TopicSource
from flintmq.pipeline.spec.origin import ORIGIN
from flintmq.pipeline.spec.parts import DEAD_LETTER, DROP, FAIL, Watermark
from flintmq.settings.durations import normalized_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAW: Final = "raw"


@dataclass(frozen=True, kw_only=True)
class SourceFrame:
    """What all sources of a run have in common."""

    spark: SparkSession
    pipeline: Pipeline
    origin: tuple[str, ...]
    """The columns of the origin that the pipeline asks for."""
    stage: DeadLetterStage | None
    schemas: MutableMapping[str, Any] = field(default_factory=dict)
    """What was inferred, by source; kept with the checkpoint."""

    def frame(self, source: Source) -> DataFrame:
        if isinstance(source, TopicSource):
            found = self.topic(source)
        elif isinstance(source, TableSource):
            found = self._table(source)
        else:
            found = self._files(source)
        return with_watermark(found, source.watermark) if source.stream else found

    def stage_of(self, *, is_stream: bool) -> DeadLetterStage | None:
        """Where bad records of a source or step are told of; None: they are only left out."""
        return self.stage

    def topic(self, source: TopicSource) -> DataFrame:
        options = topic_options(self.pipeline, source)
        if source.decode.format == _RAW:
            return self._raw(source, options)
        checked = parse(options)
        on_error = on_error_of(self.pipeline, source)
        decoding = SourceDecoding(
            source.name,
            value_decoder_of(self.pipeline, source, checked, self.schemas),
            self.origin,
            on_error,
            self.stage_of(is_stream=source.stream) if on_error in (DEAD_LETTER, DROP) else None,
        )
        _check_names(decoding)
        return load_decoded(self.spark, source, options, decoding)

    def _raw(self, source: TopicSource, options: dict[str, str]) -> DataFrame:
        frame = load(self.spark, source, "flintmq", {**options, "includeHeaders": "true"})
        own = {name: F.col(name.removeprefix("_")) for name in self.origin}
        return frame.withColumns(own) if own else frame

    def _table(self, source: TableSource) -> DataFrame:
        path = self.pipeline.path(source.table)
        if not source.stream:
            from flintmq.lake.tables.factory import open_table_at

            opened = open_table_at(path, source.format, source.options)
            state = opened.table.state()
            if state is not None:
                schema = from_arrow_schema(state.schema)
                names = [f"{opened.table.location}/{one.path}" for one in opened.table.files(state)]
                return self.spark.read.schema(schema).parquet(*names) if names else self._empty(schema)
        elif source.format == "parquet":
            schema = self.spark.read.options(**source.options).parquet(path).schema
            return self.spark.readStream.schema(schema).options(**source.options).parquet(path)
        reader: Any = self.spark.readStream if source.stream else self.spark.read
        found: DataFrame = reader.format(source.format).options(**source.options).load(path)
        return found

    def _empty(self, schema: Any) -> DataFrame:
        return self.spark.createDataFrame([], schema)

    def _files(self, source: FilesSource) -> DataFrame:
        reader: Any = self.spark.readStream if source.stream else self.spark.read
        reader = reader.format(source.decode.format).options(**source.decode.options)
        path = self.pipeline.path(source.files)
        if source.decode.schema is not None:
            reader = reader.schema(str(source.decode.schema))
        elif source.stream and source.decode.format == "parquet":
            reader = reader.schema(self.spark.read.parquet(path).schema)
        found: DataFrame = reader.load(path)
        return found


def load(spark: SparkSession, source: TopicSource, format: str, options: dict[str, str]) -> DataFrame:
    reader: Any = spark.readStream if source.stream else spark.read
    found: DataFrame = reader.format(format).options(**options).load()
    return found


def load_decoded(
    spark: SparkSession, source: TopicSource, options: dict[str, str], decoding: SourceDecoding
) -> DataFrame:
    return load(spark, source, NAME, {**options, DECODING_OPTION: encode_decoding(decoding)})


def topic_options(pipeline: Pipeline, source: TopicSource) -> dict[str, str]:
    options = {
        **source.options,
        **connection_options(pipeline, source),
        "subscribe": str(source.topic),
    }
    options.setdefault("kafka.isolation.level", "read_committed")
    if source.start.startswith("{"):
        options["startingOffsets"] = str(source.start)
    elif source.start in ("earliest", "latest"):
        # A table has what is there at the start, whatever `start` says of streams.
        if source.stream or source.start == "earliest":
            options["startingOffsets"] = str(source.start)
    else:
        since = datetime.fromisoformat(source.start)
        options["startingTimestamp"] = str(int(since.timestamp() * 1000))
        options.setdefault("startingOffsetsByTimestampStrategy", "latest" if source.stream else "error")
    if source.stream:
        options["groupId"] = str(source.group or f"{pipeline.name}.{source.name}")
        if source.max_records is not None:
            options["maxOffsetsPerTrigger"] = str(source.max_records)
    return options


def on_error_of(pipeline: Pipeline, source: TopicSource) -> str:
    """What becomes of records that cannot be decoded."""
    if source.decode.otherwise is not None:
        return str(source.decode.otherwise)
    return FAIL if pipeline.dead_letters is None else DEAD_LETTER


def with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return frame
    return frame.withWatermark(str(watermark.column), normalized_duration(watermark.delay))


def without_origin(frame: DataFrame) -> DataFrame:
    """As sinks take it."""
    return frame.drop(*(name for name in frame.columns if name in ORIGIN))


def _check_names(decoding: SourceDecoding) -> None:
    for name in (one.name for one in decoding.values.fields):
        if name.lower() in ORIGIN:
            raise ConfigurationError(
                f"the column {name} has the name of one that says where a record comes from "
                f"({', '.join(ORIGIN)}); put what is decoded into a column of its own, such as `into: body`"
            )
