"""Spark in the demo, in a thread of its own: the session, the pipeline of the file, and the sync of the lake.

    with spark_session(directory) as spark: …

Spark's scratch files are in the demo's directory, its output in a log file. Invariant: when the block is over, the
Java process that was started has ended; when the thread of SparkWorker has ended, Spark and its Java have too.
`metrics.lake_orders` is what the table holds, not what was sent to it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from flintmq.demo.directory import DemoDirectory
from flintmq.demo.metrics import DemoMetrics, PipelineBatch, StoredRows, Window
from flintmq.demo.shop import CLICKS, ORDERS
from flintmq.errors import FlintError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flintmq.lake.syncing.metrics import TableCommit
    from flintmq.lake.tables.data_file import DataFile
    from flintmq.pipeline.runtime.progress import RunProgress


_LOG_LINES: Final = 20
_STOP_S: Final = 15.0
"""For batches under way, when somebody does not want to wait for what is left."""


class SparkFailed(FlintError):
    """With the end of Spark's log, which is removed with the folder."""


class SparkWorker:
    def __init__(self, directory: DemoDirectory, address: str, metrics: DemoMetrics) -> None:
        self.error: BaseException | None = None
        self._directory = directory
        self._address = address
        self._metrics = metrics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Asks for it; it is over when `is_over` says so."""
        self._stop.set()

    def _run(self) -> None:
        # Errors are raised by the conductor, in the thread that can end the demo.
        try:
            self._work()
        except FlintError as error:
            self.error = error
        except BaseException as error:
            self.error = SparkFailed(f"Spark failed: {error}\n{_last_lines(self._directory.log)}".rstrip())
            self.error.__cause__ = error

    def _work(self) -> None:
        from flintmq.pipeline import load
        from flintmq.pipeline.runtime.runner import RunOptions, run

        metrics = self._metrics
        metrics.stage = "Spark is starting"
        with spark_session(self._directory) as spark:
            if self._stop.is_set():
                return
            metrics.stage = "the pipeline is starting"
            pipeline = load(self._directory.pipeline, environment={"BROKERS": self._address})
            self._storing = LakeSync(spark, self._directory, self._address, metrics)
            self._storing.start()
            try:
                options = RunOptions(on_progress=self._look, stop_timeout_s=_STOP_S)
                run(spark, pipeline, stop=self._stop, options=options)
            finally:
                self._storing.finish()
                metrics.stage = "Spark is stopping"

    def _look(self, state: str, run: RunProgress) -> None:
        """Called every moment, in this thread."""
        if self._storing.error is not None:
            raise self._storing.error
        self._metrics.stage = f"the pipeline is {state}"
        for name, sink in run.sinks.items():
            if sink.rows:
                self._metrics.batches[name] = PipelineBatch(sink.rows, sink.batch_ms / 1000)
        self._metrics.lake_clicks = stored(self._directory.lake, CLICKS)
        self._metrics.windows = revenue_windows(self._directory.lake)


def _last_lines(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-_LOG_LINES:])


REVENUE: Final = "revenue"
_EVERY_S: Final = 2.0
_FORMAT: Final = "delta"


class LakeSync:
    def __init__(
        self, spark: SparkSession, directory: DemoDirectory, address: str, metrics: DemoMetrics
    ) -> None:
        from flintmq.lake.syncing.options import make_options
        from flintmq.lake.syncing.sync import Sync

        self.error: BaseException | None = None
        self._lake = directory.lake
        self._metrics = metrics
        options = make_options([ORDERS], to=directory.lake, format=_FORMAT, bootstrap_servers=address)
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

    def _committed(self, commit: TableCommit) -> None:
        self._metrics.lake_orders = stored(self._lake, ORDERS)


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


_MASTER: Final = "local[2]"


@contextmanager
def spark_session(directory: DemoDirectory) -> Iterator[SparkSession]:
    from flintmq.spark.jvm import own_java
    from flintmq.spark.session import session

    os.makedirs(directory.spark, exist_ok=True)
    with own_java():
        with _heard_by(directory.log):
            spark = session(
                {
                    "spark.driver.memory": "1g",
                    "spark.sql.shuffle.partitions": 1,
                    "spark.sql.session.timeZone": "UTC",
                    "spark.sql.warehouse.dir": os.path.join(directory.spark, "warehouse"),
                    "spark.local.dir": os.path.join(directory.spark, "local"),
                    # Where Java unpacks the libraries that it loads.
                    "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={directory.spark}",
                },
                master=_MASTER,
                app_name="flintmq-demo",
            )
        yield spark


@contextmanager
def _heard_by(path: str) -> Iterator[None]:
    """Processes that are started within write their output and errors to a file.

    Spark gives no other way to say where its Java writes. The demo's own screen has a descriptor of its own.
    """
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in kept:
            os.dup2(log, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(log)
