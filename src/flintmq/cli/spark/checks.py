"""What Spark needs of a machine, each thing looked at by itself: what is there, whether it will do, what to do.

Invariant: a check answers, whatever it finds; none starts Spark or imports pyspark, so all of them together take no
longer than the slowest question to another program.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flintmq.cli.common.connection import open_client
from flintmq.cli.common.exit_codes import UsageFailure
from flintmq.cli.common.output import many, size
from flintmq.cli.spark.launch import INSTALL, spark_home
from flintmq.errors import FlintError
from flintmq.spark.java_home import NoJava, find_java
from flintmq.spark.session import heap_gib, memory_bytes

GIB: Final = 1 << 30
MEMORY_BYTES_MIN: Final = 2 * GIB
"""A heap of 1 GiB, and as much for Python workers and everything else."""
DISK_BYTES_MIN: Final = 2 * GIB
_ASK_TIMEOUT_S: Final = 20


class CheckState(StrEnum):
    OK = "ok"
    ADVICE = "advice"  # it will run, but not well or not as meant
    BAD = "bad"  # it will not run


@dataclass(frozen=True, slots=True)
class CheckResult:
    subject: str
    state: CheckState
    said: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package, from one version on and before another."""

    package: str
    first: tuple[int, ...]
    before: tuple[int, ...]


PACKAGES: Final = (
    Requirement("pyspark", (4, 2), (4, 3)),
    Requirement("pyarrow", (18,), (1000,)),
    Requirement("pandas", (2, 2), (3,)),
    Requirement("numpy", (1, 26), (1000,)),
)


def check_all(environment: Mapping[str, str], *, bootstrap: str | None) -> list[CheckResult]:
    found = [check_java(environment), check_python(environment)]
    found += [check_package(wanted) for wanted in PACKAGES]
    if home := environment.get("SPARK_HOME"):
        found.append(check_home(home))
    found += [check_memory(memory_bytes()), check_disk(environment)]
    if bootstrap is not None:
        found.append(check_broker(bootstrap))
    return found


def check_java(environment: Mapping[str, str]) -> CheckResult:
    try:
        java = find_java(environment)
    except NoJava as error:
        return CheckResult("java", CheckState.BAD, "none that will do", str(error))
    found = f"{java.version} by {java.origin}, {java.home}"
    given = environment.get("JAVA_HOME")
    if given and java.origin != "JAVA_HOME":
        return CheckResult(
            "java",
            CheckState.ADVICE,
            found,
            f"JAVA_HOME={given} will not do and is passed over here; Spark by itself would take it.",
        )
    return CheckResult("java", CheckState.OK, found)


def check_python(environment: Mapping[str, str]) -> CheckResult:
    """Workers must run the driver's minor version, and find FlintMQ."""
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    workers = environment.get("PYSPARK_PYTHON")
    # Links are not followed: every virtual environment's Python is a link to the same file.
    if not workers or os.path.abspath(shutil.which(workers) or workers) == sys.executable:
        return CheckResult("python", CheckState.OK, f"{sys.version.split()[0]}, {sys.executable}")
    question = "import sys, pyarrow, flintmq.spark; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [workers, "-c", question], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CheckResult(
            "python",
            CheckState.BAD,
            f"PYSPARK_PYTHON={workers}: {error}",
            "Unset PYSPARK_PYTHON, or correct it.",
        )
    if done.returncode != 0:
        return CheckResult(
            "python",
            CheckState.BAD,
            f"PYSPARK_PYTHON={workers} lacks FlintMQ or what it needs",
            f"Run there: {INSTALL}. Or unset PYSPARK_PYTHON.",
        )
    theirs = done.stdout.strip()
    if theirs != own:
        return CheckResult(
            "python",
            CheckState.BAD,
            f"PYSPARK_PYTHON={workers} is Python {theirs}, this is {own}",
            f"Driver and workers must run one version: use Python {own} for both.",
        )
    return CheckResult("python", CheckState.OK, f"{own}, workers run {workers}")


def check_package(wanted: Requirement) -> CheckResult:
    range_text = f"{_dotted(wanted.first)} or newer"
    if wanted.before[0] < 1000:
        range_text += f", before {_dotted(wanted.before)}"
    try:
        version = importlib.metadata.version(wanted.package)
    except importlib.metadata.PackageNotFoundError:
        return CheckResult(wanted.package, CheckState.BAD, "not installed", f"Run: {INSTALL}")
    if wanted.first <= _numbers(version) < wanted.before:
        return CheckResult(wanted.package, CheckState.OK, version)
    return CheckResult(
        wanted.package, CheckState.BAD, f"{version}; wanted is {range_text}", f"Run: {INSTALL}"
    )


def check_home(given: str) -> CheckResult:
    """SPARK_HOME: what programs get as their Spark that are not started from here."""
    try:
        own = spark_home()
    except UsageFailure as error:
        return CheckResult("spark", CheckState.BAD, f"SPARK_HOME={given}, and no PySpark", str(error))
    if os.path.realpath(given) == os.path.realpath(own):
        return CheckResult("spark", CheckState.OK, own)
    return CheckResult(
        "spark",
        CheckState.ADVICE,
        f"SPARK_HOME={given}, which is not this Python's PySpark",
        f"`flintmq spark` uses {own}. Unset SPARK_HOME, or see that both are of one version.",
    )


def check_memory(limit: int) -> CheckResult:
    if limit < MEMORY_BYTES_MIN:
        return CheckResult(
            "memory",
            CheckState.ADVICE,
            size(limit),
            f"Give the machine or container {size(MEMORY_BYTES_MIN)} or more; less may end a worker in mid-query.",
        )
    return CheckResult("memory", CheckState.OK, f"{size(limit)}; Spark's heap here is {heap_gib(limit)} GiB")


def check_disk(environment: Mapping[str, str]) -> CheckResult:
    """Where Spark puts what does not fit into memory."""
    folder = (environment.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).partition(",")[0]
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return CheckResult(
            "disk", CheckState.BAD, f"{folder}: {error.strerror}", "Make the folder, or set SPARK_LOCAL_DIRS."
        )
    if free < DISK_BYTES_MIN:
        return CheckResult(
            "disk",
            CheckState.ADVICE,
            f"{size(free)} free in {folder}",
            f"Free {size(DISK_BYTES_MIN)}, or set SPARK_LOCAL_DIRS to a folder on another disk.",
        )
    return CheckResult("disk", CheckState.OK, f"{size(free)} free in {folder}")


def check_broker(bootstrap: str) -> CheckResult:
    try:
        with open_client(bootstrap) as client:
            client.refresh([])
            count = len(client.metadata.brokers)
    except FlintError as error:
        return CheckResult(
            "broker",
            CheckState.BAD,
            str(error),
            "Start one with `flintmq serve`, or say where it is with --bootstrap-server.",
        )
    return CheckResult("broker", CheckState.OK, f"{bootstrap} answers: {many(count, 'broker')}")


def _numbers(version: str) -> tuple[int, ...]:
    """(4, 2, 0) of `4.2.0.dev3`."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
