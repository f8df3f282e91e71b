"""`flintmq spark doctor`: can Spark run here, and what to do if not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import click

from flintmq.cli.common.command import Command
from flintmq.cli.common.connection import BOOTSTRAP_VARIABLE, command_config_option, json_option
from flintmq.cli.common.exit_codes import LOCAL_CODES, Exit
from flintmq.cli.common.output import print_json
from flintmq.cli.spark.checks import CheckResult, CheckState, check_all

_COLOURS: Final = {CheckState.OK: "green", CheckState.ADVICE: "yellow", CheckState.BAD: "red"}
_START_TIMEOUT_S: Final = 180
_SAID_LINES_MAX: Final = 12

# A Python worker takes part, for that is what the sources run in.
_PROBE: Final = """
from flintmq.spark.session import session
spark = session(master="local[2]")
rows = spark.range(4).mapInArrow(lambda batches: batches, "id long").count()
assert rows == 4, rows
print("Spark", spark.version)
spark.stop()
"""


@click.command(
    "doctor",
    cls=Command,
    examples=(
        "flintmq spark doctor",
        "flintmq spark doctor --start",
        "flintmq spark doctor --bootstrap-server broker-1:9092",
    ),
    exit_codes={**LOCAL_CODES, Exit.OK: "Spark can run here", Exit.FAILED: "something must be done first"},
)
@click.option(
    "-b",
    "--bootstrap-server",
    "--bootstrap-servers",
    "bootstrap",
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    default=None,
    help=f"Also ask whether this broker answers. [{BOOTSTRAP_VARIABLE}]",
)
@command_config_option
@click.option("--start", "starts", is_flag=True, help="Also start Spark and run a query: some ten seconds.")
@json_option
def command(bootstrap: str | None, starts: bool, as_json: bool) -> None:
    """Check that Spark can run here, and say what to do if not.

    Looks at Java, Python, the packages, memory and disk; with --bootstrap-server also at a broker.
    """
    found = check_all(os.environ, bootstrap=bootstrap)
    if starts and not _fails(found):
        found.append(_start())
    if as_json:
        print_json(
            [
                {"subject": one.subject, "state": str(one.state), "said": one.said, "advice": one.advice}
                for one in found
            ]
        )
    else:
        _show(found)
    if _fails(found):
        raise SystemExit(Exit.FAILED)


def _fails(found: list[CheckResult]) -> bool:
    return any(one.state is CheckState.BAD for one in found)


def _show(found: list[CheckResult]) -> None:
    width = max(len(one.subject) for one in found)
    for one in found:
        state = click.style(f"{one.state:<6}", fg=_COLOURS[one.state], bold=True)
        click.echo(f"{state} {one.subject:<{width}}  {one.said}")
        if one.advice:
            click.echo(f"{'':6} {'':{width}}  → {one.advice}")


def _start() -> CheckResult:
    """In a process of its own: what a JVM or a worker does there cannot end this one."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=_START_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return CheckResult(
            "start",
            CheckState.BAD,
            f"Spark did not answer in {_START_TIMEOUT_S} s",
            "Look at memory and load here.",
        )
    if done.returncode != 0:
        end = "\n".join(done.stderr.strip().splitlines()[-_SAID_LINES_MAX:])
        return CheckResult("start", CheckState.BAD, "Spark does not run", f"It said:\n{end}")
    return CheckResult("start", CheckState.OK, f"{done.stdout.strip()} ran a query through a Python worker")
