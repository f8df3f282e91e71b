"""The lake: topics become Parquet, Iceberg and Delta tables, and back.

Spark schedules, its Python workers read, check, shape and write, and the driver commits files and offsets at once.

    from flintmq.lake import sync
    sync(spark, "orders", to="/srv/lake", format="iceberg")

Importing this package imports neither pyspark nor pyarrow: the command line looks for them first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flintmq.lake.syncing.sync import sync as sync

_HOMES = {"sync": "flintmq.lake.syncing.sync"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
