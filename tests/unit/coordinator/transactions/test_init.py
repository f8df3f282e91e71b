"""Who gets a transactional id, with which producer id and epoch (F6, N1)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.transactions.machine import TransactionSettings
from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.errors import ErrorCode
from unit.coordinator.transactions.driver import ID, Driver


def exhausted(epoch: int = 32766, state: TransactionState = TransactionState.EMPTY) -> Driver:
    """A producer id of which that epoch is given away."""
    driver = Driver()
    driver.prepared(
        Transaction(
            ID, 7, epoch=epoch, previous_producer_id=7, timeout_ms=60_000, state=state, client_version=2
        )
    )
    return driver


def test_the_first_producer_gets_the_new_producer_id_and_epoch_0() -> None:
    driver = Driver()
    reply = driver.init()
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 1000, 0)
    assert driver.state() is TransactionState.EMPTY


def test_the_next_producer_gets_the_next_epoch() -> None:
    driver = Driver()
    first = driver.producer()
    assert driver.producer() == (first[0], first[1] + 1)


def test_the_time_out_is_the_newest_producers() -> None:
    driver = Driver()
    driver.init(timeout_ms=1_000)
    driver.init(timeout_ms=2_000)
    assert driver.transaction.timeout_ms == 2_000


@pytest.mark.parametrize("timeout_ms", [0, -1, 5_001])
def test_a_time_out_out_of_bounds_is_refused(timeout_ms: int) -> None:
    driver = Driver(TransactionSettings(max_timeout_ms=5_000))
    reply = driver.init(timeout_ms=timeout_ms)
    assert (reply.error_code, reply.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)
    assert driver.records == []
    assert driver.init(timeout_ms=5_000).error_code == 0


@pytest.mark.parametrize(("transactional_id", "expected"), [("", (-1, -1)), (ID, (5, -1)), (ID, (-1, 5))])
def test_a_request_that_makes_no_sense_is_refused(transactional_id: str, expected: tuple[int, int]) -> None:
    assert Driver().init(transactional_id, expected).error_code == ErrorCode.INVALID_REQUEST


def test_a_producer_that_continues_gets_the_next_epoch() -> None:
    """KIP-360."""
    driver = Driver()
    producer = driver.producer()
    reply = driver.init(expected=producer)
    assert (reply.producer_id, reply.producer_epoch) == (producer[0], 1)


def test_a_producer_that_asks_again_to_continue_gets_the_same_epoch() -> None:
    """KIP-360: the first answer was lost."""
    driver = Driver()
    producer = driver.producer()
    driver.init(expected=producer)
    assert driver.init(expected=producer).producer_epoch == 1
    assert driver.init(expected=(producer[0], 1)).producer_epoch == 2


def test_a_producer_does_not_continue_after_another_has_the_id() -> None:
    """KIP-360: the other one made the coordinator forget the epoch before."""
    driver = Driver()
    old = driver.producer()
    driver.producer()
    records = len(driver.records)
    assert driver.init(expected=old).error_code == ErrorCode.PRODUCER_FENCED
    assert len(driver.records) == records


def test_a_producer_with_somebody_elses_producer_id_does_not_continue() -> None:
    driver = Driver()
    driver.producer()
    assert driver.init(expected=(77, 0)).error_code == ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_is_forgotten_starts_anew() -> None:
    """KIP-360: the coordinator does not know the id any more, and takes any producer id for it."""
    reply = Driver().init(expected=(77, 5))
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 1000, 0)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_old_versions_are_told_of_fencing_as_an_invalid_epoch(version: int, code: ErrorCode) -> None:
    """KIP-588."""
    driver = Driver()
    driver.producer()
    assert driver.init(expected=(77, 0), version=version).error_code == code


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_producer_that_finds_a_transaction_has_it_aborted_and_asks_again(transaction_version: int) -> None:
    driver = Driver(TransactionSettings(transaction_version=transaction_version))
    old = driver.producer()
    driver.add(old)
    assert driver.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (driver.state(), driver.transaction.epoch) == (TransactionState.PREPARE_ABORT, 1)
    (work,) = driver.markers
    assert (work.producer_epoch, work.committed, work.partitions) == (1, False, [("topic", 0)])
    assert work.coordinator_epoch == 5
    assert driver.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.producer() == (old[0], 2)
    for committed in (True, False):
        assert driver.end(old, committed=committed).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_a_new_producer_id_follows_when_the_epochs_have_run_out(state: TransactionState) -> None:
    driver = exhausted(state=state)
    assert driver.producer() == (1000, 0)
    assert driver.transaction.previous_producer_id == 7


def test_the_last_epoch_but_one_is_still_given_away() -> None:
    assert exhausted(epoch=32765).producer() == (7, 32766)


def test_a_producer_that_continues_over_the_last_epoch_may_ask_again() -> None:
    """KIP-360: it knows the old producer id only."""
    driver = exhausted()
    for _ in range(2):
        reply = driver.init(expected=(7, 32766))
        assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 1000, 0)
    assert driver.init(expected=(7, 32765)).error_code == ErrorCode.PRODUCER_FENCED


def test_an_old_epoch_does_not_continue_where_the_epochs_have_run_out() -> None:
    assert exhausted().init(expected=(7, 32760)).error_code == ErrorCode.PRODUCER_FENCED


def test_without_the_producer_id_that_is_needed_the_client_asks_again() -> None:
    driver = Driver()
    from_nothing = driver.machine.wants_producer_id(ID)
    driver.producer()
    assert (from_nothing, driver.machine.wants_producer_id(ID)) == (True, False)
    driver = exhausted()
    assert driver.machine.wants_producer_id(ID)
    driver.new_producer_id = lambda: -1  # type: ignore[method-assign]
    assert driver.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.init("another").error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.machine.get("another") is None
