"""One thread of virtual time: a clock, an asyncio loop that never waits, threads that are only steps of it.

Time moves only when nothing is ready, and then straight to the next timer, so an hour of timeouts runs in
milliseconds. Executor work runs on the loop, after a number of steps that the seed chooses, and its result
comes back after another such number. Invariant: the same seed and program give the same order of steps.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class SimulatedClock:
    """Moved by its loop. `start_ms` is the wall time at the beginning."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + int(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds


class SimulatedRandom:
    def __init__(self, seed: int | str) -> None:
        self._random = Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class _VirtualTime(selectors.BaseSelector):
    """Stands where a loop would wait for sockets, and moves the clock instead."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.horizon = math.inf
        """Monotonic time beyond which the clock must not go; `reached` is called there."""
        self.reached: Callable[[], None] = lambda: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return []
        now = self._clock.monotonic()
        due = math.inf if timeout is None else now + timeout
        if due > self.horizon:
            self._clock.advance(max(0.0, self.horizon - now))
            self.reached()
        elif timeout is None:
            raise RuntimeError("deadlock: nothing is ready, no timer is set, and the loop is waited for")
        else:
            self._clock.advance(timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; it is the `Timers` effect too. Close it when done.

    A callback or an abandoned task that raises makes the run raise, instead of being logged only.
    """

    def __init__(self, clock: SimulatedClock) -> None:
        self._virtual_time = _VirtualTime(clock)
        self._failure: BaseException | None = None
        self.clock = clock
        super().__init__(self._virtual_time)
        self._virtual_time.reached = self.stop
        self.set_exception_handler(SimulatedLoop._remember)

    def time(self) -> float:
        return self.clock.monotonic()

    def run_until_idle(self) -> None:
        """Run all that can run without time passing."""
        self.advance(0.0)

    def advance(self, seconds: float) -> None:
        """Let time pass, firing every timer on the way at its own moment."""
        self._virtual_time.horizon = self.clock.monotonic() + seconds
        try:
            self.run_forever()
        finally:
            self._virtual_time.horizon = math.inf

    def run_forever(self) -> None:
        super().run_forever()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @staticmethod
    def _remember(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(loop, SimulatedLoop)
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        elif loop._failure is None:
            loop._failure = error
            loop.stop()


class SimulatedExecutor:
    """Threads as steps of the loop: work submitted together may run in any order, by the seed."""

    def __init__(self, loop: SimulatedLoop, seed: int, *, steps_max: int = 4) -> None:
        self._loop = loop
        self._random = Random(seed)
        self._steps_max = steps_max

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        def step() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            self._after_some_steps(lambda: done(result, error))

        self._after_some_steps(step)

    def run(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None is a T where no error came

        self.submit(lambda: work(*args), done)
        return future

    def _after_some_steps(self, action: Callable[[], object]) -> None:
        def hop(left: int) -> None:
            if left:
                self._loop.call_soon(hop, left - 1)
            else:
                action()

        self._loop.call_soon(hop, self._random.randint(0, self._steps_max))
