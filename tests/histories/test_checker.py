"""The checker of histories says nothing of a sound one, and tells each anomaly that is planted, and no other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

import pytest

from support.histories.checker import Kind, check
from support.histories.history import (
    FOREVER,
    UNKNOWN,
    Assign,
    CommitOffsets,
    End,
    FinalOffsets,
    FinalRead,
    History,
    Operation,
    Outcome,
    Place,
    Poll,
    Record,
    Send,
)

A: Place = ("a", 0)
B: Place = ("b", 0)
OUT: Place = ("out", 0)
O = TypeVar("O", bound=Operation)  # noqa: E741


class Story:
    """A plain producer, a transaction that is committed and one that is aborted, readers, a group, a copier.

    a    1 2 [3] commit [5] abort 6        b    [4] commit 7        out    [11 12 13] commit [14] abort [15] commit
    """

    def __init__(self) -> None:
        self.history: History = []
        self._moments = itertools.count(1)
        self.reader = self._now(Assign(process="reader", positions={A: 0, B: 0, OUT: 0}, committed_only=True))
        self.other = self._now(Assign(process="other", positions={A: 0, B: 0, OUT: 0}, committed_only=False))
        self.first = self.sent(1, A, 0)
        self.sent(2, A, 1)
        self.early = self.polled("reader", (A, 0, 1), (A, 1, 2))
        self.sent(3, A, 2, transaction="t")
        self.sent(4, B, 0, transaction="t")
        self.others = self.polled("other", (A, 0, 1), (A, 1, 2), (A, 2, 3), (B, 0, 4))
        self.commit = self._now(End(process="producer", transaction="t", commits=True))
        self.sent(5, A, 4, transaction="x")
        self.abort = self._now(End(process="producer", transaction="x", commits=False))
        self.sent(6, A, 6)
        self.late = self.polled("reader", (A, 2, 3), (A, 6, 6))
        self.unanswered = self.sent(7, B, 2, outcome=Outcome.INFO)
        self._group()
        self._copier()
        self.all = self._final(
            False,
            *((A, 0, 1), (A, 1, 2), (A, 2, 3), (A, 4, 5), (A, 6, 6), (B, 0, 4), (B, 2, 7)),
            *((OUT, 0, 11), (OUT, 1, 12), (OUT, 2, 13), (OUT, 4, 14), (OUT, 6, 15)),
        )
        self.committed = self._final(
            True,
            *((A, 0, 1), (A, 1, 2), (A, 2, 3), (A, 6, 6), (B, 0, 4), (B, 2, 7)),
            *((OUT, 0, 11), (OUT, 1, 12), (OUT, 2, 13), (OUT, 6, 15)),
        )
        self.group_end = self._now(FinalOffsets(process="final", group="group", offsets={A: 7}))
        self.copier_end = self._now(FinalOffsets(process="final", group="copiers", offsets={A: 7}))

    def _group(self) -> None:
        self._now(Assign(process="member", positions={A: UNKNOWN}, committed_only=True, group="group"))
        self.member = self.polled("member", (A, 0, 1), (A, 1, 2), (A, 2, 3))
        self.group_commit = self._now(CommitOffsets(process="member", group="group", offsets={A: 3}))
        self.polled("member", (A, 6, 6))
        self.last_group_commit = self._now(CommitOffsets(process="member", group="group", offsets={A: 7}))

    def _copier(self) -> None:
        self._now(Assign(process="copier", positions={A: UNKNOWN}, committed_only=True, group="copiers"))
        self.polled("copier", (A, 0, 1), (A, 1, 2), (A, 2, 3))
        self.sent(11, OUT, 0, transaction="k1", source=1)
        self.copy = self.sent(12, OUT, 1, transaction="k1", source=2)
        self.sent(13, OUT, 2, transaction="k1", source=3)
        self._end("k1", {A: 3})
        self.polled("copier", (A, 6, 6))
        self.sent(14, OUT, 4, transaction="k2", source=6)
        self.second_abort = self._now(End(process="producer", transaction="k2", commits=False))
        self._now(Assign(process="copier", positions={A: 3}, committed_only=True, group="copiers"))
        self.polled("copier", (A, 6, 6))
        self.sent(15, OUT, 6, transaction="k3", source=6)
        self.last_copy = self._end("k3", {A: 7})

    def sent(
        self,
        value: int,
        place: Place,
        offset: int,
        *,
        outcome: Outcome = Outcome.OK,
        transaction: str | None = None,
        source: int | None = None,
    ) -> Send:
        send = Send(process="producer", place=place, value=value, transaction=transaction, source=source)
        if outcome is Outcome.OK:
            send.offset = offset
        return self._now(send, outcome)

    def polled(self, process: str, *records: tuple[Place, int, int]) -> Poll:
        return self._now(Poll(process=process, records=[Record(*record) for record in records]))

    def _end(self, transaction: str, offsets: dict[Place, int]) -> End:
        return self._now(
            End(process="producer", transaction=transaction, commits=True, group="copiers", offsets=offsets)
        )

    def _final(self, committed_only: bool, *records: tuple[Place, int, int]) -> FinalRead:
        return self._now(
            FinalRead(
                process="final",
                committed_only=committed_only,
                ends={A: 7, B: 3, OUT: 8},
                records=[Record(*record) for record in records],
            )
        )

    def _now(self, operation: O, outcome: Outcome = Outcome.OK) -> O:
        operation.invoked = next(self._moments)
        operation.outcome = outcome
        operation.completed = FOREVER if outcome is Outcome.INFO else next(self._moments)
        self.history.append(operation)
        return operation

    def never_commit_or_tell(self) -> None:
        """The answer to the first commit does not come."""
        self.commit.outcome, self.commit.completed = Outcome.INFO, FOREVER

    def nobody_reads(self, *values: int, committed_only: bool | None = None) -> None:
        for operation in self.history:
            if isinstance(operation, FinalRead):
                reads_committed = operation.committed_only
            elif isinstance(operation, Poll):
                reads_committed = operation.process != "other"
            else:
                continue
            if committed_only in (None, reads_committed):
                operation.records = [one for one in operation.records if one.value not in values]

    def kinds(self) -> set[Kind]:
        return {anomaly.kind for anomaly in check(self.history)}


def test_nothing_is_said_of_a_sound_history() -> None:
    assert check(Story().history) == []


# -- each anomaly


def _an_acknowledged_write_was_never_seen(story: Story) -> None:
    story.sent(8, B, 2)
    story.nobody_reads(7)


def _a_write_is_beyond_the_end(story: Story) -> None:
    story.sent(8, B, 9)


def _a_write_that_was_seen_is_gone(story: Story) -> None:
    for final in (story.all, story.committed):
        final.records.remove(Record(A, 1, 2))


def _a_value_is_there_twice(story: Story) -> None:
    story.all.records.append(Record(B, 3, 7))


def _two_values_are_at_one_offset(story: Story) -> None:
    story.sent(9, B, 0, outcome=Outcome.INFO)
    story.all.records.append(Record(B, 0, 9))


def _a_value_was_never_sent(story: Story) -> None:
    story.all.records.append(Record(B, 1, 99))


def _what_had_failed_is_there(story: Story) -> None:
    story.unanswered.outcome = Outcome.FAIL


def _a_later_send_has_a_lower_offset(story: Story) -> None:
    for value, offset in ((30, 4), (31, 3)):
        story.sent(value, B, offset)
        for final in (story.all, story.committed):
            final.records.append(Record(B, offset, value))
            final.ends[B] = 5


def _an_aborted_value_is_read(story: Story) -> None:
    story.late.records.insert(1, Record(A, 4, 5))


def _a_value_is_read_before_its_commit(story: Story) -> None:
    story.commit.invoked = story.late.completed + 1


def _half_of_a_transaction_is_there(story: Story) -> None:
    story.nobody_reads(4, committed_only=True)


def _half_of_an_undecided_transaction_is_there(story: Story) -> None:
    story.never_commit_or_tell()
    story.nobody_reads(4, committed_only=True)


def _a_transaction_never_ends(story: Story) -> None:
    story.committed.ends[B] = 2


def _a_consumer_goes_back(story: Story) -> None:
    story.others.records.append(Record(A, 1, 2))


def _a_consumer_begins_before_its_start(story: Story) -> None:
    story.reader.positions[A] = 1


def _a_consumer_goes_too_far(story: Story) -> None:
    story.others.records.remove(Record(A, 1, 2))


def _a_reader_of_committed_records_goes_too_far(story: Story) -> None:
    story.early.records.remove(Record(A, 1, 2))


def _no_member_of_a_group_has_read_a_record(story: Story) -> None:
    story.member.records.remove(Record(A, 0, 1))


def _a_group_is_back_where_it_was(story: Story) -> None:
    story.group_end.offsets[A] = 3


def _a_group_has_lost_its_offset(story: Story) -> None:
    story.group_end.offsets[A] = UNKNOWN


def _offsets_of_a_transaction_are_lost(story: Story) -> None:
    story.copier_end.offsets[A] = 3


def _an_input_has_two_outputs(story: Story) -> None:
    story.second_abort.commits = True
    story.committed.records.append(Record(OUT, 4, 14))


def _an_input_has_no_output(story: Story) -> None:
    story.copy.source = None


@pytest.mark.parametrize(
    ("plant", "kinds"),
    [
        (_an_acknowledged_write_was_never_seen, {Kind.LOST_WRITE}),
        (_a_write_is_beyond_the_end, {Kind.UNSEEN_AT_THE_END}),
        (_a_write_that_was_seen_is_gone, {Kind.UNSEEN_AT_THE_END}),
        (_a_value_is_there_twice, {Kind.DUPLICATE}),
        (_two_values_are_at_one_offset, {Kind.INCONSISTENT_OFFSETS}),
        (_a_value_was_never_sent, {Kind.PHANTOM}),
        (_what_had_failed_is_there, {Kind.PHANTOM}),
        (_a_later_send_has_a_lower_offset, {Kind.BACKWARD_SEND}),
        (_an_aborted_value_is_read, {Kind.ABORTED_READ}),
        (_a_value_is_read_before_its_commit, {Kind.READ_BEFORE_COMMIT}),
        (_half_of_a_transaction_is_there, {Kind.TORN_TRANSACTION}),
        (_half_of_an_undecided_transaction_is_there, {Kind.TORN_TRANSACTION}),
        (_a_transaction_never_ends, {Kind.HANGING_TRANSACTION}),
        (_a_consumer_goes_back, {Kind.BACKWARD_POLL}),
        (_a_consumer_begins_before_its_start, {Kind.BACKWARD_POLL}),
        (_a_consumer_goes_too_far, {Kind.SKIPPED_POLL}),
        (_a_reader_of_committed_records_goes_too_far, {Kind.SKIPPED_POLL}),
        (_no_member_of_a_group_has_read_a_record, {Kind.SKIPPED_BY_GROUP}),
        (_a_group_is_back_where_it_was, {Kind.LOST_OFFSET}),
        (_a_group_has_lost_its_offset, {Kind.LOST_OFFSET}),
        (_offsets_of_a_transaction_are_lost, {Kind.LOST_OFFSET}),
        (_an_input_has_two_outputs, {Kind.PROCESSED_TWICE}),
        (_an_input_has_no_output, {Kind.NOT_PROCESSED}),
    ],
    ids=lambda given: given.__name__.strip("_") if callable(given) else "",
)
def test_an_anomaly_is_told(plant: Callable[[Story], None], kinds: set[Kind]) -> None:
    story = Story()
    plant(story)
    assert story.kinds() == kinds


# -- what nobody can know


def _a_send_without_an_answer_came_to_nothing(story: Story) -> None:
    story.nobody_reads(7)


def _a_commit_without_an_answer_happened(story: Story) -> None:
    story.never_commit_or_tell()


def _a_commit_without_an_answer_came_to_nothing(story: Story) -> None:
    story.never_commit_or_tell()
    # Without the group and the copier, which have read what then was never committed.
    del story.history[story.history.index(story.unanswered) + 1 : story.history.index(story.all)]
    del story.history[story.history.index(story.group_end) :]
    story.nobody_reads(3, 4, committed_only=True)
    story.nobody_reads(7, 11, 12, 13, 14, 15)


def _offsets_were_committed_without_an_answer(story: Story) -> None:
    story.last_group_commit.outcome, story.last_group_commit.completed = Outcome.INFO, FOREVER


def _offsets_were_not_committed_without_an_answer(story: Story) -> None:
    _offsets_were_committed_without_an_answer(story)
    story.group_end.offsets[A] = 3


def _an_older_commit_of_offsets_came_late(story: Story) -> None:
    story.group_commit.outcome, story.group_commit.completed = Outcome.INFO, FOREVER
    story.group_end.offsets[A] = 3


@pytest.mark.parametrize(
    "plant",
    [
        _a_send_without_an_answer_came_to_nothing,
        _a_commit_without_an_answer_happened,
        _a_commit_without_an_answer_came_to_nothing,
        _offsets_were_committed_without_an_answer,
        _offsets_were_not_committed_without_an_answer,
        _an_older_commit_of_offsets_came_late,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_what_had_no_answer_may_go_either_way(plant: Callable[[Story], None]) -> None:
    story = Story()
    plant(story)
    assert check(story.history) == []
