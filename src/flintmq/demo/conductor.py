"""A demo from its beginning to its end: who starts when, who waits for whom, and what is told.

    conduct(seconds=60, rate=500, keep=None, show=TerminalDisplay(...)) -> exit code

    directory → broker → shop and view → Spark → pipeline and lake        and back in the opposite order

Invariant: the shop stops first; then all that is on its way is waited for, so that the sums of the summary are of a
demo at rest. A first signal stops the shop; a second one the waiting.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from flintmq.demo.broker import DemoBroker
from flintmq.demo.clients import ResultConsumer, ShopProducer
from flintmq.demo.directory import DemoDirectory, demo_directory
from flintmq.demo.metrics import DemoMetrics
from flintmq.demo.spark import SparkWorker
from flintmq.demo.view import Scene, summary
from flintmq.effects.signals import SignalHandler

_LOOK_S: Final = 0.25
_SAMPLE_S: Final = 1.0
_STUCK_S: Final = 90.0
"""Without any progress, on a machine that has other things to do; usually the whole wait is a few seconds."""
_END_S: Final = 120.0

OK, FAILED, INTERRUPTED = 0, 1, 130


class Display(Protocol):
    """Where it is seen."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *_: object) -> None: ...

    def update(self, metrics: DemoMetrics, scene: Scene) -> None: ...

    def tell(self, lines: list[str]) -> None:
        """After the end."""


class StopRequests:
    """How often the user has asked for the end."""

    def __init__(self) -> None:
        self.count = 0
        self.came = threading.Event()

    def add(self, number: signal.Signals) -> None:
        self.count += 1
        self.came.set()


def conduct(*, seconds: float, rate: float, keep: str | None, seed: int, show: Display) -> int:
    metrics = DemoMetrics()
    requests = StopRequests()
    with SignalHandler(requests.add):
        with (
            demo_directory(keep) as directory,
            _logged(directory),
            show,
            DemoBroker(directory.broker) as broker,
        ):
            stage = _Performance(directory, broker.address, metrics, requests, show, seconds=seconds)
            stage.perform(rate=rate, seed=seed)
        lines = summary(metrics, kept=directory.path if keep is not None else None)
        if requests.count > 1:
            show.tell(["Interrupted: what was on its way was not waited for.", *lines])
            return INTERRUPTED
        show.tell(lines)
    return OK if metrics.is_done else FAILED


class _Performance:
    def __init__(
        self,
        directory: DemoDirectory,
        address: str,
        metrics: DemoMetrics,
        requests: StopRequests,
        show: Display,
        *,
        seconds: float,
    ) -> None:
        self._directory = directory
        self._address = address
        self._metrics = metrics
        self._requests = requests
        self._show = show
        self._seconds = seconds
        self._begun = time.monotonic()
        self._sampled = 0.0
        with open(directory.pipeline, encoding="utf-8") as file:
            self._file = file.read()

    def perform(self, *, rate: float, seed: int) -> None:
        metrics, requests = self._metrics, self._requests
        shop = ShopProducer(self._address, metrics, rate=rate, seconds=self._seconds, seed=seed)
        watching = ResultConsumer(self._address, metrics)
        working = SparkWorker(self._directory, self._address, metrics)
        parts = (shop, watching, working)
        for part in parts:
            part.start()
        try:
            while not (shop.is_over or requests.count):
                self._look(parts)
            shop.finish()
            self._await_rest(parts)
        finally:
            # ORDER: Spark before the broker that it reads from, and the view last, which shows what Spark does.
            shop.finish()
            working.stop()
            give_up = time.monotonic() + _END_S
            # Java that does not end by then ends with this process, which holds its input.
            while not working.is_over and time.monotonic() < give_up:
                self._look(())
            watching.finish()

    def _await_rest(self, parts: tuple[ShopProducer | ResultConsumer | SparkWorker, ...]) -> None:
        """Until all that was sent has come out, or nothing moves any more."""
        seen: object = None
        moved = time.monotonic()
        while not self._metrics.is_done and self._requests.count < 2:
            now = (self._metrics.stage, self._metrics.sums())
            if now != seen:
                seen, moved = now, time.monotonic()
            elif time.monotonic() - moved > _STUCK_S:
                return
            self._look(parts)

    def _look(self, parts: tuple[ShopProducer | ResultConsumer | SparkWorker, ...]) -> None:
        for part in parts:
            if part.error is not None:
                raise part.error
        now = time.monotonic()
        if now - self._sampled >= _SAMPLE_S:
            self._sampled = now
            self._metrics.sample(now)
        self._show.update(
            self._metrics,
            Scene(now - self._begun, self._seconds, self._address, self._file, self._directory.pipeline),
        )
        if self._requests.came.wait(_LOOK_S):
            self._requests.came.clear()


@contextmanager
def _logged(directory: DemoDirectory) -> Iterator[None]:
    """What parts of the demo have to say goes where Spark's words go: the screen belongs to the view."""
    handler = logging.FileHandler(directory.log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
