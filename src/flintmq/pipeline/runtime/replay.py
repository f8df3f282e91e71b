"""A pipeline run again over what is there already: its dead letters, or its topics from some point on.

    replay_dead_letters(spark, pipeline)
    replay_from(spark, pipeline, "2026-01-31T12:00:00Z", suffix="-again")

Dead letters go through the same steps to the same sinks, each sink getting those that it has missed; what fails again
is a dead letter again, with its attempts counted. A replay from some point on has rows that are there already: so it
writes to topics and tables of other names. Invariant: a replay has a checkpoint of its own, and goes on where it was
stopped; so each letter goes through once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from flintmq.errors import ConfigurationError
from flintmq.pipeline.dead_letters.delivery import DeadLetterDelivery, delivery_of
from flintmq.pipeline.dead_letters.source import RUN, DeadLetterFrame, DeadLetterTopicLookup
from flintmq.pipeline.runtime.checkpoint import Checkpoint
from flintmq.pipeline.runtime.compiler import Compiled
from flintmq.pipeline.runtime.control import located
from flintmq.pipeline.runtime.runner import Run, RunOptions, RunOutcome, carry_out
from flintmq.pipeline.runtime.stateful import keeps_state
from flintmq.pipeline.sources.frames import SourceFrame
from flintmq.pipeline.spec.changes import fingerprints, from_json, starts
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import (
    ConsoleSink,
    FilesSink,
    Pipeline,
    Sink,
    TableSink,
    TopicSink,
    TopicSource,
)
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OTHERS: Final = "choose other sinks with --sink, or other names to write to with --to-suffix"


def replay_dead_letters(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    sinks: Sequence[str] = (),
    suffix: str = "",
    stop: threading.Event | None = None,
    options: RunOptions | None = None,
) -> RunOutcome:
    """`sinks` are those to write to, or all; `suffix` is added to the names of what they write to."""
    if pipeline.dead_letters is None:
        raise ConfigurationError(f"{pipeline.name} has no `dead_letters`")
    chosen = _with_sinks(pipeline, sinks)
    if suffix:
        chosen = replace(chosen, sinks={name: suffixed(one, suffix) for name, one in chosen.sinks.items()})
    elif problems := list(_doubtful(chosen)):
        raise PipelineError(problems)
    asked = replace(options or RunOptions(), once=True)
    folder = f"{located(pipeline.checkpoint_path)}/{RUN}-dead-letters{suffix}"
    left_out = pipeline.sinks.keys() - chosen.sinks.keys()
    run = DeadLetterRun(spark, chosen, stop or threading.Event(), asked, checkpoint=folder, left_out=left_out)
    run.has_own_names = bool(suffix)
    return carry_out(run)


class DeadLetterRun(Run):
    NAME: ClassVar[str] = RUN
    has_own_names = False
    """Whether it writes elsewhere than the pipeline does."""

    def _compiled(self) -> Mapping[str, Compiled]:
        """What Python makes is known only now."""
        found = super()._compiled()
        sinks = self.pipeline.sinks.values()
        late = [
            one for one in sinks if not self.has_own_names and keeps_state(found[one.name].frame(one.from_))
        ]
        if late:
            raise PipelineError(_of_state(one, one.from_) for one in late)
        return found

    @cached_property
    def _owner(self) -> str:
        """The checkpoint whose letters are replayed: its sinks lack what they are about."""
        return Checkpoint.open(self.pipeline).id

    def reading(self, alone: Pipeline) -> Callable[..., SourceFrame]:
        """Each sink has missed letters of its own."""
        graph = Graph(alone)
        (sink,) = alone.sinks.values()
        return partial(
            DeadLetterFrame,
            steps=tuple(node.name for node in graph.upstream(sink)[1:]),
            checkpoint=self._owner,
            query=self._checkpoint.query_id(sink.name),
        )

    def delivery(self) -> AbstractContextManager[DeadLetterDelivery]:
        assert self.pipeline.dead_letters is not None
        topic, name, owner = str(self.pipeline.dead_letters.topic), self.pipeline.name, self._owner
        return delivery_of(
            self.pipeline,
            self._checkpoint,
            owner=owner,
            run=RUN,
            lookup=lambda client, options: DeadLetterTopicLookup(
                client, options, topic, pipeline=name, checkpoint=owner
            ),
        )

    def recover(self, delivery: DeadLetterDelivery) -> None:
        """Nothing: letters that are published before all sinks have read theirs would be read again by some."""

    def deliver(self, delivery: DeadLetterDelivery, sink: str, *, is_last: bool) -> None:
        if is_last and not self._stop.is_set() and sink == list(self.pipeline.sinks)[-1]:
            self._raise_failure()
            delivery.deliver_all(self._progress)


def replay_from(
    spark: SparkSession,
    pipeline: Pipeline,
    start: str,
    *,
    suffix: str,
    sinks: Sequence[str] = (),
    stop: threading.Event | None = None,
    options: RunOptions | None = None,
) -> RunOutcome:
    """From `earliest`, a time, or offsets as `{"topic": {"0": 17}}`, up to what is there now."""
    if not suffix:
        raise ConfigurationError(
            "a replay from some point on writes rows that are there already: "
            "name other topics and tables with --to-suffix, such as --to-suffix=-again"
        )
    chosen = _with_sinks(pipeline, sinks)
    dead_letters = chosen.dead_letters
    again = replace(
        chosen,
        # Another pipeline in every way: its groups, its progress in tables, its dead letters.
        name=chosen.name + suffix,
        checkpoint=f"{located(pipeline.checkpoint_path)}/{RUN}{suffix}",
        sources={name: _started(one, start) for name, one in chosen.sources.items()},
        sinks={name: suffixed(one, suffix) for name, one in chosen.sinks.items()},
        dead_letters=None
        if dead_letters is None
        else replace(dead_letters, topic=str(dead_letters.topic) + suffix),
    )
    _check_start(again, start, suffix)
    asked = replace(options or RunOptions(), once=True)
    left_out = pipeline.sinks.keys() - chosen.sinks.keys()
    return carry_out(Run(spark, again, stop or threading.Event(), asked, left_out=left_out))


def suffixed(sink: Sink, suffix: str) -> Any:
    if isinstance(sink, TopicSink):
        return replace(sink, topic=str(sink.topic) + suffix)
    if isinstance(sink, TableSink):
        return replace(sink, table=str(sink.table).rstrip("/") + suffix)
    if isinstance(sink, FilesSink):
        return replace(sink, files=str(sink.files).rstrip("/") + suffix)
    return sink if isinstance(sink, ConsoleSink) else replace(sink, into=str(sink.into) + suffix)


def _with_sinks(pipeline: Pipeline, names: Sequence[str]) -> Pipeline:
    for name in names:
        if name not in pipeline.sinks:
            raise ConfigurationError(f"there is no sink {name}; there is {', '.join(pipeline.sinks)}")
    chosen = {name: one for name, one in pipeline.sinks.items() if not names or name in names}
    return replace(pipeline, sinks=chosen)


def _doubtful(pipeline: Pipeline) -> Iterator[Problem]:
    """Sinks that a few more records cannot be added to."""
    graph = Graph(pipeline)
    for sink in pipeline.sinks.values():
        state = next((one for one in graph.upstream(sink) if graph.keeps_state(one)), None)
        if state is not None:
            yield _of_state(sink, state.name)
        elif isinstance(sink, FilesSink):
            message = f"`{sink.name}`: Spark lets only one stream write to a folder"
            yield Problem(Rule.CHECKPOINT, sink.place, message, _OTHERS)


def _of_state(sink: Sink, step: str) -> Problem:
    message = f"`{sink.name}` is made from the state of `{step}`, which a replay does not have"
    return Problem(Rule.CHECKPOINT, sink.place, message, _OTHERS)


def _started(source: Any, start: str) -> Any:
    """Other sources than topics are what they are."""
    if not isinstance(source, TopicSource):
        return source
    if not start.startswith("{"):
        _check_time(start)
        return replace(source, start=start, group=None)
    try:
        given = json.loads(start)
        topics = [name.strip() for name in source.topic.split(",")]
        of_source = {name: offsets for name, offsets in given.items() if name in topics}
    except (ValueError, AttributeError) as error:
        raise ConfigurationError(f"--from {start}: {error}") from error
    return replace(source, start=json.dumps(of_source) if of_source else "earliest", group=None)


def _check_start(again: Pipeline, start: str, suffix: str) -> None:
    """A replay that has begun goes on, and not from another point."""
    checkpoint = Checkpoint.open(again)
    before, now = starts(from_json(checkpoint.kept or {})), starts(fingerprints(again))
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            raise ConfigurationError(
                f"--from {start}: the replay to names with {suffix} has begun from {before[name]} and would go on; "
                f"give --from {before[name]} to go on, another --to-suffix to begin anew, or remove "
                f"{checkpoint.url} and what was written"
            )


def _check_time(start: str) -> None:
    if start == "earliest":
        return
    try:
        if datetime.fromisoformat(start).tzinfo is not None:
            return
    except ValueError:
        pass
    raise ConfigurationError(
        f"--from {start}: expected earliest, a time with its zone such as 2026-01-31T12:00:00Z, or offsets such "
        'as {"topic": {"0": 17}}'
    )
