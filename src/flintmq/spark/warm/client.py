"""A command's way to the warm session.

    warm = find_warm_session(os.environ)          None: none is up
    warm.differences                              why this command may not use it; empty if it may
    spark = warm.attach()

Invariant: the connection goes to the loopback address that the server listens on, not to what `localhost` may resolve
to: whoever listens there would get the token. A command never ends the session that it shares with others.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from flintmq.spark.session import LOOPBACK
from flintmq.spark.warm.fingerprint import differences, take_fingerprint
from flintmq.spark.warm.state import (
    LOG_FILE,
    SERVER_LOCK,
    WarmSessionError,
    WarmState,
    holder,
    read_state,
    state_directory,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("grpc", "grpc_status", "google.rpc", "zstandard")
"""What Spark Connect needs beside PySpark."""

_CONNECT_TIMEOUT_S: Final = 2.0
_USER: Final = "flintmq"
# A server on this machine is there or is not: PySpark's own patience is of minutes.
_RETRIES: Final[dict[str, Any]] = {"max_retries": 4, "initial_backoff": 50, "max_backoff": 500}


def missing_packages() -> list[str]:
    return [name for name in PACKAGES if not _is_installed(name)]


def find_warm_session(environment: Mapping[str, str]) -> WarmSession | None:
    """`environment` is the command's own, as it was when the command began."""
    directory = state_directory(environment)
    state = read_state(directory)
    return None if state is None else WarmSession(directory, state, dict(environment))


@dataclass(frozen=True)
class WarmSession:
    directory: str
    state: WarmState
    environment: Mapping[str, str]

    @cached_property
    def differences(self) -> list[str]:
        """What is not as it was when the session was started; empty if this process may use it."""
        return differences(self.state.fingerprint, take_fingerprint(self.environment))

    @property
    def log(self) -> str:
        return os.path.join(self.directory, LOG_FILE)

    @property
    def is_up(self) -> bool:
        return holder(self.directory, SERVER_LOCK) == self.state.pid

    @property
    def answers(self) -> bool:
        """Whether something takes connections there."""
        try:
            with socket.create_connection((LOOPBACK, self.state.port), timeout=_CONNECT_TIMEOUT_S):
                return True
        except OSError:
            return False

    def attach(self) -> SparkSession:
        """Return the session; WarmSessionError if the server does not let this process in."""
        from pyspark.errors.exceptions.connect import SparkConnectException
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        class LoopbackChannel(DefaultChannelBuilder):
            @property
            def endpoint(self) -> str:
                return f"{LOOPBACK}:{self._port}"

        # PySpark sends a token without TLS to this name only.
        url = f"sc://localhost:{self.state.port}/;user_id={_USER};session_id={self.state.session_id}"
        spark: Any = SparkSession(connection=LoopbackChannel(f"{url};token={self.state.token}"))
        # It warns of what it raises as well.
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
        spark.client.set_retry_policies([DefaultPolicy(**_RETRIES)])
        # Others use the session too. And PySpark's own end of a client that is not closed waits for the server.
        spark.release_session_on_close = False
        atexit.register(_close, spark)
        try:
            spark.version  # noqa: B018
        except SparkConnectException as error:
            _close(spark)
            if not self.is_up:
                raise WarmSessionError(
                    f"the Spark session that was up (process {self.state.pid}) has just ended; run the command again"
                ) from error
            raise WarmSessionError(
                f"the Spark session that is up (process {self.state.pid}) does not let this command in: "
                f"{_reason(error)}. Start it again with `flintmq spark down` and `flintmq spark up`, or do "
                "without it: --master 'local[*]'"
            ) from error
        SparkSession._set_default_and_active_session(spark)
        # What PySpark's own functions ask before they make a column.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        return spark  # type: ignore[no-any-return]


def _close(spark: Any) -> None:
    with suppress(Exception):
        spark.client.close()


def _reason(error: Exception) -> str:
    """Return what the server said, out of all that gRPC tells of a call."""
    text = str(error).strip()
    found = re.search(r'details = "(.*)"', text)
    return found[1] if found else text.partition("\n")[0]


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
