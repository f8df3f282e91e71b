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
from flintmq.pipeline.dead_letters.staging import Dead, Stage, named
from flintmq.pipeline.sources.decoders import value_decoder_of
from flintmq.pipeline.sources.decoding import Places, Shaping
from flintmq.pipeline.sources.frames import SourceFrame, load_decoded, otherwise_of, topic_options
from flintmq.pipeline.spec.model import TopicSource
from flintmq.pipeline.spec.parts import DEAD_LETTER, DROP
from flintmq.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUN = "replay"
_PARTITION: Final = "[0-9]{1,9}"
_OFFSET: Final = "[0-9]{1,18}"


@dataclass(frozen=True)
class Wanted:
    """Which letters a source takes. Can be pickled."""

    pipeline: str
    topics: tuple[str, ...]
    steps: tuple[str, ...]
    checkpoint: str = ""
    """The id of the pipeline's own."""
    query: str | None = None
    """That of the sink in this replay; None if it has not begun."""

    def takes(self, told: Mapping[str, str]) -> bool:
        return (
            is_letter(told, pipeline=self.pipeline, checkpoint=self.checkpoint)
            and told["topic"] in self.topics
            and told["step"] in self.steps
            and is_for(told, () if self.query is None else (self.query,))
        )


def is_letter(told: Mapping[str, str], *, pipeline: str, checkpoint: str) -> bool:
    """Whether headers are those of a letter of the pipeline. Anybody may write to a topic."""
    return (
        told.get("pipeline") == pipeline
        and told.get("checkpoint", checkpoint) == checkpoint
        and {"topic", "step"} <= told.keys()
        and re.fullmatch(_PARTITION, told.get("partition", "")) is not None
        and re.fullmatch(_OFFSET, told.get("offset", "")) is not None
    )


def is_for(told: Mapping[str, str], queries: Sequence[str]) -> bool:
    """Whether a letter has failed in one of these queries of a replay, or in the pipeline itself."""
    return REPLAYS not in told or not set(told[REPLAYS].split(",")).isdisjoint(queries)


@dataclass(frozen=True)
class DeadLetterShaping(Shaping):
    wanted: Wanted = Wanted("", (), ())

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().columns, "headers")))

    def placed(self, topic: str, partition: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Places]:
        told = [told_of(headers) for headers in batch.column("headers").to_pylist()]
        chosen = [row for row, one in enumerate(told) if self.wanted.takes(one)]
        return batch.take(pa.array(chosen, pa.int64())), Places(
            pa.array([told[row]["topic"] for row in chosen], pa.string()),
            pa.array([int(told[row]["partition"]) for row in chosen], pa.int32()),
            pa.array([int(told[row]["offset"]) for row in chosen], pa.int64()),
        )

    def staged(self, names: list[Any], records: pa.RecordBatch) -> pa.RecordBatch:
        """By name only: the letter itself says how often it was tried."""
        return named([Dead(*row) for row in zip(*(column.to_pylist() for column in names), strict=True)])


def told_of(headers: Sequence[Mapping[str, Any]] | None) -> dict[str, str]:
    """What the headers of a letter say."""
    return {
        one["key"].removeprefix(PREFIX): (one["value"] or b"").decode("utf-8", "replace")
        for one in headers or ()
        if one["key"].startswith(PREFIX)
    }


@dataclass(frozen=True, kw_only=True)
class DeadLetterReading(SourceFrame):
    steps: tuple[str, ...] = ()
    """Those whose dead letters the sink has missed."""
    checkpoint: str = ""
    query: str | None = None

    def stage_of(self, *, is_stream: bool) -> Stage | None:
        """A table is read whole in every replay: what is bad in it has its letter already."""
        return self.stage if is_stream else None

    def topic(self, source: TopicSource) -> DataFrame:
        if not source.stream:
            return super().topic(source)
        dead_letters = self.pipeline.dead_letters
        assert dead_letters is not None
        topics = tuple(name.strip() for name in source.topic.split(","))
        wanted = Wanted(self.pipeline.name, topics, self.steps, self.checkpoint, self.query)
        of_letters = replace(
            source,
            topic=dead_letters.topic,
            start="earliest",
            group=f"{self.pipeline.name}.{source.name}.{RUN}",
            bootstrap_servers=None,
        )
        options = topic_options(self.pipeline, of_letters)
        if source.decode.format == "raw":
            return self._raw_letters(options, wanted)
        checked = parse(topic_options(self.pipeline, source))
        otherwise = otherwise_of(self.pipeline, source)
        shaping = DeadLetterShaping(
            source.name,
            value_decoder_of(self.pipeline, source, checked, self.schemas),
            self.origin,
            otherwise,
            self.stage if otherwise in (DEAD_LETTER, DROP) else None,
            wanted,
        )
        return load_decoded(self.spark, of_letters, options, shaping)

    def _raw_letters(self, options: dict[str, str], wanted: Wanted) -> DataFrame:
        reader = self.spark.readStream.format("flintmq").options(**options)
        frame = reader.option("includeHeaders", "true").load()
        frame = frame.where(_taken(wanted))
        own = {
            "topic": _told("topic"),
            # Spark may look at what is left out, too.
            "partition": _told("partition").try_cast("int"),
            "offset": _told("offset").try_cast("long"),
            "headers": F.filter("headers", lambda one: ~one["key"].startswith(PREFIX)),
        }
        frame = frame.withColumns(own)
        return frame.withColumns({name: F.col(name.removeprefix("_")) for name in self.origin})


