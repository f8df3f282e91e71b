"""What messages travel on: links between named machines, and pipes over them.

Links have a direction, and any of them may be blocked. A pipe carries messages in order, as a TCP connection does:
over a blocked link they wait, and are delivered when the link opens again, or are lost when the pipe gives up.
Messages of different pipes overtake each other as the seed has it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from flintmq.testing.simulation.timeline import Timeline, TimelineEvent, Trace

Link = tuple[str, str]
"""From a machine to a machine."""

CLIENTS, STORE = "clients", "store"


def broker_name(node_id: int) -> str:
    return f"broker {node_id}"


class Wires:
    def __init__(self, timeline: Timeline, trace: Trace, seed: str) -> None:
        self.timeline = timeline
        self.trace = trace
        self.random = Random(seed)
        self.delay_s_min = 0.0002
        self.delay_s_max = 0.003
        self.extra_delay_s = 0.0
        """The most by which every message is delayed besides."""
        self._blocked: Counter[Link] = Counter()
        self._stalled: dict[Pipe, None] = {}

    def is_open(self, source: str, target: str) -> bool:
        return not self._blocked[source, target]

    def block(self, links: Iterable[Link]) -> None:
        self._blocked.update(links)

    def unblock(self, links: Iterable[Link]) -> None:
        self._blocked.subtract(links)
        stalled, self._stalled = self._stalled, {}
        for pipe in stalled:
            pipe.pump()

    def delay_s(self) -> float:
        delay_s = self.random.uniform(self.delay_s_min, self.delay_s_max)
        if self.extra_delay_s:
            delay_s += self.random.random() * self.extra_delay_s
        return delay_s

    def stall(self, pipe: Pipe) -> None:
        self._stalled[pipe] = None

    def forget(self, pipe: Pipe) -> None:
        self._stalled.pop(pipe, None)


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        wires: Wires,
        source: str,
        target: str,
        deliver: Callable[[Any], object],
        *,
        on_given_up: Callable[[], object] = lambda: None,
        patience_s: tuple[float, float] = (1.0, 20.0),
    ) -> None:
        """`on_given_up` is called when messages have waited for the link too long, and are lost."""
        self._wires = wires
        self.source = source
        self.target = target
        self._deliver = deliver
        self._on_given_up = on_given_up
        self._patience_s = patience_s
        self._queue: deque[tuple[float, Any]] = deque()
        self._last_s = 0.0
        self._giving_up: TimelineEvent | None = None
        self._is_closed = False
        self.stalled_since_s: float | None = None

    def send(self, message: Any) -> None:
        if self._is_closed:
            return
        timeline = self._wires.timeline
        self._last_s = max(self._last_s, timeline.now_s + self._wires.delay_s())
        self._queue.append((self._last_s, message))
        timeline.after(self._last_s - timeline.now_s, self.pump)

    def pump(self) -> None:
        """Deliver what has arrived, if the link is open."""
        timeline = self._wires.timeline
        while self._queue and self._queue[0][0] <= timeline.now_s:
            if not self._wires.is_open(self.source, self.target):
                self._wires.stall(self)
                if self._giving_up is None:
                    self.stalled_since_s = timeline.now_s
                    self._giving_up = timeline.after(
                        self._wires.random.uniform(*self._patience_s), self._give_up
                    )
                return
            self._end_stall()
            self._deliver(self._queue.popleft()[1])

    def close(self) -> None:
        """Lose what is on its way."""
        self._is_closed = True
        self._queue.clear()
        self._end_stall()
        self._wires.forget(self)

    def drop(self) -> None:
        """Lose what is on its way, and carry what comes later."""
        self._queue.clear()
        self._end_stall()
        self._wires.forget(self)

    def _end_stall(self) -> None:
        self.stalled_since_s = None
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _give_up(self) -> None:
        self._giving_up = None
        self.stalled_since_s = None
        self._wires.trace.note(f"{self.source} → {self.target} gave up")
        self._queue.clear()
        self._on_given_up()
