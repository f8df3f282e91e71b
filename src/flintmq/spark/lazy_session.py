"""A session of Spark that is opened when the first job needs it, so that what needs no job does not wait for Spark.

    spark = LazySession(lambda: session(master="local[2]"))
    spark.get()                  opens it, once

Knows nothing of how a session is made, and imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LazySession:
    def __init__(self, open: Callable[[], SparkSession], *, is_optional: bool = False) -> None:
        self.is_optional = is_optional
        """Whether small work may be done in this process, without the session."""
        self.why_gone: Callable[[], str | None] = lambda: None
        """Says that the session has ended, and what to do; None while it has not, or if nobody knows."""
        self._open = open
        self._session: SparkSession | None = None

    @property
    def is_open(self) -> bool:
        return self._session is not None

    def get(self) -> SparkSession:
        if self._session is None:
            self._session = self._open()
        return self._session


def session_of(spark: SparkSession | LazySession) -> SparkSession:
    """Return the session, and open it if it is not open yet."""
    return spark.get() if isinstance(spark, LazySession) else spark
