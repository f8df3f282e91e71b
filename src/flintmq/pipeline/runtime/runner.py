"""A pipeline that runs: one streaming query for each sink, watched until it ends, is stopped, or fails.

    outcome = run(spark, flintmq.pipeline.load("orders.yaml"), once=True)

Everything that can be wrong is told before the first query starts. Invariant: a run that is stopped, killed or fails
is continued by the next one with the same checkpoint as if nothing had happened: each sink has each row once, but for
databases, and each dead letter is in its topic once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from flintmq.errors import FlintError
from flintmq.pipeline.dead_letters.delivery import DeadLetterDelivery, delivery_of
from flintmq.pipeline.dead_letters.staging import DeadLetterStage
from flintmq.pipeline.runtime.checkpoint import Checkpoint
from flintmq.pipeline.runtime.compiler import Compiled, compile_pipeline, own_session
from flintmq.pipeline.runtime.control import Control, control_folder
from flintmq.pipeline.runtime.failure_cause import cause_of
from flintmq.pipeline.runtime.progress import RunProgress, SinkProgress
from flintmq.pipeline.runtime.spark_problems import as_problems
from flintmq.pipeline.sinks.lake import LakeSink
from flintmq.pipeline.sinks.queries import is_written, sink_writer
from flintmq.pipeline.sources.frames import SourceFrame
from flintmq.pipeline.spec.changes import Change
from flintmq.pipeline.spec.model import Pipeline, TableSink
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule
from flintmq.pipeline.spec.source_map import place_of
from flintmq.spark.jvm import has_java_ended, is_unanswered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STOP_TIMEOUT_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.5
_TELL_EVERY_S: Final = 1.0
_JAVA_ENDED: Final = (
    "Spark's Java process has ended: killed, or out of memory (more is given by `spark: {spark.driver.memory: 4g}`); "
    "the next run goes on from the last complete batch"
)


class PipelineFailed(FlintError):
    """A query ended with an error; the message names its sink and the cause."""


class JavaEnded(FlintError):
    """Spark's own process has ended, and nobody has asked for it."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    once: bool = False
    """End when all is done that is there at the start."""
    accepts_new_checkpoint: bool = False
    """Write to tables that this pipeline has written under another checkpoint."""
    stop_timeout_s: float = STOP_TIMEOUT_S
    """How long batches that are under way may take when the run is stopped."""
    on_progress: Callable[[str, RunProgress], None] = lambda state, progress: None
    """Called every moment, with the state of the run."""
    on_changes: Callable[[Sequence[Change]], None] = lambda changes: None
    """Called before the start, with what has changed since the last run."""


@dataclass(frozen=True)
class RunOutcome:
    figures: RunProgress
    was_stopped: bool


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    options: RunOptions | None = None,
) -> RunOutcome:
    """Returns when all is done (`once`, or `trigger: available-now`), or when `stop` is set or asked for."""
    asked = options or RunOptions()
    return carry_out(Run(spark, pipeline, stop or threading.Event(), replace(asked, once=once or asked.once)))


def carry_out(one: Run) -> RunOutcome:
    with Control(one.control_folder, one.pipeline.name) as control:
        return one.carry_out(control)


