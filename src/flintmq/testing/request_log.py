"""What clients asked, in the order in which the broker heard it. Bounded: the oldest are forgotten.

Written by the broker's thread, read by the test's. It must not know what a request means.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from flintmq.testing.loop_thread import TIMEOUT_S, wait_until

KEPT = 10_000


class SeenRequest(NamedTuple):
    api: str
    version: int
    client_id: str | None


class RequestLog:
    def __init__(self, kept: int = KEPT) -> None:
        self._changed = threading.Condition()
        self._seen: deque[SeenRequest] = deque(maxlen=kept)
        self._counts: dict[str, int] = {}

    def add(self, request: SeenRequest) -> None:
        with self._changed:
            self._seen.append(request)
            self._counts[request.api] = self._counts.get(request.api, 0) + 1
            self._changed.notify_all()

    def __iter__(self) -> Iterator[SeenRequest]:
        """Those seen up to now."""
        with self._changed:
            return iter(list(self._seen))

    def __len__(self) -> int:
        return len(self._seen)

    def of(self, api: str) -> list[SeenRequest]:
        """Those of one API, by its name."""
        return [request for request in self if request.api == api]

    def count(self, api: str) -> int:
        """How many there were of one API since the beginning or the last `clear`, also those forgotten."""
        with self._changed:
            return self._counts.get(api, 0)

    def wait_for(self, api: str, count: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Return once `count` of this API have been seen; TimeoutError if they do not come."""
        wait_until(
            self._changed,
            lambda: self._counts.get(api, 0) >= count,
            timeout_s,
            lambda: f"{self._counts.get(api, 0)} of {count} {api} requests came within {timeout_s} s",
        )

    def clear(self) -> None:
        with self._changed:
            self._seen.clear()
            self._counts.clear()
