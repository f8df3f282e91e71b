"""What must never be in a history, one function for each; after Jepsen's workload for Kafka. Pure.

A broker that loses, repeats, reorders or shows too early is found by what its clients were told, and by that alone.
What ended without an answer may have happened or not, but all of a transaction goes one way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from support.histories.history import UNKNOWN, CommitOffsets, End, History, Outcome, Place, Send
from support.histories.ledger import Fate, Ledger


class Kind(Enum):
    LOST_WRITE = "lost write"
    UNSEEN_AT_THE_END = "unseen at the end"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    PHANTOM = "phantom"
    ABORTED_READ = "aborted read"
    READ_BEFORE_COMMIT = "read before commit"
    TORN_TRANSACTION = "torn transaction"
    HANGING_TRANSACTION = "hanging transaction"
    BACKWARD_POLL = "backward poll"
    SKIPPED_POLL = "skipped poll"
    BACKWARD_SEND = "backward send"
    SKIPPED_BY_GROUP = "skipped by a group"
    LOST_OFFSET = "lost offset"
    PROCESSED_TWICE = "processed twice"
    NOT_PROCESSED = "not processed"


class Anomaly(NamedTuple):
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"


Found = Iterator[Anomaly]


def check(history: History) -> list[Anomaly]:
    ledger = Ledger(history)
    return [anomaly for look in _CHECKS for anomaly in look(ledger)]


# -- writes


def lost_writes(ledger: Ledger) -> Found:
    """What was acknowledged, or committed, is there in the end."""
    torn = {name for name, _ in _torn(ledger)}
    for final in ledger.final_reads:
        there = {record.value for record in final.records}
        only = final.committed_only
        reader = "read_committed" if only else "read_uncommitted"
        for send in ledger.sends.values():
            if send.place not in final.ends or send.value in there or send.transaction in torn:
                continue
            if not ledger.is_kept(send, committed_only=only):
                continue
            was_seen = send.value in ledger.seen[only]
            was_passed = send.offset != UNKNOWN and final.ends[send.place] > send.offset
            if was_passed and not was_seen:
                yield Anomaly(Kind.LOST_WRITE, f"{_told(send)}, and no {reader} reader saw it")
            else:
                yield Anomaly(Kind.UNSEEN_AT_THE_END, f"{_told(send)}; {reader} ends without it")


def duplicates(ledger: Ledger) -> Found:
    """An idempotent producer's value is at one offset only."""
    offsets: dict[int, list[tuple[Place, int]]] = defaultdict(list)
    for place, values_at in ledger.values_at.items():
        for offset, values in values_at.items():
            for value in values:
                offsets[value].append((place, offset))
    for value, places in offsets.items():
        if len(places) > 1:
            yield Anomaly(Kind.DUPLICATE, f"{value} is at {_list(_at(*one) for one in sorted(places))}")


def inconsistent_offsets(ledger: Ledger) -> Found:
    for place, values_at in ledger.values_at.items():
        for offset, values in values_at.items():
            if len(values) > 1:
                told = _list(str(value) for value in sorted(values))
                yield Anomaly(Kind.INCONSISTENT_OFFSETS, f"{_at(place, offset)} holds {told}")


def phantoms(ledger: Ledger) -> Found:
    """What is read was sent, there, and its sending did not fail."""
    for place, values_at in ledger.values_at.items():
        for offset, values in values_at.items():
            for value in values:
                send = ledger.sends.get(value)
                if send is None or send.place != place or send.outcome is Outcome.FAIL:
                    yield Anomaly(
                        Kind.PHANTOM, f"{value} is at {_at(place, offset)}, where nobody has written it"
                    )


def backward_sends(ledger: Ledger) -> Found:
    """What a producer sends to one place is stored in the order of sending."""
    last: dict[tuple[str, Place], Send] = {}
    for send in ledger.sends.values():
        if send.outcome is not Outcome.OK or send.offset == UNKNOWN:
            continue
        before = last.get((send.process, send.place))
        if before is not None and before.offset >= send.offset:
            yield Anomaly(Kind.BACKWARD_SEND, f"{_told(send)}, after {_told(before)}")
        last[send.process, send.place] = send


