"""The process that keeps a session of Spark: a driver whose JVM serves Spark Connect to this user's commands.

    python -m flintmq.spark.warm.server DIRECTORY  < a StartRequest as JSON

It holds the server's lock for as long as it lives, writes the state when the session can be used, and ends when there
was no work for long enough, when it gets SIGTERM, or when its JVM ends. Invariant: the state is there only while the
session takes work, and the JVM does not outlive this process. The token comes by standard input and goes to the JVM
in its environment: other users can read command lines.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Final

import msgspec

from flintmq.spark.jvm import has_java_ended, own_java
from flintmq.spark.session import LOOPBACK, session
from flintmq.spark.warm.state import SERVER_LOCK, WarmState, hold, make_private, remove_state, write_state

TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"

_POLL_S: Final = 2.0
_ACTIVE_STEP_S: Final = 0.1
_LOCK_WAIT_S: Final = 10.0
_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService"


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    token: str
    session_id: str
    idle_s: float
    fingerprint: dict[str, str]


def settings() -> dict[str, str]:
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        # The one session is for as long as the server: this process decides when there was no work for too long.
        "spark.connect.session.manager.defaultSessionTimeout": "-1",
        # The driver's other ports take nothing from other users either.
        "spark.authenticate": "true",
        "spark.scheduler.mode": "FAIR",
    }


def serve(directory: str, request: StartRequest) -> None:
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    make_private(directory)
    with hold(directory, SERVER_LOCK, wait_s=_LOCK_WAIT_S):
        # Of a server that was killed.
        remove_state(directory)
        os.environ[TOKEN_VARIABLE] = request.token
        try:
            with own_java():
                spark = session(settings(), master="local[*]", app_name="flintmq spark up")
                _keep(directory, request, _ConnectService(spark), stop)
        finally:
            remove_state(directory)


def _keep(directory: str, request: StartRequest, service: _ConnectService, stop: threading.Event) -> None:
    now = time.time()
    state = WarmState(
        pid=os.getpid(),
        port=service.port,
        token=request.token,
        session_id=request.session_id,
        started_s=now,
        active_s=now,
        idle_s=request.idle_s,
        fingerprint=request.fingerprint,
    )
    write_state(directory, state)
    while not stop.wait(min(_POLL_S, request.idle_s / 4)) and not has_java_ended():
        active_s = max(state.active_s, service.active_s())
        if time.time() - active_s >= request.idle_s:
            return
        # Two clocks never agree to the last digit.
        if active_s - state.active_s > _ACTIVE_STEP_S:
            state = msgspec.structs.replace(state, active_s=active_s)
            write_state(directory, state)


class _ConnectService:
    """The service inside of the JVM."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm
        # An object of Scala, whose methods are not all static ones of its class.
        self._service = self._jvm.java.lang.Class.forName(f"{_SERVICE}$").getField("MODULE$").get(None)

    @property
    def port(self) -> int:
        return int(self._service.localPort())

    def active_s(self) -> float:
        """When there was work last, in seconds since 1970: now, while there is some."""
        active = self._service.listActiveExecutions()
        if active.isRight():
            return time.time()
        # The other side is when the last one ended, by Java's own clock.
        idle_ns = int(self._jvm.java.lang.System.nanoTime()) - int(active.value())
        return time.time() - idle_ns / 1e9


def main() -> None:
    (directory,) = sys.argv[1:]
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=StartRequest)
    serve(directory, request)


if __name__ == "__main__":
    main()
