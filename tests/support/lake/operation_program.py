"""`lake compact` or `lake latest` in a process of its own that dies as by `kill -9`: `OPERATION ROOT FORMAT STEP`.

STEP names where the driver dies, or where a worker does (the first that comes there, once), or is `none`. The tables
are those of `support.lake.table_location`. Workers are forks of `support.lake.dying_daemon`.
"""

from __future__ import annotations

import os
import sys

from support.lake.sync_program import COMMITS, STEP_VARIABLE, dying

_BEFORE, _AFTER = False, True
DRIVER_STEPS: dict[str, dict[str, tuple[str, bool]]] = {
    operation: {
        "planned": (f"flintmq.lake.{operation}.{operation}:map_in_workers", _BEFORE),
        "written": (f"flintmq.lake.{operation}.{operation}:map_in_workers", _AFTER),
    }
    for operation in ("compact", "latest")
}
"""And those of a commit of the format."""
WORKER_STEPS: dict[str, tuple[str, bool]] = {
    "compact-reading": ("flintmq.lake.compact.merge:open_parquet", _BEFORE),
    "compact-drafted": ("flintmq.lake.store.local:LocalFileStore.publish", _BEFORE),
    "compact-published": ("flintmq.lake.store.local:LocalFileStore.publish", _AFTER),
    "compact-done": ("flintmq.lake.compact.merge:merge_files", _AFTER),
    "latest-reading": ("flintmq.lake.latest.merge:open_parquet", _BEFORE),
    "latest-drafted": ("flintmq.lake.store.local:LocalFileStore.publish", _BEFORE),
    "latest-published": ("flintmq.lake.store.local:LocalFileStore.publish", _AFTER),
    "latest-done": ("flintmq.lake.latest.merge:merge_latest", _AFTER),
}


def driver_steps(operation: str, format: str) -> dict[str, tuple[str, bool]]:
    return {**DRIVER_STEPS[operation], **COMMITS[format]}


def main(operation: str, root: str, format: str, step: str) -> None:
    from flintmq.lake.compact.compact import compact
    from flintmq.lake.latest.latest import SUFFIX, latest
    from flintmq.lake.tables.table import Format
    from flintmq.spark.session import session
    from support.lake.data_files import TOPIC
    from support.lake.table_location import TableLocation

    settings: dict[str, object] = {"spark.driver.memory": "1g", "spark.log.level": "ERROR"}
    if step in WORKER_STEPS:
        settings["spark.python.daemon.module"] = "support.lake.dying_daemon"
        os.environ[STEP_VARIABLE] = f"{step} {root}.{step}"
    elif step != "none":
        dying(driver_steps(operation, format)[step])
    spark = session(settings, master="local[2]")
    source = TableLocation(root, Format(format))
    if operation == "compact":
        compact(spark, source.table, source.store)
    else:
        target = TableLocation(root, Format(format), TOPIC + SUFFIX)
        latest(spark, source.table, source.store, target.table, target.store)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
