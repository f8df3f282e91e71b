"""What time, crashes and failed writes do to transactions (F6, R8, KIP-98)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.runtime.machine import StoredRecord
from flintmq.coordinator.transactions.machine import TransactionMachine, TransactionSettings
from flintmq.coordinator.transactions.records import encode_key, encode_value
from flintmq.coordinator.transactions.transaction import NEVER_TIMES_OUT_MS, Transaction, TransactionState
from flintmq.errors import ErrorCode
from unit.coordinator.transactions.driver import ID, Driver

HOUR_MS = 3_600_000


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_fenced(
    transaction_version: int,
) -> None:
    driver = Driver(TransactionSettings(transaction_version=transaction_version))
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    driver.advance(600)
    driver.add(producer, ("topic", 1))
    driver.advance(400)
    assert driver.state() is TransactionState.ONGOING
    driver.advance(1)
    assert (driver.state(), driver.transaction.epoch) == (TransactionState.PREPARE_ABORT, 1)
    (work,) = driver.markers
    assert (work.committed, work.partitions) == (False, [("topic", 0), ("topic", 1)])
    driver.write_markers()
    assert driver.add(producer) == ErrorCode.PRODUCER_FENCED


def test_after_a_time_out_the_second_generation_learns_its_new_epoch_by_aborting() -> None:
    """KIP-890: a commit is refused, an abort is what has happened already."""
    driver = Driver()
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    driver.advance(1_001)
    driver.write_markers()
    assert driver.end(producer, committed=True).error_code == ErrorCode.INVALID_TXN_STATE
    reply = driver.end(producer, committed=False)
    assert (reply.error_code, reply.producer_epoch) == (0, producer[1] + 1)


def test_after_a_time_out_the_producer_may_continue_with_the_next_epoch() -> None:
    """KIP-360, KIP-588."""
    driver = Driver()
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    driver.advance(1_001)
    driver.write_markers()
    reply = driver.init(expected=producer)
    assert (reply.error_code, reply.producer_epoch) == (0, producer[1] + 1)


def test_a_transaction_that_ended_does_not_time_out() -> None:
    driver = Driver()
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    driver.end(producer, committed=True)
    assert ("time-out", ID) not in driver.timers
    driver.write_markers()
    records = len(driver.records)
    driver.advance(5_000)
    assert len(driver.records) == records


def test_a_late_timer_does_not_abort_the_next_transaction() -> None:
    driver = Driver()
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    reply = driver.end(producer, committed=True)
    driver.write_markers()
    driver.advance(900)
    driver.add((reply.producer_id, reply.producer_epoch))
    driver.perform(driver.machine.expire(("time-out", ID), driver.now_ms + 101))
    assert driver.state() is TransactionState.ONGOING
    driver.advance(1_001)
    assert driver.state() is TransactionState.PREPARE_ABORT


def test_the_longest_time_out_never_comes() -> None:
    driver = Driver(TransactionSettings(max_timeout_ms=NEVER_TIMES_OUT_MS))
    driver.add(driver.producer(timeout_ms=NEVER_TIMES_OUT_MS))
    assert ("time-out", ID) not in driver.timers


def test_a_time_out_over_the_last_epoch_waits_for_a_new_producer_id() -> None:
    driver = Driver()
    driver.prepared(Transaction(ID, 7, epoch=32765, previous_producer_id=7))
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    driver.advance(1_001)
    assert (driver.state(), driver.wanting) == (TransactionState.ONGOING, [ID])
    driver.perform(driver.machine.time_out(ID, new_producer_id=55, now_ms=driver.now_ms))
    assert ("time-out", ID) not in driver.timers
    (work,) = driver.markers
    assert (work.producer_id, work.producer_epoch) == (7, 32767)
    driver.write_markers()
    assert (driver.transaction.producer_id, driver.transaction.epoch) == (55, 0)
    assert driver.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    driver = Driver(TransactionSettings(expiration_ms=10 * HOUR_MS))
    producer = driver.producer()
    driver.advance(9 * HOUR_MS)
    assert driver.machine.get(ID) is not None
    driver.producer("young")
    driver.advance(HOUR_MS)
    assert driver.machine.get(ID) is None
    assert driver.machine.get("young") is not None
    assert driver.records[-1].value is None
    assert driver.add(producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver.crash()
    assert driver.machine.get(ID) is None


@pytest.mark.parametrize(
    ("state", "expires"),
    [
        (TransactionState.EMPTY, True),
        (TransactionState.ONGOING, False),
        (TransactionState.PREPARE_COMMIT, False),
        (TransactionState.PREPARE_ABORT, False),
        (TransactionState.COMPLETE_COMMIT, True),
        (TransactionState.COMPLETE_ABORT, True),
    ],
)
def test_only_an_idle_id_expires(state: TransactionState, expires: bool) -> None:
    transaction = Transaction(ID, 7, epoch=0, state=state, last_update_ms=1_000)
    assert transaction.may_expire(1_500, 500) is expires
    assert not transaction.may_expire(1_499, 500)


def test_many_expired_ids_are_forgotten_batch_by_batch() -> None:
    driver = Driver()
    names = [f"{index:04}" + "x" * 1_000 for index in range(300)]
    for name in names:
        driver.producer(name)
    driver.now_ms += driver.settings.expiration_ms
    counts = []
    for next_ms in (0, HOUR_MS):
        decision = driver.machine.expire(("sweep",), driver.now_ms)
        assert decision.timers == {("sweep",): next_ms}
        assert sum(len(entry.key) for entry in decision.records) <= 256 * 1024
        counts.append(len(decision.records))
        driver.perform(decision)
    assert min(counts) > 0
    assert all(driver.machine.get(name) is None for name in names)


def test_a_sweep_that_cannot_be_written_comes_again() -> None:
    driver = Driver()
    driver.producer()
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(driver.settings.expiration_ms)
    assert driver.machine.get(ID) is not None
    driver.write_error = None
    driver.advance(HOUR_MS)
    assert driver.machine.get(ID) is None


def test_a_timer_of_somebody_else_is_a_fault() -> None:
    with pytest.raises(ValueError, match="no timer"):
        Driver().machine.expire(("unheard-of", ID), 0)


# ---- crashes


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("compacted", [True, False])
def test_a_decided_transaction_is_completed_after_a_crash(committed: bool, compacted: bool) -> None:
    driver = Driver()
    producer = driver.producer()
    driver.add(producer)
    reply = driver.end(producer, committed=committed)
    told = driver.markers[0]
    driver.crash(compacted=compacted)
    assert driver.markers == [told._replace(coordinator_epoch=6)]
    driver.write_markers()
    assert driver.state() is (
        TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
    )
    assert driver.end(producer, committed=committed) == reply
    driver.crash()
    assert driver.markers == []


def test_an_ongoing_transaction_times_out_after_a_crash() -> None:
    driver = Driver()
    producer = driver.producer(timeout_ms=1_000)
    driver.add(producer)
    driver.advance(700)
    driver.crash()
    driver.advance(300)
    assert driver.state() is TransactionState.ONGOING
    driver.advance(1)
    assert driver.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_that_was_due_during_a_crash_times_out_at_once() -> None:
    driver = Driver()
    driver.add(driver.producer(timeout_ms=1_000))
    driver.timers.clear()
    driver.advance(5_000)
    driver.crash()
    driver.advance(0)
    assert driver.state() is TransactionState.PREPARE_ABORT


def test_a_new_producer_id_is_kept_over_a_crash_between_decision_and_completion() -> None:
    driver = Driver()
    driver.prepared(Transaction(ID, 7, epoch=32765, previous_producer_id=7))
    producer = driver.producer()
    driver.add(producer)
    reply = driver.end(producer, committed=True)
    driver.crash(compacted=True)
    driver.write_markers()
    assert (driver.transaction.producer_id, driver.transaction.epoch) == (reply.producer_id, 0)
    driver.crash(compacted=True)
    assert driver.end(producer, committed=True) == reply


def test_records_of_a_later_version_are_left_alone() -> None:
    driver = Driver()
    driver.producer()
    before = driver.transaction
    for key, value in ((encode_key(ID), b"\0\2rest"), (b"\0\7rest", b"rest"), (b"\0\7rest", None)):
        driver.machine.apply(StoredRecord(key, value, 99, driver.now_ms))
    driver.machine.end_transaction(before.producer_id, 100, committed=True)
    assert driver.transaction == before


# ---- failed writes


def test_what_could_not_be_written_has_not_happened() -> None:
    driver = Driver()
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.init().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.machine.get(ID) is None
    driver.write_error = None
    producer = driver.producer(timeout_ms=1_000)
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.add(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.add_offsets(producer, 3) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (driver.state(), ("time-out", ID) in driver.timers) == (TransactionState.EMPTY, False)
    driver.write_error = None
    driver.add(producer)
    before, timers = driver.transaction, dict(driver.timers)
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for reply in (driver.end(producer, committed=True), driver.abort(), driver.init()):
        assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (driver.transaction, driver.timers, driver.markers) == (before, timers, [])


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_write_is_told_as_the_coordinators_trouble(code: ErrorCode, told: ErrorCode) -> None:
    driver = Driver()
    driver.write_error = code
    assert driver.init().error_code == told


def test_a_completion_that_could_not_be_written_comes_again() -> None:
    driver = Driver()
    producer = driver.producer()
    driver.add(producer)
    driver.end(producer, committed=True)
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.write_markers()
    assert driver.state() is TransactionState.PREPARE_COMMIT
    driver.write_error = None
    driver.advance(1_000)
    assert driver.state() is TransactionState.COMPLETE_COMMIT


def test_a_time_out_that_could_not_be_written_comes_again() -> None:
    driver = Driver()
    driver.add(driver.producer(timeout_ms=1_000))
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.advance(1_500)
    assert driver.state() is TransactionState.ONGOING
    driver.write_error = None
    driver.advance(1_000)
    assert driver.state() is TransactionState.PREPARE_ABORT


def test_a_record_of_somebody_else_is_not_taken_for_the_one_that_failed() -> None:
    """What was decided and not written must not come back when a record of the same id is applied."""
    machine = TransactionMachine(TransactionSettings())
    theirs = Transaction(ID, 8, epoch=4, previous_producer_id=8)
    driver = Driver()
    driver.machine = machine
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.init()
    machine.apply(StoredRecord(encode_key(ID), encode_value(theirs, log_version=1), 0, 0))
    assert driver.transaction == theirs


def test_decisions_are_joined_with_their_markers() -> None:
    driver = Driver()
    for name in ("one", "two"):
        driver.add(driver.producer(name), transactional_id=name)
    one, two = (driver.machine.abort(0, name, now_ms=driver.now_ms) for name in ("one", "two"))
    assert one.join(two) is one
    assert [work.transactional_id for work in one.markers] == ["one", "two"]
    assert len(one.records) == 2
    assert one.responses == [], "nobody waits"
