"""Why a query failed, in a line: Spark tells it with the stacks of a JVM and of a worker around it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from flintmq.pipeline.runtime.spark_problems import message_of

_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)\s*SQLSTATE", re.DOTALL)
_OURS: Final = re.compile(r"^(?:.*?\b)?flintmq\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(
    r"^(?!py4j\.|org\.apache\.spark\.)((?:[A-Za-z_][\w.]*)(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE
)
_JAVA: Final = re.compile(r"^: ((?!org\.apache\.spark\.)[\w.$]+: .+)$", re.MULTILINE)
"""What py4j was told by Java, below its own line."""
_CAUSED: Final = re.compile(r"Caused by: [\w.$]+: (.+)")
_QUERY: Final = re.compile(r"^Query \[.*?\] terminated with exception: ")
_PACKAGE: Final = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")
_HINTS: Final = (
    (
        re.compile(r"No suitable driver|ClassNotFoundException: "),
        "Spark has no such class: give it the jar with `spark: {spark.jars: PATH}`, and a driver's class with "
        "`driver`",
    ),
)
_SAID_MAX: Final = 1000
_CAUSES_MAX: Final = 20


def cause_of(error: BaseException) -> str:
    """The first cause that a user can do something about."""
    for one in _causes(error):
        if found := _found(str(one)):
            return found
    return _QUERY.sub("", message_of(error))


def _found(message: str) -> str:
    """In what one error says; empty if there is nothing but Spark's own words."""
    for pattern in (_RAISED, _OURS, _PYTHON, _JAVA, _CAUSED):
        if found := pattern.findall(message):
            cause = " ".join(str(found[0 if pattern is _RAISED else -1]).split())[:_SAID_MAX]
            return _with_hint(_PACKAGE.sub("", cause) if pattern is _JAVA else cause)
    return ""


def _with_hint(cause: str) -> str:
    return "; ".join((cause, *(hint for pattern, hint in _HINTS if pattern.search(cause))))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is behind it: PySpark keeps the causes that Java knows in an attribute of its own."""
    following: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if following is None:
            return
        yield following
        following = getattr(following, "_cause", None) or following.__cause__
