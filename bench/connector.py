"""Spark's own Kafka connector, which FlintMQ's sources are tested and measured beside: its jars, and how they come.

The jars are those that `tests/spark/pom.xml` names. They are in `$SPARK_KAFKA_LIBS`, or in the cache that other test
suites share. Knows nothing of sessions or brokers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

SPARK_VERSION: Final = "4.2.0"
JARS: Final = (
    f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.2.jar",
    "commons-pool2-2.13.1.jar",
)

TUNED: Final = {
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
"""What makes the connector's reading cheapest; see docs/spark.md."""

_POM: Final = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "spark", "pom.xml"
)
_FETCH_TIMEOUT_S: Final = 600


class NoConnector(Exception):
    """The jars are not here and cannot be fetched; the message says why."""


def connector_libs() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("SPARK_KAFKA_LIBS") or os.path.join(
        cache, "flintmq-suites", f"spark-kafka-{SPARK_VERSION}", "lib"
    )


def connector_jars() -> str | None:
    """For `spark.jars`; None if one is missing."""
    paths = [os.path.join(connector_libs(), name) for name in JARS]
    return ",".join(paths) if all(map(os.path.exists, paths)) else None


def fetch_connector() -> str:
    """For `spark.jars`, fetched by Maven if need be."""
    if found := connector_jars():
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise NoConnector(
            f"{connector_libs()} lacks the connector's jars, and there is no Maven to fetch them"
        )
    command = [maven, "-q", "-B", "-f", _POM, "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={connector_libs()}"],
        capture_output=True,
        text=True,
        timeout=_FETCH_TIMEOUT_S,
    )
    found = connector_jars()
    if done.returncode != 0 or found is None:
        raise NoConnector(f"Maven could not fetch the connector:\n{(done.stdout + done.stderr)[-1000:]}")
    return found
