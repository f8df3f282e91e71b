"""Memory for unfinished requests, shared by all connections. Pure.

A connection is charged for the buffer that holds what has arrived of its frame, never for what the frame
claims. Over the limit a frame that wants to grow waits, all but one: the one that may always finish, so
that the budget can never lock up. Small frames are not charged and always pass.

A buffer may outlive its frame, for the next one; it stays charged, and is taken back when others need room.
Invariant: while somebody waits, nobody keeps a buffer without need.

Many large frames that all wait for each other may fill the budget, and the one that may finish may not care to.
Nobody is at fault alone then: whoever sees that `finished` stands still gives up the `heaviest`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NO_LIMIT: Final = -1
_BOUNDLESS: Final = 1 << 62


class InboundBudget:
    def __init__(self, limit: int) -> None:
        self.limit = _BOUNDLESS if limit == NO_LIMIT else limit
        self.used = 0
        self.finished = 0
        """Frames that were charged for and are complete."""
        self._charged: dict[object, int] = {}
        self._waiting: dict[object, Callable[[], object]] = {}
        self._kept: dict[object, Callable[[], object]] = {}
        self._favoured: object | None = None

    def grow(self, owner: object, size: int, resume: Callable[[], object]) -> bool:
        """Charge `owner` for a buffer of `size` in all; if False it must wait until `resume` is called."""
        extra = size - self._charged.get(owner, 0)
        if self.used + extra > self.limit:
            self._take_back()
        if self.used + extra > self.limit:
            if self._favoured is None:
                self._favoured = owner
            if self._favoured is not owner:
                self._waiting[owner] = resume
                return False
        self.used += extra
        self._charged[owner] = size
        return True

    def keep(self, owner: object, take_back: Callable[[], object]) -> None:
        """The frame is finished; its buffer stays until `take_back` is called, or `use` says that it is used."""
        if owner not in self._charged:
            return
        self.finished += 1
        if self._waiting or self.used > self.limit:
            take_back()
            self.release(owner)
            return
        if self._favoured is owner:
            self._favoured = None
        self._kept[owner] = take_back

    def use(self, owner: object) -> None:
        """The next frame begins in the buffer that was kept."""
        self._kept.pop(owner, None)

    def _take_back(self) -> None:
        kept, self._kept = self._kept, {}
        for owner, take_back in kept.items():
            take_back()
            self.used -= self._charged.pop(owner)

    @property
    def waiting(self) -> int:
        """Owners that may not grow now."""
        return len(self._waiting)

    def heaviest(self) -> list[object]:
        """The owners of the largest buffers, which make up half of what is used."""
        found: list[object] = []
        left = self.used // 2
        for owner in sorted(self._charged, key=self._charged.__getitem__, reverse=True):
            if left <= 0:
                break
            left -= self._charged[owner]
            found.append(owner)
        return found

    def is_charged(self, owner: object) -> bool:
        return owner in self._charged

    def is_waiting(self, owner: object) -> bool:
        return owner in self._waiting

    def release(self, owner: object) -> None:
        """The buffer is given back, or its connection gone."""
        self.used -= self._charged.pop(owner, 0)
        self._kept.pop(owner, None)
        self._waiting.pop(owner, None)
        if self._favoured is owner:
            self._favoured = None
        if self._waiting and (self.used < self.limit or self._favoured is None):
            waiting, self._waiting = self._waiting, {}
            for resume in waiting.values():
                resume()