# -- transactions


def aborted_reads(ledger: Ledger) -> Found:
    for transaction in ledger.transactions.values():
        if transaction.fate is Fate.ABORTED:
            for send in transaction.sends:
                if send.value in ledger.seen[True]:
                    yield Anomaly(
                        Kind.ABORTED_READ, f"{_told(send)} in {transaction.name}, which was never committed"
                    )


def reads_before_commit(ledger: Ledger) -> Found:
    for reading in ledger.readings:
        if not reading.committed_only:
            continue
        for offset, value, when in reading.found:
            send = ledger.sends.get(value)
            if send is None or send.transaction is None:
                continue
            commits = ledger.transactions[send.transaction].commits
            if commits and when < min(end.invoked for end in commits):
                yield Anomaly(
                    Kind.READ_BEFORE_COMMIT,
                    f"{reading.process} read {value} at {_at(reading.place, offset)} "
                    f"before {send.transaction} was to be committed",
                )


def torn_transactions(ledger: Ledger) -> Found:
    """All records of a transaction are there for readers of committed records, or none."""
    for name, missing in _torn(ledger):
        yield Anomaly(Kind.TORN_TRANSACTION, f"of {name} only {_list(map(str, missing))} cannot be read")


def _torn(ledger: Ledger) -> Iterator[tuple[str, list[int]]]:
    for final in ledger.final_reads:
        if not final.committed_only:
            continue
        there = {record.value for record in final.records}
        for transaction in ledger.transactions.values():
            # Once it is committed, all that it sent had been acknowledged, whether or not the client heard of it.
            sent = [
                send.value
                for send in transaction.sends
                if send.place in final.ends and send.outcome is not Outcome.FAIL
            ]
            missing = [value for value in sent if value not in there]
            if missing and len(missing) < len(sent) and transaction.fate is not Fate.ABORTED:
                yield transaction.name, missing


def hanging_transactions(ledger: Ledger) -> Found:
    """In the end no transaction is open: who reads committed records gets as far as everybody."""
    for final in ledger.final_reads:
        for other in ledger.final_reads:
            if final.committed_only and not other.committed_only:
                for place in final.ends.keys() & other.ends.keys():
                    if final.ends[place] < other.ends[place]:
                        yield Anomaly(
                            Kind.HANGING_TRANSACTION,
                            f"{_at(place, final.ends[place])} is where read_committed ends, "
                            f"others at {other.ends[place]}",
                        )


# -- reads


def backward_polls(ledger: Ledger) -> Found:
    for reading in ledger.readings:
        last = reading.start - 1 if reading.start != UNKNOWN else UNKNOWN
        for offset, value, _ in reading.found:
            if offset <= last:
                yield Anomaly(
                    Kind.BACKWARD_POLL,
                    f"{reading.process} read {value} at {_at(reading.place, offset)} after offset {last}",
                )
            last = offset


def skipped_polls(ledger: Ledger) -> Found:
    """Who reads on misses nothing that such a reader can see."""
    visible = {only: _visible_offsets(ledger, committed_only=only) for only in (True, False)}
    for reading in ledger.readings:
        offsets = visible[reading.committed_only].get(reading.place, [])
        last = reading.start - 1 if reading.start != UNKNOWN else None
        for offset, _, _ in reading.found:
            if last is not None and offset > last + 1:
                missed = offsets[bisect_right(offsets, last) : bisect_left(offsets, offset)]
                if missed:
                    yield Anomaly(
                        Kind.SKIPPED_POLL,
                        f"{reading.process} went from {last} to {_at(reading.place, offset)} past "
                        f"{_list(map(str, missed))}",
                    )
            last = offset


def _visible_offsets(ledger: Ledger, *, committed_only: bool) -> dict[Place, list[int]]:
    return {
        place: sorted(
            offset
            for offset, values in values_at.items()
            if any(ledger.is_visible(value, committed_only=committed_only) for value in values)
        )
        for place, values_at in ledger.values_at.items()
    }


