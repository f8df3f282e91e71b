"""Spark at work, in a thread of its own: the pipeline of the file and the lake, from start to stop.

Invariant: when the thread has ended, Spark and its Java have too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from flintmq.demo.figures import DemoFigures, PipelineBatch
from flintmq.demo.folder import Folder
from flintmq.demo.java import spark_session
from flintmq.demo.shop import CLICKS
from flintmq.demo.storing import Storing, revenue_windows, stored
from flintmq.errors import FlintError

if TYPE_CHECKING:
    from flintmq.pipeline.runtime.progress import RunProgress as RunFigures

_LOG_LINES: Final = 20
_STOP_S: Final = 15.0
"""For batches under way, when somebody does not want to wait for what is left."""


class SparkFailed(FlintError):
    """With the end of Spark's log, which is removed with the folder."""


class Working:
    def __init__(self, folder: Folder, address: str, figures: DemoFigures) -> None:
        self.error: BaseException | None = None
        self._folder = folder
        self._address = address
        self._figures = figures
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
            self.error = SparkFailed(f"Spark failed: {error}\n{_last_lines(self._folder.log)}".rstrip())
            self.error.__cause__ = error

    def _work(self) -> None:
        from flintmq.pipeline import load
        from flintmq.pipeline.runtime.runner import RunOptions, run

        figures = self._figures
        figures.stage = "Spark is starting"
        with spark_session(self._folder) as spark:
            if self._stop.is_set():
                return
            figures.stage = "the pipeline is starting"
            pipeline = load(self._folder.pipeline, environment={"BROKERS": self._address})
            self._storing = Storing(spark, self._folder, self._address, figures)
            self._storing.start()
            try:
                options = RunOptions(on_progress=self._look, stop_timeout_s=_STOP_S)
                run(spark, pipeline, stop=self._stop, options=options)
            finally:
                self._storing.finish()
                figures.stage = "Spark is stopping"

    def _look(self, state: str, run: RunFigures) -> None:
        """Called every moment, in this thread."""
        if self._storing.error is not None:
            raise self._storing.error
        self._figures.stage = f"the pipeline is {state}"
        for name, sink in run.sinks.items():
            if sink.rows:
                self._figures.batches[name] = PipelineBatch(sink.rows, sink.batch_ms / 1000)
        self._figures.lake_clicks = stored(self._folder.lake, CLICKS)
        self._figures.windows = revenue_windows(self._folder.lake)


def _last_lines(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-_LOG_LINES:])
