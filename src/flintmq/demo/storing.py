"""All orders as they are, synced to a Delta table, in a thread of its own; and what tables of the lake hold.

Invariant: `figures.lake_orders` is what the table holds, not what was sent to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from flintmq.demo.figures import DemoFigures, StoredRows, Window
from flintmq.demo.folder import Folder
from flintmq.demo.shop import ORDERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.lake.syncing.metrics import Commit
    from flintmq.lake.tables.data_file import DataFile

REVENUE: Final = "revenue"
_EVERY_S: Final = 2.0
_FORMAT: Final = "delta"


class Storing:
    def __init__(self, spark: SparkSession, folder: Folder, address: str, figures: DemoFigures) -> None:
        from flintmq.lake.syncing.options import make_options
        from flintmq.lake.syncing.sync import Sync

        self.error: BaseException | None = None
        self._lake = folder.lake
        self._figures = figures
        options = make_options([ORDERS], to=folder.lake, format=_FORMAT, bootstrap_servers=address)
        self._sync = Sync(spark, options, on_commit=self._committed)
        self._thread = threading.Thread(target=self._run, name="lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._sync.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._sync:
                self._sync.follow(interval_s=_EVERY_S)
        except BaseException as error:
            # Raised by the conductor, in the thread that can end the demo.
            self.error = error

    def _committed(self, commit: Commit) -> None:
        self._figures.lake_orders = stored(self._lake, ORDERS)


def stored(lake: str, name: str) -> StoredRows:
    """What a table of the lake holds; nothing if there is none yet."""
    found = StoredRows()
    for one in _files(lake, name):
        found.rows, found.files, found.bytes = found.rows + one.rows, found.files + 1, found.bytes + one.size
    return found


def revenue_windows(lake: str) -> dict[tuple[str, str], Window]:
    """The table that the pipeline writes anew in each batch, by country and begin."""
    import pyarrow.parquet as pq

    found = {}
    for one in _files(lake, REVENUE):
        rows = pq.read_table(os.path.join(lake, REVENUE, one.path))
        for row in rows.to_pylist():
            found[row["country"], row["begins"].isoformat()] = Window(row["revenue"], row["orders"])
    return found


def _files(lake: str, name: str) -> Iterable[DataFile]:
    from flintmq.lake.tables.factory import open_table

    table = open_table(lake, name, _FORMAT)
    state = table.state()
    return () if state is None else table.files(state)
