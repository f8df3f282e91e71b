"""Several producers, most of them zombies, fight for one transactional id (F6, N1, R8, KIP-890).

Answers get lost, ends arrive late, markers are slow, records cannot be written, the coordinator crashes, time passes.
Whatever happens, what stands in its records is one history that makes sense, and what clients were told fits it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flintmq.coordinator.transactions.machine import TransactionMachine, TransactionSettings
from flintmq.coordinator.transactions.records import decode_value
from flintmq.coordinator.transactions.transaction import EPOCH_MAX, Transaction, TransactionState
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import EndTxnRequest
from unit.coordinator.transactions.driver import ID, TOKEN, Driver

Identity = tuple[int, int]
ACTORS = 3
FIRST_GENERATION = 4
SECOND_GENERATION = 5

FOLLOWING = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
}


@dataclass
class Actor:
    version: int
    """Of its EndTxn: 5 is the second generation."""
    identity: Identity | None = None


class Zombies(RuleBasedStateMachine):
    @initialize(
        generations=st.sampled_from(("first", "second", "both")),
        server_version=st.integers(0, 2),
        epoch=st.sampled_from((None, 32763)),
    )
    def begin(self, generations: str, server_version: int, epoch: int | None) -> None:
        if generations != "first":
            server_version = 2  # clients of the second generation ask for it before they use it
        self.driver = Driver(
            TransactionSettings(
                expiration_ms=20_000, sweep_interval_ms=9_000, transaction_version=server_version
            )
        )
        if epoch is not None:
            self.driver.prepared(
                Transaction(ID, 7, epoch=epoch, timeout_ms=3_000, last_update_ms=self.driver.now_ms)
            )
        versions = {
            "first": [FIRST_GENERATION] * ACTORS,
            "second": [SECOND_GENERATION] * ACTORS,
            "both": [FIRST_GENERATION, SECOND_GENERATION, SECOND_GENERATION],
        }
        self.actors = [Actor(version) for version in versions[generations]]
        self.late: list[tuple[Actor, Identity, bool]] = []
        self.handed_out: dict[Identity, Actor | None] = {}
        """Every producer id and epoch that was told, and who took the transactional id over with it."""
        self.announced: Identity | None = None
        """What holds when the decided transaction is complete."""
        self.reader = TransactionMachine(self.driver.settings)
        """Another coordinator, which reads every record and decides nothing."""
        self.replayed = 0
        self.seen = 0
        self.before: Transaction | None = None
        self.epochs: dict[int, int] = {}
        self.ended_by: set[Identity] = set()
        self.promised: dict[Identity, bool] = {}

    # ---- what producers do

    @rule(who=st.integers(0, ACTORS - 1), partition=st.integers(0, 2), committed=st.booleans())
    def transact(self, who: int, partition: int, committed: bool) -> None:
        """All that a producer does for one transaction, undisturbed."""
        actor = self.actors[who]
        if actor.identity is None:
            self.init_producer_id(who, lost=False, continues=False)
        self.add(who, partition, offsets=False)
        self.end(who, committed, lost=False)
        self.markers_are_written()

    @rule(who=st.integers(0, ACTORS - 1), lost=st.booleans(), continues=st.booleans())
    def init_producer_id(self, who: int, lost: bool, continues: bool) -> None:
        actor = self.actors[who]
        expected = actor.identity if continues and actor.identity is not None else (-1, -1)
        reply = self.driver.init(expected=expected, timeout_ms=3_000)
        identity = (reply.producer_id, reply.producer_epoch)
        if reply.error_code != ErrorCode.NONE:
            assert identity == (-1, -1)
        elif expected == (-1, -1):
            assert identity not in self.handed_out, "nobody else has it"
            self.handed_out[identity] = actor
            actor.identity = actor.identity if lost else identity
        else:
            self.hand_out(actor, identity, lost)

    @rule(who=st.integers(0, ACTORS - 1), partition=st.integers(0, 2), offsets=st.booleans())
    def add(self, who: int, partition: int, offsets: bool) -> None:
        actor = self.actors[who]
        if actor.identity is None:
            return
        if offsets and actor.version == FIRST_GENERATION:
            code = self.driver.add_offsets(actor.identity, partition)
        else:
            version = 3 if actor.version == FIRST_GENERATION else 5
            code = self.driver.add(actor.identity, ("topic", partition), version=version)
        if code == ErrorCode.NONE:
            assert self.driver.state() is TransactionState.ONGOING
            assert actor.identity == (self.driver.transaction.producer_id, self.driver.transaction.epoch)

    @rule(who=st.integers(0, ACTORS - 1), committed=st.booleans(), lost=st.booleans())
    def end(self, who: int, committed: bool, lost: bool) -> None:
        actor = self.actors[who]
        if actor.identity is not None:
            self.ask_to_end(actor, actor.identity, committed, lost)

    @rule(who=st.integers(0, ACTORS - 1), committed=st.booleans())
    def end_later(self, who: int, committed: bool) -> None:
        actor = self.actors[who]
        if actor.identity is not None:
            self.late.append((actor, actor.identity, committed))

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 9))
    def a_late_end_arrives(self, which: int) -> None:
        actor, identity, committed = self.late[which % len(self.late)]
        self.ask_to_end(actor, identity, committed, lost=True)

    def ask_to_end(self, actor: Actor, identity: Identity, committed: bool, lost: bool) -> None:
        records = len(self.driver.records)
        before = self.driver.machine.get(ID)
        reply = self.driver.end(identity, committed=committed, version=actor.version)
        after = (reply.producer_id, reply.producer_epoch)
        if len(self.driver.records) > records:
            assert before is not None
            assert identity == (before.producer_id, before.epoch), "only the newest epoch ends a transaction"
            assert reply.error_code == ErrorCode.NONE
            if actor.version == SECOND_GENERATION:
                assert identity not in self.ended_by, "one epoch, one transaction"
                self.ended_by.add(identity)
                self.announced = after
        if reply.error_code == ErrorCode.NONE and actor.version == SECOND_GENERATION:
            assert self.promised.setdefault(identity, committed) is committed, "told commit and abort"
            self.hand_out(actor, after, lost)

    def hand_out(self, actor: Actor, identity: Identity, lost: bool) -> None:
        """The next epoch of one that has the transactional id, or had it."""
        assert self.handed_out.setdefault(identity, None) in (None, actor), (
            "another one took it over with that"
        )
        assert identity[1] < EPOCH_MAX, "no epoch is left to fence it with"
        actor.identity = actor.identity if lost else identity

    # ---- what happens around them

    @rule()
    def an_operator_aborts(self) -> None:
        self.driver.abort()

    @rule(duration_ms=st.sampled_from((1, 500, 1_500, 3_001, 9_000, 30_000)))
    def time_passes(self, duration_ms: int) -> None:
        self.driver.advance(duration_ms)

    @rule()
    def producer_ids_arrive(self) -> None:
        wanting, self.driver.wanting = self.driver.wanting, []
        for transactional_id in wanting:
            decision = self.driver.machine.time_out(
                transactional_id, new_producer_id=self.driver.new_producer_id(), now_ms=self.driver.now_ms
            )
            self.driver.perform(decision)

    @rule()
    def markers_are_written(self) -> None:
        self.driver.write_markers(1)

    @rule(compacted=st.booleans())
    def the_coordinator_crashes(self, compacted: bool) -> None:
        decided = self.before is not None and self.before.is_decided
        self.driver.crash(compacted=compacted)
        works = self.driver.markers
        assert len(works) == decided, "markers are told again until they are written"
        if self.before is not None and decided:
            assert works[0].committed is (self.before.state is TransactionState.PREPARE_COMMIT)
            assert works[0].partitions == sorted(self.before.partitions)

    @rule(who=st.integers(0, ACTORS - 1), what=st.sampled_from(("init", "add", "end", "markers", "time")))
    def a_record_cannot_be_written(self, who: int, what: str) -> None:
        records, before = len(self.driver.records), self.driver.machine.get(ID)
        self.driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if what == "init":
            self.init_producer_id(who, lost=False, continues=False)
        elif what == "add":
            self.add(who, 2, offsets=False)
        elif what == "end":
            self.end(who, committed=True, lost=False)
        elif what == "markers":
            self.driver.write_markers()
        else:
            self.driver.advance(4_000)
        self.driver.write_error = None
        assert (len(self.driver.records), self.driver.machine.get(ID)) == (records, before)

    # ---- what must hold

    @invariant()
    def the_history_makes_sense(self) -> None:
        for stored in self.driver.records[self.seen :]:
            before = self.before
            after = None if stored.value is None else decode_value(ID, stored.value)
            if after is not None:
                self.follow(before, after)
            else:
                assert before is not None
                assert before.state not in (
                    TransactionState.ONGOING,
                    TransactionState.PREPARE_COMMIT,
                    TransactionState.PREPARE_ABORT,
                )
            self.before = after
        self.seen = len(self.driver.records)

    def follow(self, before: Transaction | None, after: Transaction) -> None:
        assert after.epoch >= self.epochs.get(after.producer_id, -1), "epochs never go back"
        self.epochs[after.producer_id] = after.epoch
        if before is None:
            assert after.state is TransactionState.EMPTY
            return
        assert after.state in FOLLOWING[before.state]
        if after.producer_id != before.producer_id:
            assert after.epoch == 0
            assert before.producer_id != max(self.epochs), "a producer id is left for ever"
        if after.is_decided:
            assert after.partitions == before.partitions
        elif after.state is TransactionState.ONGOING:
            assert after.partitions >= before.partitions
            assert (after.producer_id, after.epoch) == (before.producer_id, before.epoch)
        else:
            assert after.partitions == frozenset()
        if before.is_decided and self.announced is not None:
            assert self.announced == (after.producer_id, after.epoch), "the producer was told another one"
            self.announced = None

    @invariant()
    def a_decided_transaction_is_on_its_way(self) -> None:
        transaction = self.driver.machine.get(ID)
        if transaction is not None and transaction.is_decided:
            identity = (ID, transaction.producer_id, transaction.epoch)
            told = any(work[:3] == identity for work in self.driver.markers)
            assert told or ("complete", *identity) in self.driver.timers
        else:
            assert not self.driver.markers

    @invariant()
    def an_ongoing_transaction_has_a_timer(self) -> None:
        transaction = self.driver.machine.get(ID)
        is_ongoing = transaction is not None and transaction.state is TransactionState.ONGOING
        assert (("time-out", ID) in self.driver.timers) is is_ongoing

    @invariant()
    def the_records_tell_all(self) -> None:
        for stored in self.driver.records[self.replayed :]:
            self.reader.apply(stored)
        self.replayed = len(self.driver.records)
        live = durable(self.driver.machine, self.driver.settings)
        for machine in (self.reader, self.driver.replayed(compacted=True)):
            assert durable(machine, self.driver.settings) == live

    @invariant()
    def at_most_one_producer_can_commit(self) -> None:
        machine = self.driver.replayed(compacted=True)
        for version in (FIRST_GENERATION, SECOND_GENERATION):
            able = [one for one in self.handed_out if self.could_commit(machine, one, version)]
            assert len(able) <= 1

    def could_commit(self, machine: TransactionMachine, identity: Identity, version: int) -> bool:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=identity[0], producer_epoch=identity[1], committed=True
        )
        decision = machine.end(TOKEN, request, version, new_producer_id=10**6, now_ms=self.driver.now_ms)
        return bool(decision.records)


def durable(machine: TransactionMachine, settings: TransactionSettings) -> Transaction | None:
    """What records can tell; those of the first version cannot tell of the producer id before."""
    transaction = machine.get(ID)
    if transaction is None:
        return None
    if settings.transaction_version == 0:
        transaction = transaction._replace(previous_producer_id=-1)
    return transaction._replace(last_epoch=-1)


TestZombies = Zombies.TestCase
TestZombies.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
