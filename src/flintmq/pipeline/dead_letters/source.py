"""Dead letters as what they were: records of the topics that sources read, read from the topic of dead letters.

A source of a replay reads that topic instead of its own, takes the letters of its pipeline that come from its topics
and that the sink in question has missed, and decodes them anew. Invariant: rows say where their records were first. A
sink takes a record once until it fails there again: a letter that another checkpoint has found, or that has failed in
the replay of other sinks only, is about a record of which the sink has a letter of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F

from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import SourceOptions, parse
from flintmq.arrow.scan.range_reader import read_range
from flintmq.client.admin.topics import EARLIEST, LATEST, offsets
from flintmq.client.cluster import ClusterClient
from flintmq.errors import ConfigurationError
from flintmq.pipeline.dead_letters.publisher import PREFIX, REPLAYS
from flintmq.pipeline.dead_letters.record_lookup import DeadLetter
from flintmq.pipeline.dead_letters.staging import DeadLetterStage, RejectedRecord, named_records
from flintmq.pipeline.sources.decoders import value_decoder_of
from flintmq.pipeline.sources.decoding import RecordOrigins, SourceDecoding
from flintmq.pipeline.sources.frames import SourceFrame, load_decoded, on_error_of, topic_options
from flintmq.pipeline.spec.model import TopicSource
from flintmq.pipeline.spec.parts import DEAD_LETTER, DROP
from flintmq.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUN = "replay"
_PARTITION: Final = "[0-9]{1,9}"
_OFFSET: Final = "[0-9]{1,18}"


@dataclass(frozen=True)
class DeadLetterSelection:
    """Which letters a source takes. Can be pickled."""

    pipeline: str
    topics: tuple[str, ...]
    steps: tuple[str, ...]
    checkpoint: str = ""
    """The id of the pipeline's own."""
    query: str | None = None
    """That of the sink in this replay; None if it has not begun."""

    def admits(self, origin: Mapping[str, str]) -> bool:
        return (
            is_dead_letter(origin, pipeline=self.pipeline, checkpoint=self.checkpoint)
            and origin["topic"] in self.topics
            and origin["step"] in self.steps
            and has_failed_in(origin, () if self.query is None else (self.query,))
        )


def is_dead_letter(origin: Mapping[str, str], *, pipeline: str, checkpoint: str) -> bool:
    """Whether headers are those of a letter of the pipeline. Anybody may write to a topic."""
    return (
        origin.get("pipeline") == pipeline
        and origin.get("checkpoint", checkpoint) == checkpoint
        and {"topic", "step"} <= origin.keys()
        and re.fullmatch(_PARTITION, origin.get("partition", "")) is not None
        and re.fullmatch(_OFFSET, origin.get("offset", "")) is not None
    )


def has_failed_in(origin: Mapping[str, str], queries: Sequence[str]) -> bool:
    """Whether a letter has failed in one of these queries of a replay, or in the pipeline itself."""
    return REPLAYS not in origin or not set(origin[REPLAYS].split(",")).isdisjoint(queries)


@dataclass(frozen=True)
class DeadLetterDecoding(SourceDecoding):
    selection: DeadLetterSelection = DeadLetterSelection("", (), ())

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().columns, "headers")))

    def with_origins(
        self, topic: str, partition: int, batch: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, RecordOrigins]:
        origin = [origin_of(headers) for headers in batch.column("headers").to_pylist()]
        chosen = [row for row, one in enumerate(origin) if self.selection.admits(one)]
        return batch.take(pa.array(chosen, pa.int64())), RecordOrigins(
            pa.array([origin[row]["topic"] for row in chosen], pa.string()),
            pa.array([int(origin[row]["partition"]) for row in chosen], pa.int32()),
            pa.array([int(origin[row]["offset"]) for row in chosen], pa.int64()),
        )

    def staged(self, names: list[Any], records: pa.RecordBatch) -> pa.RecordBatch:
        """By name only: the letter itself says how often it was tried."""
        return named_records(
            [RejectedRecord(*row) for row in zip(*(column.to_pylist() for column in names), strict=True)]
        )


def origin_of(headers: Sequence[Mapping[str, Any]] | None) -> dict[str, str]:
    """What the headers of a letter say."""
    return {
        one["key"].removeprefix(PREFIX): (one["value"] or b"").decode("utf-8", "replace")
        for one in headers or ()
        if one["key"].startswith(PREFIX)
    }


