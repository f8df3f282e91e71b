"""Memory for answers that clients do not take, shared by all connections. Pure.

A connection whose answers pile up is not read from any more, so it holds little; but there may be many. Those
that hold something are known here, and when they hold more than the limit in all, the largest are dropped, the
one that has waited longest first among equals. A range of a file costs no memory and is not counted.
"""

from __future__ import annotations

from typing import Generic, TypeVar

O = TypeVar("O")  # noqa: E741 - an owner


class OutboundBudget(Generic[O]):
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._owners: dict[O, int] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def hold(self, owner: O, size: int) -> list[O]:
        """`owner` now holds `size` bytes. Returns those that must be dropped, and forgets them."""
        self.held += size - self._owners.get(owner, 0)
        self._owners[owner] = size
        dropped: list[O] = []
        while self.held > self.limit:
            largest = max(self._owners, key=self._owners.__getitem__)
            self.release(largest)
            dropped.append(largest)
        return dropped

    def release(self, owner: O) -> None:
        """Its answers are taken, or its connection gone."""
        self.held -= self._owners.pop(owner, 0)
