"""What producers and consumers did, and what they were told: the plain record that the checker reads.

Every value is written by one send only, so that wherever it is read it is known who sent it. An operation has the
moment at which it began and, unless its end is unknown, the one at which it ended; moments are numbers of one clock
for all processes. Invariant: an operation whose outcome is INFO may have happened, may never, and may still.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

FOREVER = 1 << 62
UNKNOWN = -1
"""An offset that nobody has told."""

Place = tuple[str, int]
"""Topic and partition."""


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"
    """It surely did not happen, and never will."""
    INFO = "info"


class Record(NamedTuple):
    place: Place
    offset: int
    value: int


@dataclass(slots=True, kw_only=True)
class Operation:
    process: str
    invoked: int = 0
    completed: int = FOREVER
    outcome: Outcome = Outcome.INFO


@dataclass(slots=True, kw_only=True)
class Send(Operation):
    """One record of an idempotent or transactional producer. A process is one instance of a producer."""

    place: Place
    value: int
    offset: int = UNKNOWN
    transaction: str | None = None
    error: str = ""
    """What the client was told, for people."""
    source: int | None = None
    """The value that this one was made from, for those who read, process and write."""


@dataclass(slots=True, kw_only=True)
class End(Operation):
    """The end of a transaction, with the offsets of a group that are committed with it."""

    transaction: str
    commits: bool
    group: str = ""
    offsets: dict[Place, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Assign(Operation):
    """From now on this consumer reads these places from these offsets, UNKNOWN where its group has them."""

    positions: dict[Place, int]
    committed_only: bool
    group: str = ""


@dataclass(slots=True, kw_only=True)
class Poll(Operation):
    records: list[Record] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class CommitOffsets(Operation):
    group: str
    offsets: dict[Place, int]


@dataclass(slots=True, kw_only=True)
class Blow(Operation):
    """Something was done to the broker or to a client: killed, paused, cut off, fenced."""

    what: str


@dataclass(slots=True, kw_only=True)
class GaveUp(Operation):
    """A producer is of no use any more, as its client says."""

    why: str


@dataclass(slots=True, kw_only=True)
class FinalRead(Operation):
    """Everything that these places hold in the end, and where each of them ends for such a reader."""

    committed_only: bool
    ends: dict[Place, int]
    records: list[Record]


@dataclass(slots=True, kw_only=True)
class FinalOffsets(Operation):
    """What a group has committed in the end; UNKNOWN where it has nothing."""

    group: str
    offsets: dict[Place, int]


O = TypeVar("O", bound=Operation)  # noqa: E741
History = list[Operation]


class Recorder:
    """Collects operations from many threads; those of one process are in its order."""

    def __init__(self) -> None:
        self.history: History = []
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()

    def now(self) -> int:
        return time.monotonic_ns() - self._began

    def begin(self, operation: O) -> O:
        with self._lock:
            operation.invoked = self.now()
            self.history.append(operation)
        return operation

    def end(self, operation: Operation, outcome: Outcome = Outcome.OK) -> None:
        """What ends as INFO has no end."""
        operation.outcome = outcome
        operation.completed = FOREVER if outcome is Outcome.INFO else self.now()

    def note(self, operation: Operation, *, since: int | None = None) -> None:
        """Something that is over, and began just now or at that moment. It stands behind what was noted meanwhile."""
        self.end(self.begin(operation))
        if since is not None:
            operation.invoked = since
