"""What the workloads of `python -m bench.spark` work with, and what a workload is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.connector import TUNED
from bench.family import Family
from bench.loads import Topic
from bench.process import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS: Final = "flintmq"
THEIRS: Final = "kafka"


@dataclass(frozen=True, slots=True)
class Stage:
    """What a workload works with: a session, a broker, a topic full of records, and the processes that count."""

    spark: SparkSession
    family: Family
    """All of Spark's, this one too."""
    broker: Broker
    topic: Topic
    rows: int
    folder: str
    """For tables."""
    _made: dict[str, str] = field(default_factory=dict)

    def made(self, name: str, make: Callable[[str], None]) -> str:
        """A folder that is filled when it is first asked for."""
        if name not in self._made:
            folder = os.path.join(self.folder, name)
            make(folder)
            self._made[name] = folder
        return self._made[name]

    def options(self, source: str) -> dict[str, str]:
        tuned = TUNED if source == THEIRS else {}
        return {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": self.topic.name, **tuned}

    def read(self, source: str, **more: str) -> DataFrame:
        return self.spark.read.format(source).options(**self.options(source), **more).load()


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    summary: str
    goal: float
    """What ours ÷ theirs should be at most; of a rate, the rows per CPU-second at least."""
    run: Callable[[Stage, str], None]
    is_rate: bool = False
    """Only ours runs."""

    @property
    def sides(self) -> tuple[str, ...]:
        return (OURS,) if self.is_rate else (OURS, THEIRS)
