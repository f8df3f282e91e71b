"""Running a broker until a signal says stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable

from flintmq.app.broker import Broker, Started
from flintmq.settings import Loaded


def serve(loaded: Loaded, ready: Callable[[Started], object]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. A second signal exits at once."""
    configure_logging(loaded.broker.flint_log_level)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(loaded, ready))


async def _serve(loaded: Loaded, ready: Callable[[Started], object]) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    broker = Broker(loaded)
    ready(await broker.start())
    waits = [asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(broker.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await broker.stop()
    return 1 if broker.failed.is_set() else 0


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def configure_logging(level: str) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", level=level)
