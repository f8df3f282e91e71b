"""The script of a test's faults: which requests go wrong, how, and how often.

    broker.faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    broker.faults.delay("Fetch", seconds=0.5, topic="orders")
    broker.faults.drop("Metadata", client_id="app-1")
    broker.faults.close("Produce", when="after")

A fault holds for requests that arrive after it was set: for the next `times` of them, or with `times=None`
until it is cleared. Where several fit, the one set first is used up first. This module keeps the script;
`interception` carries it out.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, get_args

from flintmq.broker.apis import APIS
from flintmq.errors import ErrorCode
from flintmq.testing.loop_thread import TIMEOUT_S, wait_until

When = Literal["before", "after"]
"""Whether a fault comes before the request takes effect, which it then may never do, or after."""

_NAMES = [api.name for api in APIS]


@dataclass(frozen=True, slots=True)
class Fail:
    """Answered with this error."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Delay:
    """Answered so much later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Never answered."""


@dataclass(frozen=True, slots=True)
class Close:
    """The connection is closed instead of an answer."""


Action = Fail | Delay | Drop | Close


class Fault:
    """One line of the script. As a context manager it is cleared at the end of the block."""

    def __init__(
        self,
        script: Faults,
        api: str,
        action: Action,
        *,
        topic: str | None,
        client_id: str | None,
        when: When,
        times: int | None,
        changed: threading.Condition,
    ) -> None:
        self.api = api
        self.action = action
        self.topic = topic
        self.client_id = client_id
        self.when = when
        self.times_left = times
        """None if it holds until it is cleared."""
        self.hits = 0
        """How many requests it has met."""
        self._script = script
        self._changed = changed

    def __repr__(self) -> str:
        return f"Fault({self.api}, {self.action}, when={self.when!r}, hits={self.hits})"

    def wait(self, hits: int = 1, *, timeout_s: float = TIMEOUT_S) -> None:
        """Return once it has met so many requests; TimeoutError if they do not come."""
        wait_until(
            self._changed,
            lambda: self.hits >= hits,
            timeout_s,
            lambda: f"{self} met {self.hits} of {hits} requests within {timeout_s} s",
        )

    def clear(self) -> None:
        self._script.remove(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()


class Faults:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._faults: list[Fault] = []

    # ---- for the test

    def fail(
        self,
        api: str,
        *,
        error: str | int | ErrorCode,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
        when: When = "before",
    ) -> Fault:
        """Answer with an error, by Kafka's name or number.

        With `when="after"` the request takes effect all the same, as when a broker fails before it can say so.
        """
        return self._add(api, Fail(_code(error)), times, topic, client_id, when)

    def delay(
        self,
        api: str,
        *,
        seconds: float,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
        when: When = "before",
    ) -> Fault:
        """Wait before the request is handled, or with `when="after"` before its answer is sent."""
        if seconds < 0:
            raise ValueError("a delay cannot be negative")
        return self._add(api, Delay(seconds), times, topic, client_id, when)

    def drop(
        self,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
        when: When = "before",
    ) -> Fault:
        """Never answer; since answers come in order, none comes after it on that connection either."""
        return self._add(api, Drop(), times, topic, client_id, when)

    def close(
        self,
        api: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
        when: When = "before",
    ) -> Fault:
        """Close the connection instead of answering."""
        return self._add(api, Close(), times, topic, client_id, when)

    def clear(self) -> None:
        """Forget all faults. Requests that were dropped stay unanswered."""
        with self._changed:
            self._faults.clear()

    def remove(self, fault: Fault) -> None:
        with self._changed:
            if fault in self._faults:
                self._faults.remove(fault)

    def __len__(self) -> int:
        """How many still hold."""
        return len(self._faults)

    def _add(
        self,
        api: str,
        action: Action,
        times: int | None,
        topic: str | None,
        client_id: str | None,
        when: When,
    ) -> Fault:
        if api not in _NAMES:
            near = difflib.get_close_matches(api, _NAMES, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_NAMES)}"
            raise ValueError(f"no API is called {api!r}{hint}")
        if when not in get_args(When):
            raise ValueError(f'when is "before" or "after", not {when!r}')
        if times is not None and times < 1:
            raise ValueError("times is at least 1, or None for until cleared")
        fault = Fault(
            self,
            api,
            action,
            topic=topic,
            client_id=client_id,
            when=when,
            times=times,
            changed=self._changed,
        )
        with self._changed:
            self._faults.append(fault)
        return fault

    # ---- for the broker

    def candidates(self, api: str, client_id: str | None) -> list[Fault]:
        """Those that may fit a request, whatever its topics."""
        if not self._faults:
            return []
        with self._changed:
            return [
                fault for fault in self._faults if fault.api == api and fault.client_id in (None, client_id)
            ]

    def take(
        self,
        candidates: Collection[Fault],
        topics: Collection[str],
        fits: Callable[[Fault], bool] = lambda fault: True,
    ) -> Fault | None:
        """The first that meets a request about these topics, counted as met."""
        with self._changed:
            for fault in candidates:
                if fault not in self._faults or (fault.topic is not None and fault.topic not in topics):
                    continue
                if not fits(fault):
                    continue
                fault.hits += 1
                if fault.times_left is not None:
                    fault.times_left -= 1
                    if not fault.times_left:
                        self._faults.remove(fault)
                self._changed.notify_all()
                return fault
        return None


def _code(error: str | int | ErrorCode) -> ErrorCode:
    if isinstance(error, str):
        try:
            code = ErrorCode[error.upper()]
        except KeyError:
            near = difflib.get_close_matches(error.upper(), ErrorCode.__members__, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"Kafka has no error {error!r}{hint}") from None
    else:
        code = ErrorCode(error)
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return code
