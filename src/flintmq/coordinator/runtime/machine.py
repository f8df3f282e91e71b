"""What a coordinator is: a state machine that decides, and changes by the records it has decided on.

A decision is records, responses and timers, as plain values. The records are appended to the machine's partition and
applied in the same step of the loop; the responses are sent when the high watermark has passed the records. State
that is in records is changed by `apply` alone, so that a machine loaded from its partition is the one that wrote it;
other state (calls that wait, times of the last heartbeats) is the machine's own, and is lost with the process.

Machines do no I/O and know no clock: the time, the member ids and the producer ids are arguments of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from flintmq.errors import ErrorCode
from flintmq.protocol.codegen.structures import Message

Token = int
"""A call that waits for its response. 0 stands for none."""
NOBODY: Final[Token] = 0

TimerKey = Hashable


class CoordinatorRecord(NamedTuple):
    """A record of the internal topic; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


class StoredRecord(NamedTuple):
    """A record as it is applied."""

    key: bytes
    value: bytes | None
    offset: int
    timestamp: int
    producer_id: int = -1
    """The producer of its transaction; -1 outside of any."""


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
    """What to do instead of `responses` and `timers` if the records could not be written. It returns responses and
    timers only."""

    def respond(self, token: Token, message: Message) -> Decision:
        if token != NOBODY:
            self.responses.append((token, message))
        return self

    def join(self, other: Decision) -> Decision:
        """Add another decision to this one."""
        self.records += other.records
        self.responses += other.responses
        self.timers.update(other.timers)
        return self


class CoordinatorMachine(Protocol):
    def apply(self, stored: StoredRecord) -> None:
        """Apply a record of the partition: one that was just decided, or one that is loaded."""
        ...

    def end_transaction(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """Apply a marker of the partition: what was applied for this producer counts from now on, or is dropped."""
        ...

    def loaded(self, now_ms: int) -> Decision:
        """Return the timers that the loaded state needs, after all records are applied."""
        ...

    def expire(self, key: TimerKey, now_ms: int) -> Decision: ...
