"""How transactions end, and who may end them (F6, N1, KIP-890)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.transactions.transaction import Transaction, TransactionState
from flintmq.errors import ErrorCode
from unit.coordinator.transactions.driver import ID, Driver

COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def ongoing(*, epoch: int | None = None) -> tuple[Driver, tuple[int, int]]:
    driver = Driver()
    if epoch is not None:
        driver.prepared(Transaction(ID, 7, epoch=epoch - 1, previous_producer_id=7))
    producer = driver.producer()
    driver.add(producer)
    return driver, producer


def in_state(state: TransactionState, epoch: int = 4) -> Driver:
    driver = Driver()
    driver.prepared(
        Transaction(
            ID, 7, epoch=epoch, previous_producer_id=7, timeout_ms=60_000, state=state, client_version=2
        )
    )
    return driver


@pytest.mark.parametrize("committed", [True, False])
def test_the_first_generation_keeps_its_epoch(committed: bool) -> None:
    driver, producer = ongoing()
    driver.add(producer, ("topic", 1))
    reply = driver.end(producer, committed=committed, version=4)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, -1, -1)
    (work,) = driver.markers
    assert (work.transactional_id, work.producer_id, work.producer_epoch) == (ID, *producer)
    assert (work.committed, work.partitions) == (committed, [("topic", 0), ("topic", 1)])
    assert work.transaction_version == 0
    driver.write_markers()
    assert (driver.state(), driver.transaction.epoch) == (COMPLETE[committed], producer[1])
    assert driver.transaction.partitions == frozenset()
    assert driver.add(producer) == 0


@pytest.mark.parametrize("committed", [True, False])
def test_the_second_generation_goes_on_with_the_next_epoch(committed: bool) -> None:
    driver, producer = ongoing()
    reply = driver.end(producer, committed=committed)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, producer[0], producer[1] + 1)
    (work,) = driver.markers
    assert (work.producer_epoch, work.committed, work.transaction_version) == (producer[1] + 1, committed, 2)
    driver.write_markers()
    assert driver.state() is COMPLETE[committed]
    assert driver.add(producer) == ErrorCode.PRODUCER_FENCED
    assert driver.add((reply.producer_id, reply.producer_epoch)) == 0


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_an_end_that_is_asked_for_again_is_answered_alike(committed: bool, version: int) -> None:
    driver, producer = ongoing()
    first = driver.end(producer, committed=committed, version=version)
    waiting = driver.end(producer, committed=committed, version=version)
    assert waiting.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    records = len(driver.records)
    assert driver.end(producer, committed=committed, version=version) == first
    opposite = driver.end(producer, committed=not committed, version=version)
    assert opposite.error_code == ErrorCode.INVALID_TXN_STATE
    assert len(driver.records) == records


@pytest.mark.parametrize(
    ("state", "committed", "is_retry", "code"),
    [
        (TransactionState.EMPTY, False, True, ErrorCode.PRODUCER_FENCED),
        (TransactionState.EMPTY, False, False, ErrorCode.NONE),
        (TransactionState.EMPTY, True, True, ErrorCode.PRODUCER_FENCED),
        (TransactionState.EMPTY, True, False, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, False, True, ErrorCode.NONE),
        (TransactionState.COMPLETE_ABORT, False, False, ErrorCode.NONE),
        (TransactionState.COMPLETE_ABORT, True, True, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, True, False, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_COMMIT, False, True, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_COMMIT, False, False, ErrorCode.NONE),
        (TransactionState.COMPLETE_COMMIT, True, True, ErrorCode.NONE),
        (TransactionState.COMPLETE_COMMIT, True, False, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_the_second_generation_ends_what_never_began(
    state: TransactionState, committed: bool, is_retry: bool, code: ErrorCode
) -> None:
    """KIP-890: only an abort under the current epoch bumps it, without any partition to be told."""
    driver = in_state(state)
    reply = driver.end((7, 3 if is_retry else 4), committed=committed)
    assert reply.error_code == code
    bumps = code is ErrorCode.NONE and not is_retry
    if code is ErrorCode.NONE:
        assert (reply.producer_id, reply.producer_epoch) == (7, 5 if bumps else 4)
    assert driver.transaction.epoch == (5 if bumps else 4)
    assert [work.partitions for work in driver.markers] == ([[]] if bumps else [])
    if bumps:
        driver.write_markers()
        assert (driver.state(), driver.transaction.start_ms) == (
            TransactionState.COMPLETE_ABORT,
            driver.now_ms,
        )


@pytest.mark.parametrize(
    ("state", "committed", "code"),
    [
        (TransactionState.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_COMMIT, True, ErrorCode.NONE),
        (TransactionState.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, False, ErrorCode.NONE),
    ],
)
def test_the_first_generation_ends_nothing_that_never_began(
    state: TransactionState, committed: bool, code: ErrorCode
) -> None:
    driver = in_state(state)
    records = len(driver.records)
    assert driver.end((7, 4), committed=committed, version=4).error_code == code
    assert driver.end((7, 3), committed=committed, version=4).error_code == ErrorCode.PRODUCER_FENCED
    assert len(driver.records) == records


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)
def test_only_the_newest_epoch_ends_a_transaction(version: int, code: ErrorCode) -> None:
    driver = Driver()
    old = driver.producer()
    new = driver.producer()
    driver.add(new)
    for epoch in (old[1], new[1] + 1):
        assert driver.end((new[0], epoch), committed=True, version=version).error_code == code
    stranger = driver.end((new[0] + 1, new[1]), committed=True, version=version)
    assert stranger.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.state() is TransactionState.ONGOING


@pytest.mark.parametrize("version", [4, 5])
def test_nobody_ends_the_transaction_of_an_id_that_nobody_has(version: int) -> None:
    driver = Driver()
    unknown = driver.end((5, 0), committed=True, version=version)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    empty = driver.end((5, 0), committed=True, version=version, transactional_id="")
    assert empty.error_code == ErrorCode.INVALID_REQUEST


def test_an_epoch_that_another_producer_took_over_is_not_taken_for_one_that_asks_again() -> None:
    """The other one is of the first generation: its end did not bump the epoch that it was given."""
    driver = Driver()
    old = driver.producer()
    new = driver.producer()
    driver.add(new, version=3)
    driver.end(new, committed=True, version=4)
    driver.write_markers()
    assert driver.end(old, committed=True).error_code == ErrorCode.PRODUCER_FENCED


def test_a_delayed_end_does_not_touch_the_next_transaction() -> None:
    """KIP-890: the fault that the second generation is there for."""
    driver, producer = ongoing()
    reply = driver.end(producer, committed=True)
    driver.write_markers()
    after = (reply.producer_id, reply.producer_epoch)
    driver.add(after)
    for committed in (True, False):
        assert driver.end(producer, committed=committed).error_code == ErrorCode.PRODUCER_FENCED
    assert driver.state() is TransactionState.ONGOING


@pytest.mark.parametrize("committed", [True, False])
def test_the_last_epoch_passes_to_a_new_producer_id(committed: bool) -> None:
    """KIP-890: the markers still carry the old one, under an epoch that no client had."""
    driver, producer = ongoing(epoch=32766)
    assert producer == (7, 32766)
    reply = driver.end(producer, committed=committed)
    assert (reply.producer_id, reply.producer_epoch) == (1000, 0)
    (work,) = driver.markers
    assert (work.producer_id, work.producer_epoch) == (7, 32767)
    waiting = driver.end((1000, 0), committed=committed)
    assert waiting.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.end(producer, committed=committed) == reply
    assert driver.end(producer, committed=not committed).error_code == ErrorCode.INVALID_TXN_STATE
    assert driver.end((7, 32765), committed=committed).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((1000, 0)) == 0
    late = driver.end(producer, committed=committed)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_first_generation_client_may_use_the_last_epoch_to_the_end() -> None:
    driver, producer = ongoing(epoch=32766)
    assert driver.end(producer, committed=True, version=4).error_code == 0
    driver.write_markers()
    assert (driver.transaction.producer_id, driver.transaction.epoch) == producer


def test_markers_of_another_decision_complete_nothing() -> None:
    driver, producer = ongoing()
    driver.end(producer, committed=True)
    epoch = producer[1] + 1
    for wrong in ((producer[0], epoch - 1), (producer[0] + 1, epoch)):
        driver.perform(driver.machine.markers_written(ID, *wrong, driver.now_ms))
        driver.perform(driver.machine.markers_written("another", *wrong, driver.now_ms))
    assert driver.state() is TransactionState.PREPARE_COMMIT
    driver.write_markers()
    records = len(driver.records)
    driver.perform(driver.machine.markers_written(ID, producer[0], epoch, driver.now_ms))
    assert len(driver.records) == records


def test_an_operator_aborts_an_ongoing_transaction() -> None:
    driver = Driver()
    assert driver.abort().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert driver.abort("").error_code == ErrorCode.INVALID_REQUEST
    producer = driver.producer()
    assert driver.abort().error_code == ErrorCode.INVALID_TXN_STATE
    driver.add(producer)
    assert driver.abort().error_code == 0
    assert driver.abort().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    driver.write_markers()
    assert driver.state() is TransactionState.COMPLETE_ABORT
    assert driver.end(producer, committed=True).error_code == ErrorCode.INVALID_TXN_STATE