# -- groups


def skipped_by_groups(ledger: Ledger) -> Found:
    """What lies below a group's offset has been read by one of its members."""
    visible = {only: _visible_offsets(ledger, committed_only=only) for only in (True, False)}
    for final in ledger.final_offsets:
        members = [reading for reading in ledger.readings if reading.group == final.group]
        for place, end in final.offsets.items():
            own = [reading for reading in members if reading.place == place]
            read = {offset for reading in own for offset, _, _ in reading.found}
            only = all(reading.committed_only for reading in own)
            missed = [
                offset for offset in visible[only].get(place, []) if offset < end and offset not in read
            ]
            if missed:
                yield Anomaly(
                    Kind.SKIPPED_BY_GROUP,
                    f"{final.group} is at {_at(place, end)} and never read {_list(map(str, missed))}",
                )


def lost_offsets(ledger: Ledger) -> Found:
    """A group's offset is that of its last commit, or of one that went on at the same time."""
    for final in ledger.final_offsets:
        for place, offset in final.offsets.items():
            commits = [
                commit
                for commit in ledger.offset_commits[final.group]
                if place in commit.offsets and commit.outcome is not Outcome.FAIL
            ]
            acknowledged = [commit for commit in commits if commit.outcome is Outcome.OK]
            newest = max((commit.invoked for commit in acknowledged), default=-1)
            allowed = {commit.offsets[place] for commit in commits if commit.completed >= newest}
            if not acknowledged:
                allowed.add(UNKNOWN)
            if offset not in allowed:
                yield Anomaly(
                    Kind.LOST_OFFSET,
                    f"{final.group} is at {_at(place, offset)}, and committed {_list(map(str, sorted(allowed)))}",
                )


def processing(ledger: Ledger) -> Found:
    """What was made from a value is committed once if the value lies below the group's offset, else never."""
    made: Counter[int] = Counter(
        send.source
        for send in ledger.sends.values()
        if send.source is not None and ledger.is_visible(send.value, committed_only=True)
    )
    for value, count in made.items():
        if count > 1:
            yield Anomaly(Kind.PROCESSED_TWICE, f"{count} committed records were made from {value}")
    groups = {end.group for commits in ledger.offset_commits.values() for end in commits if _is_end(end)}
    for final in ledger.final_offsets:
        if final.group not in groups:
            continue
        for place, end in final.offsets.items():
            for offset, values in ledger.values_at[place].items():
                for value in values:
                    if not ledger.is_visible(value, committed_only=True):
                        continue
                    if offset < end and not made[value]:
                        yield Anomaly(
                            Kind.NOT_PROCESSED,
                            f"{value} at {_at(place, offset)} is behind {final.group}, which is at {end}",
                        )
                    elif offset >= end and made[value]:
                        yield Anomaly(
                            Kind.LOST_OFFSET,
                            f"{final.group} is at {_at(place, end)}, and has processed {value} at {offset}",
                        )


def _is_end(commit: CommitOffsets | End) -> bool:
    return isinstance(commit, End)


# -- words


def _told(send: Send) -> str:
    outcome = f"{send.value} of {send.process} {send.outcome.value}"
    return outcome if send.offset == UNKNOWN else f"{outcome} at {_at(send.place, send.offset)}"


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]}@{offset}"


def _list(words: Iterator[str] | map[str]) -> str:
    all_words = list(words)
    shown = ", ".join(all_words[:5])
    return shown if len(all_words) <= 5 else f"{shown} and {len(all_words) - 5} more"


_CHECKS: tuple[Callable[[Ledger], Found], ...] = (
    lost_writes,
    duplicates,
    inconsistent_offsets,
    phantoms,
    backward_sends,
    aborted_reads,
    reads_before_commit,
    torn_transactions,
    hanging_transactions,
    backward_polls,
    skipped_polls,
    skipped_by_groups,
    lost_offsets,
    processing,
)
