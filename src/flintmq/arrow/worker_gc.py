"""Keeps the garbage collector of Spark's workers from scanning imported modules after every task.

    freeze_imports()        at the beginning of a task

A worker collects garbage after each task, through all that it has imported: that costs more than many a task of a
stream. What exists when a task begins was scanned a moment ago, and stays.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_DAEMON: Final = "pyspark.daemon"
# The first task of a worker imports more, the later ones no longer. Frozen objects are never scanned again, so
# that a cycle which is dropped later stays in memory: these are few, and bounded.
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
