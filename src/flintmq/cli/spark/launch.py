"""How `shell` and `submit` start Spark's own programs: which, with what arguments, in which environment.

Invariant: FlintMQ's settings come before the user's on the command line, and Spark takes the last. pyspark is looked
for, never imported.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from flintmq.cli.common.exit_codes import UsageFailure

INSTALL: Final = "pip install 'flintmq[spark]'"

# Every other option of spark-submit has a value after it.
_FLAGS: Final = frozenset(
    ("-h", "--help", "-v", "--verbose", "--version", "--supervise", "--usage-error", "--load-spark-defaults")
)


class SparkLaunch(NamedTuple):
    program: str
    arguments: list[str]
    environment: dict[str, str]

    def replace_this_process(self) -> None:
        """So that signals and the exit code are Spark's own."""
        os.execve(self.program, [self.program, *self.arguments], self.environment)


def plan_launch(program: str, arguments: Sequence[str], present: Mapping[str, str]) -> SparkLaunch:
    """`program` is a name in pyspark's own `bin`."""
    from flintmq.spark.session import DEFAULT_MASTER, defaults, environment

    home = spark_home()
    options, application = split_options(arguments)
    own: list[str] = []
    if is_remote(options):
        added = environment(present)
    else:
        master = master_of(options)
        if master is None:
            master = present.get("MASTER") or DEFAULT_MASTER
            own += ("--master", master)
        for name, value in defaults(master).items():
            own += ("--conf", f"{name}={value}")
        added = environment(present, master=master)
    return SparkLaunch(
        os.path.join(home, "bin", program),
        [*own, *options, *application],
        # The scripts and the Python package must be of one Spark, whatever else is installed here.
        {**present, **added, "SPARK_HOME": home},
    )


def spark_home() -> str:
    """The folder of the pyspark that this Python has."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise UsageFailure(f"PySpark is not installed. Run: {INSTALL}")
    return os.path.abspath(spec.submodule_search_locations[0])


def split_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Spark's own options, and from the program on what belongs to the program."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 1 if arguments[at] in _FLAGS or "=" in arguments[at] else 2
    return list(arguments[:at]), list(arguments[at:])


def master_of(options: Sequence[str]) -> str | None:
    """What Spark will take as its master; None if nothing is said of one."""
    found = None
    for name, value in _pairs(options):
        if name == "--master":
            found = value
        elif name in ("--conf", "-c") and value.startswith("spark.master="):
            # Spark lets its own option win, in whichever order they are given.
            found = found or value.partition("=")[2]
    return found


def is_remote(options: Sequence[str]) -> bool:
    return any(name == "--remote" for name, _ in _pairs(options))


def _pairs(options: Sequence[str]) -> list[tuple[str, str]]:
    """Options with their values, in both spellings: `--name value` and `--name=value`."""
    found = []
    at = 0
    while at < len(options):
        name, equals, value = options[at].partition("=")
        if not equals and name not in _FLAGS:
            at += 1
            value = options[at] if at < len(options) else ""
        found.append((name, value))
        at += 1
    return found
