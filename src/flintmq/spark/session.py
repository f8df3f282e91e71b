"""Spark with everything set: the environment of its processes, settings that suit the master, one session.

    spark = session()                                        # local[*]
    spark = session({"spark.sql.ansi.enabled": "false"}, master="spark://head:7077")

Three things are needed for the sources to work: a Java that Spark starts on, workers that run this very Python, and
filters pushed down to the source. Everything else here is a default for one machine, where Spark's own are made for a
cluster; a cluster keeps Spark's. What the caller or the environment has set is never changed, but for a JAVA_HOME
that Spark would not start with.

Knows nothing of the sources: they are registered by whoever asks for a session. pyspark is imported when a session
is made, not before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from flintmq.spark.java_home import find_java, usable_home
from flintmq.spark.spark_home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"

NEEDED: Final[Mapping[str, str]] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}

LOOPBACK: Final = "127.0.0.1"

_APP_NAME: Final = "flintmq"
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit and by PySpark's shell, which have started the JVM, and have set what is to be set."""

_GIB: Final = 1 << 30
_HEAP_GIB_MAX: Final = 8
_CGROUP_LIMIT: Final = "/sys/fs/cgroup/memory.max"


def session(
    config: Mapping[str, object] | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    app_name: str | None = None,
) -> SparkSession:
    """The session of this process, made if there is none; with `remote`, one on a Spark Connect server.

    In a program that was submitted, master and name are those that it was submitted with, unless they are given here.
    """
    from pyspark.sql import SparkSession

    settings = {name: _text(value) for name, value in (config or {}).items()}
    chosen = master or settings.pop("spark.master", None)
    builder = SparkSession.builder
    if remote is not None:
        # The JVM is the server's: of all that is set here only what a query may set reaches it.
        builder = builder.remote(remote)
        settings = {**NEEDED, **settings}
    elif chosen is not None or _GATEWAY not in os.environ:
        chosen = chosen or DEFAULT_MASTER
        os.environ.update(environment(os.environ, master=chosen))
        builder = builder.master(chosen).appName(app_name or _APP_NAME)
        settings = {**defaults(chosen), **settings}
    if app_name is not None:
        builder = builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def environment(present: Mapping[str, str], *, master: str = DEFAULT_MASTER) -> dict[str, str]:
    """What to add to an environment before Spark is started in it."""
    added = {"JAVA_HOME": usable_home(find_java(present), present)}
    if "PYSPARK_PYTHON" not in present:
        added["PYSPARK_PYTHON"] = sys.executable
    if "PYSPARK_DRIVER_PYTHON" not in present:
        added["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_one_machine(master):
        if "SPARK_LOCAL_IP" not in present:
            added["SPARK_LOCAL_IP"] = LOOPBACK
        if "SPARK_HOME" not in present and (home := quick_home(present)) is not None:
            added["SPARK_HOME"] = home
    return added


def defaults(master: str = DEFAULT_MASTER) -> dict[str, str]:
    """Settings for a master; what a user says comes after them."""
    if not is_one_machine(master):
        return dict(NEEDED)
    return {
        **NEEDED,
        # The driver does all the work there is, and its heap cannot grow later.
        "spark.driver.memory": f"{heap_gib(memory_bytes())}g",
        # Reachable from this machine only, whatever its name resolves to.
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        # Spark's 200 are tasks of a millisecond each here.
        "spark.sql.shuffle.partitions": str(max(4, os.cpu_count() or 1)),
        # As a shell has it; a program that is submitted would tell of every step.
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def is_one_machine(master: str) -> bool:
    """`local`, `local[4]`, and `local-cluster[2,1,1024]`, whose workers are processes of this machine."""
    return master.partition("[")[0] in ("local", "local-cluster")


def heap_gib(memory: int) -> int:
    """A quarter of the memory, for the Python workers, the page cache and everybody else want theirs."""
    return min(_HEAP_GIB_MAX, max(1, memory // 4 // _GIB))


def memory_bytes() -> int:
    """What this process may use: the machine's memory, or the container's if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(_CGROUP_LIMIT) as file:
            limit = file.read().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine


def _text(value: object) -> str:
    """As Spark writes it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
