"""Spark's workers look for garbage after every task, through all that they have imported: that costs more than many a
task of a stream. What is there when a task begins was looked through a moment ago, and stays.

    settle()        at the beginning of a task
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
# The first task of a worker imports more, the later ones no longer. What is settled is never looked through again, so
# that a cycle which is let go of later stays in memory: these are few, and bounded.
_TIMES_MAX: Final = 2

_times = 0


def freeze_imports() -> None:
    global _times
    if _times >= _TIMES_MAX or not _is_worker():
        return
    _times += 1
    gc.freeze()


def _is_worker() -> bool:
    """Not in a process that somebody else has made, who may count on the collector."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _DAEMON