@dataclass(frozen=True, kw_only=True)
class DeadLetterFrame(SourceFrame):
    steps: tuple[str, ...] = ()
    """Those whose dead letters the sink has missed."""
    checkpoint: str = ""
    query: str | None = None

    def stage_of(self, *, is_stream: bool) -> DeadLetterStage | None:
        """A table is read whole in every replay: what is bad in it has its letter already."""
        return self.stage if is_stream else None

    def topic(self, source: TopicSource) -> DataFrame:
        if not source.stream:
            return super().topic(source)
        dead_letters = self.pipeline.dead_letters
        assert dead_letters is not None
        topics = tuple(name.strip() for name in source.topic.split(","))
        selection = DeadLetterSelection(self.pipeline.name, topics, self.steps, self.checkpoint, self.query)
        of_dead_letters = replace(
            source,
            topic=dead_letters.topic,
            start="earliest",
            group=f"{self.pipeline.name}.{source.name}.{RUN}",
            bootstrap_servers=None,
        )
        options = topic_options(self.pipeline, of_dead_letters)
        if source.decode.format == "raw":
            return self._raw_dead_letters(options, selection)
        checked = parse(topic_options(self.pipeline, source))
        on_error = on_error_of(self.pipeline, source)
        decoding = DeadLetterDecoding(
            source.name,
            value_decoder_of(self.pipeline, source, checked, self.schemas),
            self.origin,
            on_error,
            self.stage if on_error in (DEAD_LETTER, DROP) else None,
            selection,
        )
        return load_decoded(self.spark, of_dead_letters, options, decoding)

    def _raw_dead_letters(self, options: dict[str, str], selection: DeadLetterSelection) -> DataFrame:
        reader = self.spark.readStream.format("flintmq").options(**options)
        frame = reader.option("includeHeaders", "true").load()
        frame = frame.where(_is_selected(selection))
        own = {
            "topic": _header("topic"),
            # Spark may look at what is left out, too.
            "partition": _header("partition").try_cast("int"),
            "offset": _header("offset").try_cast("long"),
            "headers": F.filter("headers", lambda one: ~one["key"].startswith(PREFIX)),
        }
        frame = frame.withColumns(own)
        return frame.withColumns({name: F.col(name.removeprefix("_")) for name in self.origin})


def _is_selected(selection: DeadLetterSelection) -> Any:
    """Return `DeadLetterSelection.admits` as a condition on the column of headers."""
    checkpoint, replays = _header("checkpoint"), _header(REPLAYS)
    is_for = replays.isNull()
    if selection.query is not None:
        is_for = is_for | F.array_contains(F.split(replays, ","), selection.query)
    conditions = (
        F.col("headers").isNotNull(),
        _header("pipeline") == selection.pipeline,
        checkpoint.isNull() | (checkpoint == selection.checkpoint),
        _header("topic").isin(*selection.topics),
        _header("step").isin(*selection.steps),
        _header("partition").rlike(f"^{_PARTITION}$"),
        _header("offset").rlike(f"^{_OFFSET}$"),
        is_for,
    )
    return reduce(and_, conditions)


def _header(name: str) -> Any:
    found = F.filter("headers", lambda one: one["key"] == PREFIX + name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


class _LocatedDeadLetter(NamedTuple):
    origin: Mapping[str, str]
    dead_letter: DeadLetter


class DeadLetterTopicLookup:
    """Finds letters by where their records were first, among those that were there when it was first asked."""

    def __init__(
        self, client: ClusterClient, options: SourceOptions, topic: str, *, pipeline: str, checkpoint: str
    ) -> None:
        self._client = client
        self._options = replace(options, fail_on_loss=False, read_committed=True)
        self._topic = topic
        self._pipeline = pipeline
        self._checkpoint = checkpoint

    def find(self, rejected: Sequence[RejectedRecord]) -> list[DeadLetter]:
        selection = {(one.topic, one.partition, one.offset) for one in rejected}
        found: dict[tuple[str, int, int], list[_LocatedDeadLetter]] = {}
        for partition, offset_range in self._ranges().items():
            columns = ("key", "value", "headers", "offset")
            for batch in read_range(offset_range, columns, self._options):
                for row in batch.to_pylist():
                    origin = origin_of(row["headers"])
                    if not is_dead_letter(origin, pipeline=self._pipeline, checkpoint=self._checkpoint):
                        continue
                    first = (origin["topic"], int(origin["partition"]), int(origin["offset"]))
                    if first in selection:
                        found.setdefault(first, []).append(
                            _LocatedDeadLetter(origin, _dead_letter(row, partition, origin))
                        )
        return [self._found(one, found) for one in rejected]

    def _found(
        self, rejected: RejectedRecord, found: Mapping[tuple[str, int, int], Sequence[_LocatedDeadLetter]]
    ) -> DeadLetter:
        """The last of those that its queries have taken."""
        of_record = found.get((rejected.topic, rejected.partition, rejected.offset), ())
        taken = [one for one in of_record if has_failed_in(one.origin, rejected.queries)]
        # A record may fail at another step than before; then any letter of it is as good.
        matching = [one for one in taken if one.origin["step"] == rejected.step] or taken
        if not matching:
            raise ConfigurationError(
                f"the dead letter of {rejected.topic}-{rejected.partition} offset {rejected.offset} is gone from "
                f"{self._topic}"
            )
        return replace(matching[-1].dead_letter, rejected=rejected)

    def _ranges(self) -> dict[TopicPartition, OffsetRange]:
        view = self._client.topic(self._topic)
        partitions = [(self._topic, index) for index in sorted(view.partitions)]
        starts = offsets(self._client, partitions, EARLIEST)
        ends = offsets(self._client, partitions, LATEST, read_committed=True)
        return {
            partition: OffsetRange(self._topic, view.id, partition[1], starts[partition], ends[partition])
            for partition in partitions
            if ends[partition] > starts[partition]
        }


def _dead_letter(row: Mapping[str, Any], partition: TopicPartition, origin: Mapping[str, str]) -> DeadLetter:
    attempt = int(origin["attempt"]) if origin.get("attempt", "").isdecimal() else 1
    rejected = RejectedRecord(
        origin["topic"], int(origin["partition"]), int(origin["offset"]), origin["step"], ""
    )
    return DeadLetter(
        rejected,
        partition,
        row["offset"],
        row["key"],
        row["value"],
        row["headers"] or (),
        attempt=attempt + 1,
    )
