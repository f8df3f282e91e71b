"""What is the same for all work that Spark's workers do for the lake."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from flintmq.lake.fan_out import map_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _frozen(item: int) -> int:
    return gc.get_freeze_count()


def test_workers_do_not_collect_what_they_have_imported(spark: SparkSession) -> None:
    assert min(map_in_workers(spark, [1, 2, 3], _frozen, int)) > 10_000
