"""`flintmq spark shell`: PySpark's own shell, with the sources registered."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.exit_codes import LOCAL_CODES
from flintmq.cli.spark.launch import plan_launch

_STARTUP = "PYTHONSTARTUP"
_USERS_STARTUP = "FLINTMQ_SHELL_STARTUP"


@click.command(
    "shell",
    cls=Command,
    examples=(
        "flintmq spark shell",
        "flintmq spark shell --master 'local[2]' --conf spark.driver.memory=2g",
        "flintmq spark shell --master spark://head:7077",
        "flintmq spark shell --remote sc://head:15002",
    ),
    exit_codes=LOCAL_CODES,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[SPARK OPTION]...")
def command(options: tuple[str, ...]) -> None:
    """Open a PySpark shell that reads and writes topics.

    Java is found or provided, `spark` is there, and the formats of FlintMQ are registered. All options
    go to Spark. Without --master (or MASTER in the environment) it is local[*]: this machine, all cores.
    """
    launch = plan_launch("pyspark", options, os.environ)
    changed = launch.environment
    if own := changed.get(_STARTUP):
        changed[_USERS_STARTUP] = own
    if changed["PYSPARK_DRIVER_PYTHON"] == sys.executable:
        # Else Python takes piped input for a program, and starts no session.
        changed.setdefault("PYSPARK_DRIVER_PYTHON_OPTS", "-i")
    # PySpark's shell keeps this variable for after its own start, when the session is there.
    changed[_STARTUP] = _startup_file()
    launch.replace_this_process()


def _startup_file() -> str:
    """Return the path of a module that is never imported: it runs only inside a shell."""
    spec = find_spec("flintmq.spark.shell_startup")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin
