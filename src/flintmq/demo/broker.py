"""A broker in a thread of this process, on a free port of this machine.

    with DemoBroker(directory.broker) as broker:
        connect(broker.address)

In this process, so that nothing of it is left when the process is killed. Invariant: when the block is over, the
thread has ended and the port is free.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from flintmq.app.broker import Broker
from flintmq.app.serving import new_loop
from flintmq.settings import load

T = TypeVar("T")

_SETTINGS: Final = (
    ("listeners", "PLAINTEXT://127.0.0.1:0"),
    ("flint.rest.port", "-1"),
    # One worker reads one partition, and the demo's Spark has two.
    ("num.partitions", "2"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
)


class DemoBroker:
    def __init__(self, data_dir: str) -> None:
        self.address = ""
        self._data_dir = data_dir
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)

    def __enter__(self) -> DemoBroker:
        self._thread.start()
        try:
            self.address = self._run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._run(self._broker.stop())
        finally:
            self._end()

    async def _start(self) -> str:
        self._broker = Broker(
            load(command_line=[*_SETTINGS, ("log.dirs", self._data_dir)]), owns_process=False
        )
        started = await self._broker.start()
        return str(started.listeners[0]).partition("://")[2]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
