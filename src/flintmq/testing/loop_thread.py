"""An event loop in a thread of its own, for a broker beside the test that uses it.

Signals, the current loop of the calling thread and the loop policy are left alone. Invariant: when `stop`
returns, the thread has ended and the loop is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from flintmq.app.serving import new_loop

T = TypeVar("T")

TIMEOUT_S = 10.0
"""How long a test waits for something that happens in the broker's thread."""


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = new_loop()
        # A test that forgets its broker must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for what it gives or raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, work: Callable[..., T], *args: Any) -> T:
        """The same for a function; nothing else runs on the loop meanwhile."""

        async def called() -> T:
            return work(*args)

        return self.run(called())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _cancel_all() -> None:
    """What a broker that failed to start left behind."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def wait_until(
    condition: threading.Condition,
    is_so: Callable[[], bool],
    timeout_s: float,
    complaint: Callable[[], str],
) -> None:
    """Wait until `is_so`, which changes only under `condition`. Raise TimeoutError with the complaint else."""
    with condition:
        if not condition.wait_for(is_so, timeout_s):
            raise TimeoutError(complaint())
