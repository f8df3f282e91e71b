"""What Spark says is wrong with a query, as problems with their places in the file.

Spark knows where in a query's text something is wrong; the text knows where in the file it stands. Invariant: what
Spark raises while a pipeline is compiled becomes a problem of the node that it was raised for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import PySparkException, QueryContextType

from flintmq.errors import FlintError
from flintmq.pipeline.spec.problems import PipelineError, Problem, Rule
from flintmq.pipeline.spec.source_map import Place, place_of

_NOISE: Final = (
    "SQLQueryContextLogger",
    "DataFrameQueryContextLogger",
    "py4j.clientserver",
    "py4j.java_gateway",
)
_LINE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_CONDITION: Final = re.compile(r"^\s*\[[A-Z0-9_.]+\] ")
_END: Final = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_SAID_MAX: Final = 600


def silence_pyspark() -> None:
    """PySpark logs each error that it raises, with whole stacks; they are told here in one line."""
    for name in _NOISE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def as_problems(rule: Rule, what: str, value: object, default: Place) -> Iterator[None]:
    """Errors in the block become a PipelineError; `value` is the text of the file that Spark is given."""
    try:
        yield
    except PipelineError:
        raise
    except PySparkException as error:
        place = place_of(value, default, offset=offset_of(error, str(value)))
        raise PipelineError([Problem(rule, place, f"{what}: {message_of(error)}")]) from error
    except FlintError as error:
        raise PipelineError([Problem(rule, place_of(value, default), f"{what}: {error}")]) from error


def message_of(error: BaseException) -> str:
    """In one line, without Spark's own names for it and without the plan."""
    message = error.getMessage() if isinstance(error, PySparkException) else str(error)
    message = _END.sub("", _CONDITION.sub("", message or str(error)))
    first = message.strip().splitlines()[0] if message.strip() else type(error).__name__
    return first[:_SAID_MAX].rstrip(".")


def offset_of(error: PySparkException, text: str) -> int:
    """Where in a query something is wrong; 0 if Spark does not say."""
    for context in _contexts(error):
        if context.contextType() is QueryContextType.SQL and context.objectType() != "VIEW":
            start = int(context.startIndex())
            if text[start : start + 1]:
                return start
    if found := _LINE.search(str(error)):
        line, column = int(found[1]), int(found[2])
        before = text.split("\n")[: line - 1]
        return sum(len(one) + 1 for one in before) + column
    return 0


def _contexts(error: PySparkException) -> list[Any]:
    try:
        return list(error.getQueryContext() or ())
    except Exception:  # of py4j, where an error has none
        return []
