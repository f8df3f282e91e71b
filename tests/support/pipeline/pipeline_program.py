"""A pipeline in a process of its own, for tests that kill it: `FILE POINT NUMBER`.

The process kills itself, as a crash would, at the NUMBERth time that it comes to POINT, before or after the function
that the point names. Without a point it runs to its end.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from typing import Any, NamedTuple

import flintmq.pipeline
from flintmq.spark.session import session
from support.spark.spark_session import QUICK_JAVA


class Point(NamedTuple):
    module: str
    function: str
    is_after: bool


POINTS = {
    "checkpoint saved": Point("flintmq.pipeline.runtime.checkpoint", "Checkpoint.save", True),
    "rows of a topic written": Point("flintmq.arrow.write.exactly_once", "ExactlyOnce.commit", False),
    "rows of a topic decided": Point("flintmq.arrow.write.ledger", "Ledger.write", True),
    "rows of a topic committed": Point("flintmq.arrow.write.exactly_once", "ExactlyOnce.commit", True),
    "files of a table written": Point("flintmq.pipeline.sinks.lake", "LakeSink._commit", False),
    "files of a table committed": Point("flintmq.pipeline.sinks.lake", "LakeSink._commit", True),
    "dead letters found": Point(
        "flintmq.pipeline.dead_letters.publisher", "DeadLetterPublisher.publish", False
    ),
    "dead letters written": Point("flintmq.arrow.write.side_topic", "commit_group_offsets", False),
    "dead letters committed": Point(
        "flintmq.pipeline.dead_letters.publisher", "DeadLetterPublisher.publish", True
    ),
}


def die_at(point: Point, number: int) -> None:
    owner: Any = importlib.import_module(point.module)
    *parts, name = point.function.split(".")
    for part in parts:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    left = number

    @functools.wraps(original)
    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not point.is_after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def main(file: str, point: str = "", number: str = "1") -> None:
    if point:
        die_at(POINTS[point], int(number))
    spark = session(
        {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "OFF",
        },
        master="local[2,4]",
    )
    flintmq.pipeline.run(spark, flintmq.pipeline.load(file), once=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
