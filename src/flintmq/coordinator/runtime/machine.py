"""What a coordinator is: a state machine that decides, and is told by records what it has decided.

A decision is records, replies and timers, as plain values. The records are appended to the machine's partition and
applied in the same step of the loop; the replies go out when the high watermark has passed them. What lives in
records is changed by `apply` alone, so that a machine loaded from its partition is the one that wrote it; what does
not (who waits, who was heard of when) is the machine's own, and is lost with the process.

Machines do no I/O and know no clock: the time, the member ids and the producer ids come with the question.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message

Token = int
"""A request that waits for its reply. 0 is nobody's."""
NOBODY: Token = 0

TimerKey = Hashable


class CoordinatorRecord(NamedTuple):
    """A record of the internal topic; without a value it takes away what its key stands for."""

    key: bytes
    value: bytes | None


class StoredRecord(NamedTuple):
    """A record as it is applied."""

    key: bytes
    value: bytes | None
    offset: int
    timestamp: int
    producer_id: int = -1
    """Whose transaction it is part of; -1 outside of any."""


@dataclass(slots=True)
class Decision:
    records: list[CoordinatorRecord] = field(default_factory=list)
    responses: list[tuple[Token, Message]] = field(default_factory=list)
    timers: dict[TimerKey, int | None] = field(default_factory=dict)
    """In how many milliseconds `expire` is to be called with this key; None calls it off. A later one replaces an
    earlier one of the same key."""
    producer: tuple[int, int] | None = None
    """The producer id and epoch whose transaction the records are part of."""
    failed: Callable[[ErrorCode], Decision] | None = None
    """What to do instead of `replies` and `timers` if the records could not be written. Its own are replies and
    timers only."""

    def respond(self, token: Token, message: Message) -> Decision:
        if token != NOBODY:
            self.responses.append((token, message))
        return self

    def join(self, other: Decision) -> Decision:
        """Both, this one first."""
        self.records += other.records
        self.responses += other.responses
        self.timers.update(other.timers)
        return self


class CoordinatorMachine(Protocol):
    def apply(self, stored: StoredRecord) -> None:
        """A record is in the partition: one that was just decided, or one of those that are loaded."""
        ...

    def end_transaction(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """A marker is in the partition: what was applied for this producer counts from now on, or never did."""
        ...

    def loaded(self, now_ms: int) -> Decision:
        """All records are applied: the timers that these call for."""
        ...

    def expire(self, key: TimerKey, now_ms: int) -> Decision: ...
