"""Spark for a demo: its scratch files in the demo's folder, its words in a log file, and its Java gone at the end.

    with spark_session(folder) as spark: …

Invariant: when the block is over, the Java process that was started has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from flintmq.demo.folder import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER: Final = "local[2]"


@contextmanager
def spark_session(folder: Folder) -> Iterator[SparkSession]:
    from flintmq.spark.jvm import own_java
    from flintmq.spark.session import session

    os.makedirs(folder.spark, exist_ok=True)
    with own_java():
        with _heard_by(folder.log):
            spark = session(
                {
                    "spark.driver.memory": "1g",
                    "spark.sql.shuffle.partitions": 1,
                    "spark.sql.session.timeZone": "UTC",
                    "spark.sql.warehouse.dir": os.path.join(folder.spark, "warehouse"),
                    "spark.local.dir": os.path.join(folder.spark, "local"),
                    # Where Java unpacks the libraries that it loads.
                    "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder.spark}",
                },
                master=_MASTER,
                app_name="flintmq-demo",
            )
        yield spark


@contextmanager
def _heard_by(path: str) -> Iterator[None]:
    """Processes that are started within write their output and errors to a file.

    Spark gives no other way to say where its Java writes. The demo's own screen has a descriptor of its own.
    """
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(log, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(log)
