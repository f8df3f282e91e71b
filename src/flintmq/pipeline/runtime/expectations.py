"""What must be true of a step's rows, and what becomes of those of which it is not.

    frame = expected(frame, step, stage)

Conditions are SQL and run in the JVM. Rows that fail are seldom: for dead letters a worker is sent one text column
that is null for all good rows, and stages the records that the others name. Invariant: a row that comes out meets
every expectation. Of a row that fails several, `fail` comes before `dead-letter`, and that before `drop`. Without a
stage, rows for dead letters are only left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from flintmq.pipeline.dead_letters.staging import (
    DeadLetterBuffer,
    DeadLetterStage,
    RejectedRecord,
    named_records,
)
from flintmq.pipeline.runtime.progress import OBSERVED
from flintmq.pipeline.runtime.spark_problems import as_problems
from flintmq.pipeline.spec.graph import Graph
from flintmq.pipeline.spec.model import DedupStep, Step
from flintmq.pipeline.spec.origin import RECORD
from flintmq.pipeline.spec.parts import DEAD_LETTER, DROP, FAIL, Expectation
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule
from flintmq.pipeline.spec.source_map import place_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SEPARATOR: Final = "\x1f"


def expected(frame: DataFrame, step: Step, graph: Graph, stage: DeadLetterStage | None) -> DataFrame:
    if not step.expect:
        return frame
    conditions = {name: _condition(frame, step, name, one) for name, one in step.expect.items()}
    by_kind = {
        kind: [name for name, one in step.expect.items() if one.otherwise == kind]
        for kind in (FAIL, DEAD_LETTER, DROP)
    }
    if by_kind[DEAD_LETTER]:
        _check_dead_letters(frame, step, by_kind[DEAD_LETTER][0], graph)
    has_origin = set(RECORD) <= set(frame.columns)
    for name in by_kind[FAIL]:
        message = _message(step, name, step.expect[name], has_origin=has_origin)
        frame = frame.where(F.when(conditions[name], F.lit(True)).otherwise(F.raise_error(message)))
    if counted := by_kind[DEAD_LETTER] + by_kind[DROP]:
        counts = [F.count_if(~conditions[name]).alias(name) for name in counted]
        frame = frame.observe(OBSERVED + step.name, *counts)
    if by_kind[DEAD_LETTER] and stage is not None:
        frame = _without_dead(frame, step, {name: conditions[name] for name in by_kind[DEAD_LETTER]}, stage)
    for name in by_kind[DROP] if stage is not None else counted:
        frame = frame.where(conditions[name])
    return frame


def _condition(frame: DataFrame, step: Step, name: str, one: Expectation) -> Column:
    what = f"the expectation `{step.name}.{name}`"
    with as_problems(Rule.SQL, what, one.that, one.place):
        kind = frame.select(F.expr(str(one.that))).schema[0].dataType.simpleString()
    if kind != "boolean":
        place = place_of(one.that, one.place)
        message = f"{what} is a condition, and this gives {kind}"
        raise PipelineError([Problem(Rule.SQL, place, message, "compare it with something")])
    return F.coalesce(F.expr(str(one.that)), F.lit(False))


def _check_dead_letters(frame: DataFrame, step: Step, name: str, graph: Graph) -> None:
    """A dead letter is a record of a topic: it must be known which, and in the batch that has read it."""
    one = step.expect[name]
    place = place_of(one.otherwise, one.place)
    late = [
        node.name
        for node in graph.upstream(step)
        if graph.keeps_state(node) and not isinstance(node, DedupStep)
    ]
    if late:
        message = (
            f"`{step.name}.{name}`: rows of `{late[0]}` come from its state and are no records of a topic"
        )
        hint = "use drop or fail here, or expect it of a step before"
        raise PipelineError([Problem(Rule.DEAD_LETTERS, place, message, hint)])
    missing = [column for column in RECORD if column not in frame.columns]
    if missing:
        message = f"`{step.name}.{name}`: rows do not say which record they come from"
        hint = f"select {', '.join(missing)} too, or *; sinks leave these columns out"
        raise PipelineError([Problem(Rule.DEAD_LETTERS, place, message, hint)])


def _message(step: Step, name: str, one: Expectation, *, has_origin: bool) -> Column:
    said = f"`{step.name}` expects {name}: {one.that}"
    if not has_origin:
        return F.lit(f"{said}; a row does not meet it")
    topic, partition, offset = (F.col(column).cast("string") for column in RECORD)
    return F.concat(
        F.lit(said + "; "), topic, F.lit("-"), partition, F.lit(" offset "), offset, F.lit(" does not")
    )


def _without_dead(
    frame: DataFrame, step: Step, conditions: dict[str, Column], stage: DeadLetterStage
) -> DataFrame:
    failing: Any = F
    for name, condition in conditions.items():
        failing = failing.when(~condition, F.lit(name))
    record = [F.col(column).cast("string") for column in RECORD]
    # Null for the rows that fail nothing, so that next to nothing is sent.
    text = F.when(failing.isNotNull(), F.concat_ws(_SEPARATOR, *record, failing))
    said = {name: f"{name}: {step.expect[name].that}" for name in conditions}
    # As something that is not repeatable it is neither moved below other steps nor done twice.
    staging = _Staging(step.name, said, stage)
    # That it is given an iterator follows from its type hints.
    is_good: Any = arrow_udf(staging.good, "boolean")  # type: ignore[call-overload]
    return frame.where(is_good.asNondeterministic()(text))


@dataclass(frozen=True)
class _Staging:
    """In a worker. Can be pickled."""

    step: str
    said: dict[str, str]
    """By expectation."""
    stage: DeadLetterStage

    def good(self, batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        gathering = DeadLetterBuffer(self.stage)
        for batch in batches:
            if batch.null_count < len(batch):
                gathering.add(named_records([self._dead(text) for text in batch.drop_null().to_pylist()]))
            yield batch.is_null()
        gathering.finish()

    def _dead(self, text: str) -> RejectedRecord:
        topic, partition, offset, name = text.split(_SEPARATOR)
        return RejectedRecord(topic, int(partition), int(offset), self.step, self.said[name])