class Run:
    NAME: ClassVar[str] = ""
    """Tells other ways to run a pipeline from the usual one: in groups, transactions and properties of tables."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        stop: threading.Event,
        options: RunOptions,
        *,
        checkpoint: str | None = None,
        left_out: Collection[str] = (),
    ) -> None:
        """`left_out` are sinks that the pipeline's file has and this run has not."""
        self.pipeline = self._pipeline = pipeline
        self.control_folder = control_folder(pipeline, checkpoint)
        self._spark = spark
        self._control: Control
        self._stop = stop
        self._options = options
        self._left_out = left_out
        self._checkpoint = Checkpoint.open(pipeline, checkpoint)
        self._progress = RunProgress({name: SinkProgress() for name in pipeline.sinks})
        self._queries: dict[str, StreamingQuery] = {}
        self._reported_s = float("-inf")

    def carry_out(self, control: Control) -> RunOutcome:
        """Only who holds the lock may."""
        self._control = control
        error: BaseException | None = None
        was_stopped = False
        try:
            self._report("starting")
            with self.delivery() as delivery:
                self._forget_unfinished(delivery)
                self.recover(delivery)
                self._options.on_changes(self._checkpoint.check(self._pipeline, left_out=self._left_out))
                # Who is stopped before anything has begun does not begin.
                compiled = None if self._stop.is_set() else self._compiled()
                if compiled is None or self._stop.is_set():
                    was_stopped = True
                else:
                    self._start(compiled)
                    was_stopped = self._watch(delivery)
            return RunOutcome(self._progress, was_stopped)
        except Exception as raised:
            # A signal for all processes ends Java too, in the middle of a batch: the next run does that one again.
            if has_java_ended(soon=self._stop.is_set() or is_unanswered(raised)):
                if self._stop.is_set():
                    was_stopped = True
                    return RunOutcome(self._progress, was_stopped)
                error = JavaEnded(_JAVA_ENDED)
                raise error from raised
            error = raised
            raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            if not has_java_ended():
                for query in self._queries.values():
                    query.stop()
            state = "failed" if error is not None else "stopped" if was_stopped else "done"
            self._report(state, error=None if error is None else str(error) or type(error).__name__)

    # ---- before

    def delivery(self) -> AbstractContextManager[DeadLetterDelivery]:
        return delivery_of(self._pipeline, self._checkpoint)

    def _forget_unfinished(self, delivery: DeadLetterDelivery) -> None:
        for name, sink in self._pipeline.sinks.items():
            written = partial(is_written, self._pipeline, sink, self._checkpoint, run=self.NAME)
            delivery.forget_unfinished(name, written)

    def recover(self, delivery: DeadLetterDelivery) -> None:
        """What a run that died has found and not published."""
        delivery.deliver_all(self._progress)

    def _compiled(self) -> Mapping[str, Compiled]:
        """By sink, each in a session of its own: functions of Python that queries share are changed by one query
        while the task of another is being serialized, and Spark's tasks then cannot be read (its HashMap of
        environment variables)."""
        found: dict[str, Compiled] = {}
        problems: list[Problem] = []
        for name, sink in self._pipeline.sinks.items():
            alone = replace(self._pipeline, sinks={name: sink})
            try:
                found[name] = compile_pipeline(
                    own_session(self._spark, alone),
                    alone,
                    stage=DeadLetterStage(self._checkpoint.url, dict(self._checkpoint.store.settings)),
                    schemas=self._checkpoint.schemas,
                    reading=self.reading(alone),
                )
            except PipelineError as error:
                problems += error.problems
        if problems:
            raise PipelineError(problems)
        return found

    def reading(self, alone: Pipeline) -> Callable[..., SourceFrame]:
        """How sources are read, of a pipeline with one sink."""
        return SourceFrame

    def _start(self, compiled: Mapping[str, Compiled]) -> None:
        writers = {}
        problems: list[Problem] = []
        for name, sink in self._pipeline.sinks.items():
            try:
                if isinstance(sink, TableSink):
                    self._check_table(sink)
                writers[name] = sink_writer(
                    compiled[name], sink, self._checkpoint, run=self.NAME, once=self._options.once
                )
            except PipelineError as error:
                problems += error.problems
        if problems:
            raise PipelineError(problems)
        # What was inferred is kept before anybody relies on it.
        self._checkpoint.save(self._pipeline)
        for name, writer in writers.items():
            try:
                self._queries[name] = writer.start()
            except Exception as error:  # Spark checks modes and sinks only now
                sink = self._pipeline.sinks[name]
                message = f"the sink `{name}`: {cause_of(error)}"
                raise PipelineError([Problem(Rule.WRONG_VALUE, sink.place, message)]) from error

    def _check_table(self, sink: TableSink) -> None:
        if self._options.accepts_new_checkpoint:
            return
        with as_problems(Rule.WRONG_VALUE, f"the sink `{sink.name}`", sink.table, sink.place):
            wrong = LakeSink(self._pipeline, sink, self._checkpoint.id, run=self.NAME).check_progress()
        if wrong is not None:
            hint = "remove the table, bring the checkpoint back, or run with --accept-new-checkpoint"
            place = place_of(sink.table, sink.place)
            raise PipelineError([Problem(Rule.CHECKPOINT, place, f"`{sink.name}`: {wrong}", hint)])

    # ---- meanwhile

    def _watch(self, delivery: DeadLetterDelivery) -> bool:
        """Whether it was stopped before it was done."""
        while True:
            is_any_active = any(query.isActive for query in self._queries.values())
            self._look(delivery, is_last=not is_any_active)
            self._raise_failure()
            if not is_any_active:
                return False
            if self._stop.is_set() or self._control.is_stop_wanted:
                self._stop.set()
                self._finish(delivery)
                return True
            self._report("running", now_and_then=True)
            self._stop.wait(_LOOK_EVERY_S)

    def _look(self, delivery: DeadLetterDelivery, *, is_last: bool) -> None:
        for name, query in self._queries.items():
            sink_progress = self._progress.sinks[name]
            if (last := query.lastProgress) is not None:
                told = _as_json(last)
                if int(told["batchId"]) > sink_progress.batch + 1:
                    for progress in query.recentProgress:
                        sink_progress.take(_as_json(progress))
                sink_progress.take(told)
            self.deliver(delivery, name, is_last=is_last)

    def deliver(self, delivery: DeadLetterDelivery, sink: str, *, is_last: bool) -> None:
        """At each look, for each sink."""
        delivery.deliver(sink, self._progress, is_last=is_last)

    def _raise_failure(self) -> None:
        for name, query in self._queries.items():
            if (error := query.exception()) is not None:
                raise PipelineFailed(
                    f"the sink `{name}` of {self._pipeline.name} failed: {cause_of(error)}"
                ) from error

    def _finish(self, delivery: DeadLetterDelivery) -> None:
        """Let batches that are under way come to their end, if that does not take too long."""
        self._report("stopping")
        deadline = time.monotonic() + self._options.stop_timeout_s
        waiting = {name: self._checkpoint.committed(name) + 1 for name in self._queries}
        while waiting and time.monotonic() < deadline:
            for name, batch in list(waiting.items()):
                query = self._queries[name]
                is_between = not query.isActive or not query.status["isTriggerActive"]
                if is_between or self._checkpoint.committed(name) >= batch:
                    query.stop()
                    del waiting[name]
            if waiting:
                self._look(delivery, is_last=False)
                time.sleep(_LOOK_EVERY_S / 10)
        for query in self._queries.values():
            query.stop()
        self._look(delivery, is_last=True)

    def _report(self, state: str, *, error: str | None = None, now_and_then: bool = False) -> None:
        now_s = time.monotonic()
        if now_and_then and now_s - self._reported_s < _TELL_EVERY_S:
            return
        self._reported_s = now_s
        self._control.report(state, self._progress.as_json(), error=error)
        self._options.on_progress(state, self._progress)


def _as_json(progress: Any) -> Mapping[str, Any]:
    text = progress.json if hasattr(progress, "json") else json.dumps(progress)
    found: Mapping[str, Any] = json.loads(text)
    return found
