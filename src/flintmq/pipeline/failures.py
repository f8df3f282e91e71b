"""Why a query failed, in a line: Spark tells it with the stacks of a JVM and of a worker around it. Pure."""

from __future__ import annotations

import re
from typing import Final

from flintmq.pipeline.spark_problems import message_of

_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*?)\s*SQLSTATE", re.DOTALL)
_OURS: Final = re.compile(r"^(?:.*?\b)?flintmq\.[\w.]+: (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(
    r"^(?!py4j\.)((?:[A-Za-z_][\w.]*)(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE
)
_CAUSED: Final = re.compile(r"Caused by: [\w.$]+: (.+)")
_SAID_MAX: Final = 1000


def cause_of(error: BaseException) -> str:
    """The first cause that a user can do something about."""
    said = str(error)
    for pattern in (_RAISED, _OURS, _PYTHON, _CAUSED):
        if found := pattern.findall(said):
            return " ".join(str(found[0 if pattern is _RAISED else -1]).split())[:_SAID_MAX]
    return message_of(error)
