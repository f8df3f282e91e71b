"""Handling of SIGINT and SIGTERM while a command runs.

    with SignalHandler(lambda number: sync.stop()):
        sync.run()

Invariant: the handlers that were there before are restored at the end. Python handles signals in the main thread
only; elsewhere nothing is installed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, NoReturn

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class SignalHandler:
    def __init__(
        self,
        handle: Callable[[signal.Signals], object],
        numbers: tuple[signal.Signals, ...] = STOP_SIGNALS,
    ) -> None:
        """Call `handle` with the number of each signal that comes, in the main thread."""
        self._handle = handle
        self._numbers = numbers if threading.current_thread() is threading.main_thread() else ()

    def __enter__(self) -> SignalHandler:
        self._before = {number: signal.getsignal(number) for number in self._numbers}
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Handle signals from now on; called again after a library has installed handlers of its own."""
        for number in self._numbers:
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._handle(signal.Signals(number))


def end_now(number: signal.Signals) -> NoReturn:
    """End the program by an exception, so that cleaning up still runs; one more signal ends it without that."""
    signal.signal(number, signal.SIG_DFL)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
