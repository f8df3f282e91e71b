"""Work that takes milliseconds, away from the event loop: one piece at a time, in a queue with a bound.

Addresses take turns, so that one that sends wrong passwords without end does not keep others out. When the queue is
full, the address with the most work in it gives up its last piece for another address.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from flintmq.effects import Executor
from flintmq.security.authentication.mechanism import SaslStep, SaslUnavailable

WAITING_MAX: Final = 256
TOO_MANY: Final = "too many authentications wait for their turn"

Work = Callable[[], SaslStep]
Done = Callable[[SaslStep | None, BaseException | None], object]


class HashingQueue:
    def __init__(self, executor: Executor, waiting_max: int = WAITING_MAX) -> None:
        self._executor = executor
        self._waiting_max = waiting_max
        # By address, the one whose turn is next first.
        self._waiting: dict[str, deque[tuple[Work, Done]]] = {}
        self._count = 0
        self._is_busy = False

    def submit(self, work: Work, done: Done, host: str) -> bool:
        """Run `work` in a thread, then `done` on the loop; False if too much is waiting already.

        `done` gets SaslUnavailable if the work has to give way later.
        """
        if not self._is_busy:
            self._start(work, done)
            return True
        if self._count >= self._waiting_max and not self._make_room(host):
            return False
        self._waiting.setdefault(host, deque()).append((work, done))
        self._count += 1
        return True

    def _make_room(self, host: str) -> bool:
        """Drop the last piece of the address with the most, unless `host` would then have as many."""
        most = max(self._waiting, key=lambda one: len(self._waiting[one]))
        if len(self._waiting[most]) <= len(self._waiting.get(host, ())) + 1:
            return False
        _, done = self._waiting[most].pop()
        self._count -= 1
        done(None, SaslUnavailable(TOO_MANY))
        return True

    def _next(self) -> tuple[Work, Done] | None:
        if not self._waiting:
            return None
        host = next(iter(self._waiting))
        pieces = self._waiting.pop(host)
        piece = pieces.popleft()
        self._count -= 1
        if pieces:
            self._waiting[host] = pieces
        return piece

    def _start(self, work: Work, done: Done) -> None:
        self._is_busy = True

        def finished(step: SaslStep | None, error: BaseException | None) -> None:
            # ORDER: the next piece begins first, whatever `done` raises.
            following = self._next()
            if following is not None:
                self._start(*following)
            else:
                self._is_busy = False
            done(step, error)

        self._executor.submit(work, finished)
