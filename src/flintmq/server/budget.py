"""Memory for unfinished requests, shared by all connections. Pure.

A connection is charged for the buffer that holds what has arrived of its frame, never for what the frame
claims. Over the limit a frame that wants to grow waits, all but one: the one that may always finish, so
that the budget can never lock up. Small frames are not charged and always pass.
"""

from __future__ import annotations

from collections.abc import Callable

NO_LIMIT = -1
_BOUNDLESS = 1 << 62


class Budget:
    def __init__(self, limit: int) -> None:
        self.limit = _BOUNDLESS if limit == NO_LIMIT else limit
        self.used = 0
        self._charged: dict[object, int] = {}
        self._waiting: dict[object, Callable[[], object]] = {}
        self._favoured: object | None = None

    def grow(self, owner: object, size: int, resume: Callable[[], object]) -> bool:
        """Charge `owner` for a buffer of `size` in all; if False it must wait until `resume` is called."""
        extra = size - self._charged.get(owner, 0)
        if self.used + extra > self.limit:
            if self._favoured is None:
                self._favoured = owner
            if self._favoured is not owner:
                self._waiting[owner] = resume
                return False
        self.used += extra
        self._charged[owner] = size
        return True

    def is_charged(self, owner: object) -> bool:
        return owner in self._charged

    def is_waiting(self, owner: object) -> bool:
        return owner in self._waiting

    def release(self, owner: object) -> None:
        """The frame is finished, or its connection gone."""
        self.used -= self._charged.pop(owner, 0)
        self._waiting.pop(owner, None)
        if self._favoured is owner:
            self._favoured = None
        if self._waiting and (self.used < self.limit or self._favoured is None):
            waiting, self._waiting = self._waiting, {}
            for resume in waiting.values():
                resume()
