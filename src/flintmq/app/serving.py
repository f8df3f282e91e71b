"""Running a broker until a signal says stop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from flintmq.app.broker import Broker, StartupReport
from flintmq.app.observability.logs import Logs
from flintmq.settings import LoadedSettings

if TYPE_CHECKING:
    from flintmq.app.observability.profiler import Profiler


def serve(
    loaded: LoadedSettings, *, begun: Callable[[Broker], object], ready: Callable[[StartupReport], object]
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. A second signal exits at once. SIGHUP reads certificates
    and an ACL file again.

    `begun` is called before the broker starts, which may take long, and `ready` once clients may connect.
    """
    logs = Logs(loaded.broker)
    logs.start()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(loaded, begun, ready))
    finally:
        logs.stop()


async def _serve(
    loaded: LoadedSettings, begun: Callable[[Broker], object], ready: Callable[[StartupReport], object]
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    broker = Broker(loaded)
    begun(broker)
    started = await broker.start()
    profiler = _start_profiler(loaded, loop) if loaded.broker.flint_profile else None

    def follow_hangups() -> None:
        if broker.has_files:
            # Without such files the signal ends the process, as a closed terminal should.
            loop.add_signal_handler(signal.SIGHUP, broker.reload)

    broker.on_listeners_changed = follow_hangups
    follow_hangups()
    ready(started)
    waits = [asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(broker.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await broker.stop()
    if profiler is not None:
        profiler.stop()
    return 1 if broker.failed.is_set() else 0


def _start_profiler(loaded: LoadedSettings, loop: asyncio.AbstractEventLoop) -> Profiler:
    from flintmq.app.observability.profiler import Profiler  # nobody else pays for it at the start

    profiler = Profiler(os.path.abspath(loaded.broker.log_dirs[0]))
    loop.add_signal_handler(signal.SIGUSR2, profiler.write_soon)
    profiler.start()
    return profiler


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
