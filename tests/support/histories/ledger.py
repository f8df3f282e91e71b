"""A history put in order for the checks: who sent what, how transactions ended, who read what where."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from support.histories.history import (
    UNKNOWN,
    Assign,
    CommitOffsets,
    End,
    FinalOffsets,
    FinalRead,
    History,
    Outcome,
    Place,
    Poll,
    Send,
)


class Fate(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "unknown"
    """It may have gone either way."""


@dataclass
class Transaction:
    name: str
    sends: list[Send] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    @property
    def commits(self) -> list[End]:
        return [end for end in self.ends if end.commits and end.outcome is not Outcome.FAIL]

    @property
    def fate(self) -> Fate:
        if any(end.outcome is Outcome.OK for end in self.commits):
            return Fate.COMMITTED
        # Nobody commits what its producer never wanted committed: it is aborted, now or by its time-out.
        return Fate.OPEN if self.commits else Fate.ABORTED


@dataclass
class Reading:
    """What one consumer read of one place, from one assignment to the next."""

    process: str
    place: Place
    start: int
    committed_only: bool
    group: str
    found: list[tuple[int, int, int]] = field(default_factory=list)
    """Offset, value and when the poll was over."""


class Ledger:
    def __init__(self, history: History) -> None:
        self.sends: dict[int, Send] = {}
        self.transactions: dict[str, Transaction] = {}
        self.readings: list[Reading] = []
        self.final_reads: list[FinalRead] = []
        self.final_offsets: list[FinalOffsets] = []
        self.offset_commits: dict[str, list[CommitOffsets | End]] = defaultdict(list)
        """By group, with those that are part of a transaction."""
        self.values_at: dict[Place, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """All that anybody was told of a place: which values are at which offset."""
        self.seen: dict[bool, set[int]] = {True: set(), False: set()}
        """The values that were read, by whether the reader wanted committed records only."""
        self._open: dict[tuple[str, Place], Reading] = {}
        for operation in history:
            match operation:
                case Send():
                    self._sent(operation)
                case End():
                    self._transaction(operation.transaction).ends.append(operation)
                    if operation.commits and operation.offsets:
                        self.offset_commits[operation.group].append(operation)
                case Assign():
                    self._assigned(operation)
                case Poll():
                    self._polled(operation)
                case CommitOffsets():
                    self.offset_commits[operation.group].append(operation)
                case FinalRead():
                    self.final_reads.append(operation)
                    for place, offset, value in operation.records:
                        self.values_at[place][offset].add(value)
                        self.seen[operation.committed_only].add(value)
                case FinalOffsets():
                    self.final_offsets.append(operation)

    def _transaction(self, name: str) -> Transaction:
        return self.transactions.setdefault(name, Transaction(name))

    def _sent(self, send: Send) -> None:
        assert send.value not in self.sends, f"the workload sent {send.value} twice"
        self.sends[send.value] = send
        if send.transaction is not None:
            self._transaction(send.transaction).sends.append(send)
        if send.outcome is Outcome.OK and send.offset != UNKNOWN:
            self.values_at[send.place][send.offset].add(send.value)

    def _assigned(self, assign: Assign) -> None:
        for place, start in assign.positions.items():
            reading = Reading(assign.process, place, start, assign.committed_only, assign.group)
            self._open[assign.process, place] = reading
            self.readings.append(reading)

    def _polled(self, poll: Poll) -> None:
        for place, offset, value in poll.records:
            reading = self._open[poll.process, place]
            reading.found.append((offset, value, poll.completed))
            self.values_at[place][offset].add(value)
            self.seen[reading.committed_only].add(value)

    def is_kept(self, send: Send, *, committed_only: bool) -> bool:
        """Whether such a reader must find it."""
        if send.transaction is None or not committed_only:
            return send.outcome is Outcome.OK
        return self.transactions[send.transaction].fate is Fate.COMMITTED

    def is_visible(self, value: int, *, committed_only: bool) -> bool:
        """Whether such a reader who comes by finds it: one did, or must."""
        send = self.sends.get(value)
        if committed_only and send is not None and send.transaction is not None:
            fate = self.transactions[send.transaction].fate
            if fate is not Fate.OPEN:
                return fate is Fate.COMMITTED
        if value in self.seen[committed_only]:
            return True
        return send is not None and self.is_kept(send, committed_only=committed_only)
