"""The Java process that a session of Spark starts: out of reach of a terminal's signals, and gone at the end.

    with own_java():
        spark = session()
        …

Java is in a session of its own: a signal for the whole group, such as Ctrl-C, does not end it before Python has let
batches come to their end. Invariant: when the block is over, also if Spark was still starting, the Java process that
was started in it has ended. A session that was there before is only stopped.
"""

from __future__ import annotations

import logging
import os
import signal
import socketserver
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

_END_S: Final = 15.0
_NOTICED_S: Final = 5.0
_NOISE: Final = ("py4j.clientserver", "py4j.java_gateway")
"""Loggers of what is raised as well."""


@contextmanager
def own_java() -> Iterator[None]:
    from pyspark import SparkContext

    started: list[subprocess.Popen[bytes]] = []
    logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        with _started_apart(started):
            yield
    finally:
        try:
            _stop_session()
        finally:
            if started:
                gateway = SparkContext._gateway
                SparkContext._gateway = None
                SparkContext._jvm = None
                for java in started:
                    # Without a gateway it was still starting, and would not notice that nobody wants it any more.
                    _end(java, gateway)
            logging.getLogger().removeFilter(_is_not_of_py4j)


def has_java_ended(*, soon: bool = False) -> bool:
    """Whether the Java of this process's session is gone, or will be in a moment: who is told to end needs some."""
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return False
    if soon:
        with suppress(subprocess.TimeoutExpired):
            java.wait(_NOTICED_S)
    return java.poll() is not None


def is_unanswered(error: BaseException) -> bool:
    """Whether Java has not answered, which it does with its errors too: who is killed is so before it is gone."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    return isinstance(error, (Py4JError, OSError)) and not isinstance(error, Py4JJavaError)


@contextmanager
def _started_apart(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """PySpark keeps the process to itself until it has answered, which may never be; so its own way to start one is
    changed for the block."""
    from pyspark import accumulators, java_gateway

    def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = subprocess.Popen(command, start_new_session=True, **options)
        started.append(process)
        return process

    module: Any = java_gateway
    before = module.Popen
    module.Popen = start
    servers: tuple[Any, ...] = (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer)
    for server in servers:
        server.handle_error = _handle_error
    try:
        yield
    finally:
        module.Popen = before
        for server in servers:
            del server.handle_error


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """It logs errors that it also raises as the root, with whole stacks."""
    return record.module != "java_gateway"


def _handle_error(server: socketserver.BaseServer, request: Any, client_address: Any) -> None:
    """PySpark's sums from tasks end with Java, which is no error of theirs to print."""
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        socketserver.BaseServer.handle_error(server, request, client_address)


def _stop_session() -> None:
    """A Java that has ended, or that is told so by somebody else, cannot be asked to stop any more."""
    from py4j.protocol import Py4JError
    from pyspark.sql import SparkSession

    spark = SparkSession._instantiatedSession
    if spark is None:
        return
    for name in _NOISE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        spark.stop()
    except (Py4JError, OSError):
        if not has_java_ended(soon=True):
            raise


def _end(java: subprocess.Popen[bytes], gateway: Any) -> None:
    """It ends when its input does; who does not, or is not so far yet, is ended."""
    from py4j.protocol import Py4JError

    try:
        if gateway is not None:
            # Also if Java is gone: it ends the threads of this process that listen to it.
            with suppress(Py4JError, OSError):
                gateway.shutdown()
            assert java.stdin is not None
            java.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                java.wait(_END_S)
    finally:
        if java.poll() is None:
            # With the scripts and the launcher that come before it.
            with suppress(ProcessLookupError):
                os.killpg(java.pid, signal.SIGKILL)
            java.wait()
