"""One simulated process: an event loop that a world steps, the clock of its machine, and threads that take time.

A loop runs a number of iterations when the world says so and never waits. A process that is killed is not stepped
again: no `finally` block of it runs while the world lives. Invariant: what comes from outside comes through `post`,
and nothing comes to a process that is dead.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from flintmq.testing.simulation.timeline import Timeline

T = TypeVar("T")

START_MS = 1_700_000_000_000
# asyncio runs timers that are due within the resolution of the system's clock.
_RESOLUTION_S = 1e-9


class MachineClock:
    """The clock of one machine: it may run fast or slow, and its wall time may jump."""

    def __init__(self, timeline: Timeline, start_ms: int = START_MS) -> None:
        self._timeline = timeline
        self._wall_ms = start_ms
        self._rate = 1.0
        self._began_s = timeline.now_s
        self._elapsed_s = 0.0

    def monotonic(self) -> float:
        return self._elapsed_s + (self._timeline.now_s - self._began_s) * self._rate

    def now_ms(self) -> int:
        return self._wall_ms + int(self.monotonic() * 1000)

    def jump(self, by_ms: int) -> None:
        """Set the wall time forward or back."""
        self._wall_ms += by_ms

    def set_rate(self, rate: float) -> None:
        """Let `rate` seconds pass here in each second of the world."""
        self._elapsed_s, self._began_s = self.monotonic(), self._timeline.now_s
        self._rate = rate

    def reboot(self) -> None:
        """Begin monotonic time again; the wall time goes on."""
        self._wall_ms += int(self.monotonic() * 1000)
        self._elapsed_s, self._began_s = 0.0, self._timeline.now_s

    def world_time(self, monotonic_s: float) -> float:
        """Return when the world's time will be that of this clock."""
        return self._began_s + (monotonic_s - self._elapsed_s) / self._rate


class _SteppedSelector(selectors.BaseSelector):
    """Stands where a loop would wait, and stops the loop there, or when its iterations are used up."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.stop: Callable[[], None] = lambda: None
        self.iterations_left = 0
        self.is_idle = False
        self.wait_s: float | None = None
        """How long an idle loop would wait; None for ever."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.iterations_left -= 1
        self.is_idle = timeout is None or timeout > _RESOLUTION_S
        if self.is_idle:
            self.wait_s = timeout
        if self.is_idle or self.iterations_left <= 0:
            self.stop()
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class _SteppedLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: MachineClock, selector: _SteppedSelector) -> None:
        self._machine_clock = clock
        super().__init__(selector)

    def time(self) -> float:
        return self._machine_clock.monotonic()


class SimulatedProcess:
    def __init__(self, name: str, timeline: Timeline, clock: MachineClock) -> None:
        self.name = name
        self.clock = clock
        self.timeline = timeline
        self._selector = _SteppedSelector()
        self.loop: asyncio.AbstractEventLoop = _SteppedLoop(clock, self._selector)
        self._selector.stop = self.loop.stop
        self.loop.set_exception_handler(self._failed)
        self.is_alive = True
        self.is_paused = False
        self.busy_until_s = 0.0
        """World time until which the loop is held up, by a slow disk for instance."""
        self.failure: BaseException | None = None
        """What a callback or a task that nobody waits for raised."""
        self._has_mail = True

    # ---- for the world

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Call on the loop."""
        if self.is_alive:
            self._has_mail = True
            self.loop.call_soon(callback, *args)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        self._has_mail = True
        return self.loop.create_task(work)

    def ready_s(self) -> float | None:
        """Return the world's time from which on the process has something to do; None if it waits for others."""
        if not self.is_alive or self.is_paused:
            return None
        if self._has_mail or not self._selector.is_idle:
            return self.busy_until_s
        if self._selector.wait_s is None:
            return None
        return max(self.busy_until_s, self._due_s)

    def turn(self, iterations: int) -> None:
        """Run up to that many iterations of the loop, as many as there is something to do."""
        self._has_mail = False
        self._selector.iterations_left = iterations
        self.loop.run_forever()
        if self._selector.is_idle and self._selector.wait_s is not None:
            self._due_s = self.clock.world_time(self.clock.monotonic() + self._selector.wait_s)
        if self.failure is not None and self.is_alive:
            failure, self.failure = self.failure, None
            raise failure

    def retime(self) -> None:
        """The clock runs at another rate: look again when timers are due."""
        self._has_mail = True

    def abandon(self) -> None:
        """Let the process be dead: nothing of it runs again."""
        self.is_alive = False
        self._selector.iterations_left = 0
        self.loop.stop()

    def dispose(self) -> None:
        """Free the loop of an abandoned process, at the end of a world."""
        self.loop.set_exception_handler(lambda loop, context: None)
        if not self.loop.is_closed():
            self.loop.close()

    _due_s = 0.0

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_alive and error is not None and self.failure is None:
            self.failure = error
            loop.stop()


class DiskTime:
    """For how long a slow disk holds up its users."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def leave_thread(self, before_s: float) -> float:
        """Return what was spent since then: in a thread, so that the loop is not held up."""
        taken_s, self.spent_s = self.spent_s - before_s, before_s
        return taken_s

    def leave_loop(self) -> float:
        """Return what was spent on the loop."""
        taken_s, self.spent_s = self.spent_s, 0.0
        return taken_s


class TimedExecutor:
    """Threads whose work takes time: by the seed, and as long as the disk makes it."""

    def __init__(self, process: SimulatedProcess, seed: str, *, work_s_max: float = 0.002) -> None:
        self._process = process
        self._random = Random(seed)
        self._work_s_max = work_s_max
        self.disk_time = DiskTime()

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        process = self._process

        def step() -> None:
            before_s = self.disk_time.spent_s
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            self._later(self.disk_time.leave_thread(before_s), done, result, error)

        process.timeline.after(self._delay_s(), lambda: process.post(step))

    def run(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        future: asyncio.Future[T] = self._process.loop.create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None is a T where no error came

        self.submit(lambda: work(*args), done)
        return future

    def _later(self, cost_s: float, done: Callable[..., object], result: object, error: object) -> None:
        process = self._process
        process.timeline.after(cost_s + self._delay_s(), lambda: process.post(done, result, error))

    def _delay_s(self) -> float:
        return self._random.random() * self._work_s_max