def _taken(wanted: Wanted) -> Any:
    """What `Wanted.takes` says, of the column of headers."""
    checkpoint, replays = _told("checkpoint"), _told(REPLAYS)
    is_for = replays.isNull()
    if wanted.query is not None:
        is_for = is_for | F.array_contains(F.split(replays, ","), wanted.query)
    conditions = (
        F.col("headers").isNotNull(),
        _told("pipeline") == wanted.pipeline,
        checkpoint.isNull() | (checkpoint == wanted.checkpoint),
        _told("topic").isin(*wanted.topics),
        _told("step").isin(*wanted.steps),
        _told("partition").rlike(f"^{_PARTITION}$"),
        _told("offset").rlike(f"^{_OFFSET}$"),
        is_for,
    )
    return reduce(and_, conditions)


def _told(name: str) -> Any:
    found = F.filter("headers", lambda one: one["key"] == PREFIX + name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


class _Told(NamedTuple):
    told: Mapping[str, str]
    letter: DeadLetter


class InDeadLetters:
    """Finds letters by where their records were first, among those that were there when it was first asked."""

    def __init__(
        self, client: ClusterClient, options: SourceOptions, topic: str, *, pipeline: str, checkpoint: str
    ) -> None:
        self._client = client
        self._options = replace(options, fail_on_loss=False, read_committed=True)
        self._topic = topic
        self._pipeline = pipeline
        self._checkpoint = checkpoint

    def find(self, dead: Sequence[Dead]) -> list[DeadLetter]:
        wanted = {(one.topic, one.partition, one.offset) for one in dead}
        found: dict[tuple[str, int, int], list[_Told]] = {}
        for place, wanted_range in self._ranges().items():
            columns = ("key", "value", "headers", "offset")
            for batch in read_range(wanted_range, columns, self._options):
                for row in batch.to_pylist():
                    told = told_of(row["headers"])
                    if not is_letter(told, pipeline=self._pipeline, checkpoint=self._checkpoint):
                        continue
                    first = (told["topic"], int(told["partition"]), int(told["offset"]))
                    if first in wanted:
                        found.setdefault(first, []).append(_Told(told, _letter(row, place, told)))
        return [self._found(one, found) for one in dead]

    def _found(self, dead: Dead, found: Mapping[tuple[str, int, int], Sequence[_Told]]) -> DeadLetter:
        """The last of those that its queries have taken."""
        of_record = found.get((dead.topic, dead.partition, dead.offset), ())
        taken = [one for one in of_record if is_for(one.told, dead.queries)]
        # A record may fail at another step than before; then any letter of it is as good.
        matching = [one for one in taken if one.told["step"] == dead.step] or taken
        if not matching:
            raise ConfigurationError(
                f"the dead letter of {dead.topic}-{dead.partition} offset {dead.offset} is gone from {self._topic}"
            )
        return replace(matching[-1].letter, dead=dead)

    def _ranges(self) -> dict[TopicPartition, OffsetRange]:
        view = self._client.topic(self._topic)
        places = [(self._topic, index) for index in sorted(view.partitions)]
        starts = offsets(self._client, places, EARLIEST)
        ends = offsets(self._client, places, LATEST, read_committed=True)
        return {
            place: OffsetRange(self._topic, view.id, place[1], starts[place], ends[place])
            for place in places
            if ends[place] > starts[place]
        }


def _letter(row: Mapping[str, Any], place: TopicPartition, told: Mapping[str, str]) -> DeadLetter:
    attempt = int(told["attempt"]) if told.get("attempt", "").isdecimal() else 1
    dead = Dead(told["topic"], int(told["partition"]), int(told["offset"]), told["step"], "")
    return DeadLetter(
        dead, place, row["offset"], row["key"], row["value"], row["headers"] or (), attempt=attempt + 1
    )
