"""What the commands that run pipelines share: their options, the file, the session, and how they are stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flintmq.cli.common.exit_codes import CommandFailure, Exit
from flintmq.cli.pipeline.problems import show_problems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.pipeline import Pipeline

F = TypeVar("F", bound=Callable[..., Any])

# A task whose worker dies is tried again, which Spark does on one machine only if it is told to.
_MASTER = "local[*,4]"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def bootstrap_override(command: F) -> F:
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        default=None,
        help="The brokers, whatever the file says of `bootstrap_servers`.",
    )(command)


def master_option(command: F) -> F:
    return click.option("--master", default=None, help=f"Where Spark works. [{_MASTER}: this machine]")(
        command
    )


def load_to_run(file: str, bootstrap: str | None) -> Pipeline:
    """Its problems are told; errors end the command."""
    from flintmq.pipeline import examine

    found = examine(file)
    show_problems(found.problems)
    if found.pipeline is None or not found.is_valid:
        click.get_current_context().exit(int(Exit.FAILED))
    return found.pipeline if bootstrap is None else replace(found.pipeline, bootstrap_servers=bootstrap)


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


class Stop(threading.Event):
    """Set by the first signal; a second one ends the command at once."""

    def __init__(self) -> None:
        super().__init__()
        self._is_main = threading.current_thread() is threading.main_thread()
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def take(self) -> None:
        """Handles signals from now on, whoever took them before; also if one has come already."""
        for number in _SIGNALS if self._is_main else ():
            signal.signal(number, _end_now if self.is_set() else self._handle)

    def give_back(self) -> None:
        for number, handler in self._before.items() if self._is_main else ():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        self.set()
        self.take()


def _end_now(number: int, frame: object) -> None:
    """As errors, so that Java is ended on the way; whoever does not want to wait for that has a third."""
    signal.signal(number, signal.SIG_DFL)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextmanager
def stopping() -> Iterator[Stop]:
    stop = Stop()
    stop.take()
    try:
        yield stop
    finally:
        stop.give_back()


@contextmanager
def session_to_stop(pipeline: Pipeline, master: str | None) -> Iterator[tuple[SparkSession, Stop]]:
    """A session, and whether somebody wants it to end. ORDER: signals are taken before Java is started, and given
    back after it has ended."""
    _check_installed()
    from flintmq.spark.jvm import own_java

    with stopping() as stop, own_java():
        spark = open_session(pipeline, master)
        # PySpark takes Ctrl-C for itself when a session is opened.
        stop.take()
        yield spark, stop
