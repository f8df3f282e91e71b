"""What the commands that run pipelines share: their options, the file, the session, and how they are stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flintmq.cli.common.connection import command_config, command_config_option
from flintmq.cli.common.exit_codes import CommandFailure, Exit
from flintmq.cli.pipeline.problems import show_problems
from flintmq.client.security import canonical, environment_properties
from flintmq.effects.signals import SignalHandler, end_now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.pipeline import Pipeline

F = TypeVar("F", bound=Callable[..., Any])

# A task whose worker dies is tried again, which Spark does on one machine only if it is told to.
_MASTER = "local[*,4]"
_STANDARD_ERROR = 2


def bootstrap_override(command: F) -> F:
    """Add --bootstrap-server and --command-config, which replace what the file says."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        default=None,
        help="The brokers, whatever the file says of `bootstrap_servers`.",
    )(command_config_option(command))


def master_option(command: F) -> F:
    return click.option("--master", default=None, help=f"Where Spark works. [{_MASTER}: this machine]")(
        command
    )


def load_to_run(file: str, bootstrap: str | None) -> Pipeline:
    """Its problems are told; errors end the command."""
    from flintmq.pipeline import examine
    from flintmq.pipeline.security import pipeline_security

    found = examine(file)
    show_problems(found.problems)
    if found.pipeline is None or not found.is_valid:
        click.get_current_context().exit(int(Exit.FAILED))
    pipeline = replace(found.pipeline, security=_security(found.pipeline))
    pipeline_security(pipeline)
    return pipeline if bootstrap is None else replace(pipeline, bootstrap_servers=bootstrap)


def _security(pipeline: Pipeline) -> dict[str, str]:
    """Return the settings of the environment, those of the file over them, and those of --command-config over all."""
    return {
        **canonical(environment_properties(os.environ)),
        **canonical(pipeline.security),
        **command_config(),
    }


def _check_installed() -> None:
    for name in ("pyarrow", "obstore", "pyspark"):
        if find_spec(name) is None:
            raise CommandFailure(
                f"{name} is not installed; get all that it takes with: pip install 'flintmq[spark]'"
            )


def open_session(pipeline: Pipeline, master: str | None) -> SparkSession:
    from flintmq.spark.session import session

    settings = {"spark.log.level": "ERROR", **pipeline.spark}
    return session(
        settings,
        master=master or settings.get("spark.master") or _MASTER,
        app_name=f"flintmq-{pipeline.name}",
    )


@contextmanager
def showing_problems() -> Iterator[None]:
    """What is found when Spark is there is told like what was found before."""
    from flintmq.pipeline import PipelineError

    try:
        yield
    except PipelineError as error:
        show_problems(error.problems)
        click.get_current_context().exit(int(Exit.FAILED))


@contextmanager
def session_to_stop(pipeline: Pipeline, master: str | None) -> Iterator[tuple[SparkSession, threading.Event]]:
    """Open a session, and an event that the first signal sets; a second signal ends the command at once.

    ORDER: signals are handled before Java is started, and handed back after it has ended.
    """
    _check_installed()
    from flintmq.spark.jvm import own_java

    stop = threading.Event()

    def handle(number: signal.Signals) -> None:
        if stop.is_set():
            # By an exception, so that Java is ended on the way.
            end_now(number)
        stop.set()
        # Past sys.stderr, whose buffer the interrupted code may be writing to.
        os.write(_STANDARD_ERROR, f"{pipeline.name}: stopping; a second signal ends it at once\n".encode())

    with SignalHandler(handle) as signals, own_java():
        spark = open_session(pipeline, master)
        # PySpark takes Ctrl-C for itself when a session is opened.
        signals.install()
        yield spark, stop
