"""A sync in a process of its own that dies as by `kill -9`: `ADDRESS TOPIC ROOT FORMAT STEP`.

STEP names where the driver dies, or where a worker does (`worker-…`, the first that comes there, once), or is `none`.
Values are JSON, and what is not goes to the quarantine table. Workers are forks of `lake_dying_daemon`.
"""

from __future__ import annotations

import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from typing import Any

STEP_VARIABLE = "FLINT_TEST_STEP"
SCHEMA = "id long"

_BEFORE, _AFTER = False, True
DRIVER_STEPS: dict[str, tuple[str, bool]] = {
    "planned": ("flintmq.lake.syncing.range_runner:RangeRunner.run", _BEFORE),
    "written": ("flintmq.lake.syncing.range_runner:RangeRunner.run", _AFTER),
    "committed": ("flintmq.lake.syncing.quarantine:TableQuarantine.complete", _BEFORE),
    "settled": ("flintmq.lake.syncing.quarantine:TableQuarantine.complete", _AFTER),
    "told": ("flintmq.lake.syncing.sync:set_offsets", _AFTER),
}
"""And in the middle of a commit, which each format has its own of."""
COMMITS: dict[str, dict[str, tuple[str, bool]]] = {
    "parquet": {
        "before-the-entry": ("flintmq.lake.tables.commit_log:CommitLog.append", _BEFORE),
        "after-the-entry": ("flintmq.lake.tables.commit_log:CommitLog.append", _AFTER),
    },
    "delta": {
        "before-the-entry": ("flintmq.lake.tables.commit_log:CommitLog.append", _BEFORE),
        "after-the-entry": ("flintmq.lake.tables.commit_log:CommitLog.append", _AFTER),
    },
    "iceberg": {
        "before-the-entry": ("pyiceberg.catalog.sql:SqlCatalog.commit_table", _BEFORE),
        "after-the-entry": ("pyiceberg.catalog.sql:SqlCatalog.commit_table", _AFTER),
    },
}
WORKER_STEPS: dict[str, tuple[str, bool]] = {
    "worker-reading": ("flintmq.lake.syncing.range_writer:read_task", _BEFORE),
    "worker-drafted": ("flintmq.lake.store.local:LocalFileStore.publish", _BEFORE),
    "worker-published": ("flintmq.lake.store.local:LocalFileStore.publish", _AFTER),
    "worker-done": ("flintmq.lake.syncing.range_runner:write_range", _AFTER),
}


def dying(where: tuple[str, bool], may_die: Callable[[], bool] = lambda: True) -> None:
    """Let this process die before or after a function, the next time it is called and may."""
    path, is_after = where
    holder, _, name = path.rpartition("." if "." in path.rpartition(":")[2] else ":")
    function = pkgutil.resolve_name(path)

    def call(*args: Any, **options: Any) -> Any:
        if not is_after and may_die():
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **options)
        if is_after and may_die():
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(pkgutil.resolve_name(holder), name, call)


def main(address: str, topic: str, root: str, format: str, step: str) -> None:
    from flintmq.lake.syncing.options import make_options
    from flintmq.lake.syncing.sync import Sync
    from flintmq.spark.session import session

    settings: dict[str, object] = {"spark.driver.memory": "1g", "spark.log.level": "ERROR"}
    if step in WORKER_STEPS:
        settings["spark.python.daemon.module"] = "support.lake.dying_daemon"
        os.environ[STEP_VARIABLE] = f"{step} {root}.{step}"
    elif step != "none":
        dying({**DRIVER_STEPS, **COMMITS[format]}[step])
    spark = session(settings, master="local[2]")
    options = make_options(
        [topic], to=root, format=format, bootstrap_servers=address, decode="json", schema=SCHEMA
    )
    with Sync(spark, options) as sync:
        sync.run()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
