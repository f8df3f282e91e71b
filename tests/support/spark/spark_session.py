"""The Spark of a test process: one JVM for all folders of tests, and a session of its own for each."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""For JVMs of tests: what the second compiler makes of code is never used for long enough to pay for it."""


def new_session(folder: Path, settings: dict[str, str]) -> SparkSession:
    """`settings` are Spark SQL's. The folder is used by whoever comes first."""
    from flintmq.spark.session import session

    # Spark's own Kafka connector, for the tests beside it, where it has been fetched.
    jars = connector_jars()
    # Workers import what the tests run with, from wherever that was imported.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    root = session(
        {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.warehouse.dir": folder / "warehouse",
            "spark.local.dir": folder / "local",
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "OFF",
            **({"spark.jars": jars} if jars else {}),
        },
        # Tasks are tried again, as they are on a cluster.
        master="local[2,4]",
        app_name="flintmq-tests",
    )
    made = root.newSession()
    for name, value in {"spark.sql.session.timeZone": "UTC", **settings}.items():
        made.conf.set(name, value)
    return made
