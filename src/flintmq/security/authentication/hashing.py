"""Work that takes milliseconds, away from the event loop: one piece at a time, in a queue with a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from flintmq.effects import Executor
from flintmq.security.authentication.mechanism import SaslStep

WAITING_MAX: Final = 256

Work = Callable[[], SaslStep]
Done = Callable[[SaslStep | None, BaseException | None], object]


class HashingQueue:
    def __init__(self, executor: Executor, waiting_max: int = WAITING_MAX) -> None:
        self._executor = executor
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[Work, Done]] = deque()
        self._is_busy = False

    def submit(self, work: Work, done: Done) -> bool:
        """Run `work` in a thread, then `done` on the loop; False if too much is waiting already."""
        if not self._is_busy:
            self._start(work, done)
            return True
        if len(self._waiting) >= self._waiting_max:
            return False
        self._waiting.append((work, done))
        return True

    def _start(self, work: Work, done: Done) -> None:
        self._is_busy = True

        def finished(step: SaslStep | None, error: BaseException | None) -> None:
            # ORDER: the next piece begins first, whatever `done` raises.
            if self._waiting:
                self._start(*self._waiting.popleft())
            else:
                self._is_busy = False
            done(step, error)

        self._executor.submit(work, finished)
