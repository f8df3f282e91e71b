"""Which markers a log takes, and what its snapshots keep of transactions (F6, KIP-98, KIP-890)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode, RequestError
from flintmq.records.batch import BatchHeader, read_header
from flintmq.records.markers import Marker
from flintmq.storage.producer_state import EPOCH_MAX, ProducerState
from support.wire.batches import produced

ID = 9


def batch(sequence: int, *, epoch: int, txn: bool = True, producer_id: int = ID) -> BatchHeader:
    return read_header(
        produced(b"x", producer_id=producer_id, epoch=epoch, sequence=sequence, is_transactional=txn)
    )


def marker(epoch: int, *, coordinator_epoch: int = 0, producer_id: int = ID) -> Marker:
    return Marker(producer_id, epoch, coordinator_epoch, committed=True)


def refusal(producers: ProducerState, one: Marker, *, bumps_epoch: bool) -> ErrorCode:
    try:
        producers.check_marker(one, bumps_epoch=bumps_epoch)
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


def with_open(epoch: int) -> ProducerState:
    producers = ProducerState()
    producers.record(batch(0, epoch=epoch), 100)
    return producers


def with_ended(epoch: int, *, coordinator_epoch: int = 0) -> ProducerState:
    producers = with_open(epoch)
    assert producers.end_transaction(marker(epoch, coordinator_epoch=coordinator_epoch), 0) == 100
    return producers


STALE, FENCED, NONE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.NONE,
)


@pytest.mark.parametrize(
    ("epoch", "bumps_epoch", "code"),
    [
        (4, False, STALE),
        (5, False, NONE),
        (6, False, NONE),
        (4, True, STALE),
        (5, True, STALE),
        (6, True, NONE),
    ],
)
def test_a_marker_of_an_open_transaction_has_its_epoch_or_a_higher_one(
    epoch: int, bumps_epoch: bool, code: ErrorCode
) -> None:
    """KIP-890: where each transaction has its own, one of the same epoch is of an earlier transaction."""
    assert refusal(with_open(5), marker(epoch), bumps_epoch=bumps_epoch) is code


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_a_marker_may_come_again_once_its_transaction_has_ended(bumps_epoch: bool) -> None:
    assert refusal(with_ended(5), marker(5), bumps_epoch=bumps_epoch) is NONE
    assert refusal(with_ended(5), marker(4), bumps_epoch=bumps_epoch) is STALE


def test_a_transaction_in_the_last_of_all_epochs_can_be_ended() -> None:
    assert refusal(with_open(EPOCH_MAX), marker(EPOCH_MAX), bumps_epoch=True) is NONE


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_a_producer_that_is_not_known_takes_any_marker(bumps_epoch: bool) -> None:
    assert refusal(ProducerState(), marker(0), bumps_epoch=bumps_epoch) is NONE


def test_a_coordinator_that_was_replaced_is_fenced() -> None:
    producers = with_ended(5, coordinator_epoch=3)
    assert refusal(producers, marker(6, coordinator_epoch=2), bumps_epoch=True) is FENCED
    assert refusal(producers, marker(6, coordinator_epoch=3), bumps_epoch=True) is NONE
    # Kafka looks at the producer's epoch first.
    assert refusal(producers, marker(4, coordinator_epoch=2), bumps_epoch=True) is STALE


def test_a_check_changes_nothing() -> None:
    producers = with_open(5)
    before = producers.encode()
    refusal(producers, marker(6), bumps_epoch=True)
    refusal(producers, marker(4), bumps_epoch=True)
    assert producers.encode() == before


def test_after_a_marker_of_a_new_epoch_its_producer_counts_from_zero() -> None:
    producers = with_open(5)
    producers.end_transaction(marker(6), 0)
    with pytest.raises(RequestError) as error:
        producers.check(batch(1, epoch=6))
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(RequestError) as error:
        producers.check(batch(1, epoch=5))
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(batch(0, epoch=6)) is None


def test_after_a_marker_of_the_same_epoch_its_producer_counts_on() -> None:
    producers = with_ended(5)
    assert producers.check(batch(1, epoch=5)) is None
    known = producers.check(batch(0, epoch=5))
    assert known is not None
    assert known.first_offset == 100


def test_a_batch_outside_the_open_transaction_is_refused() -> None:
    with pytest.raises(RequestError) as error:
        with_open(5).check(batch(1, epoch=5, txn=False))
    assert error.value.code is ErrorCode.INVALID_TXN_STATE


# -- snapshots


def test_a_snapshot_keeps_open_transactions_and_who_ended_the_others() -> None:
    producers = ProducerState()
    producers.record(batch(0, epoch=5, producer_id=1), 100)
    producers.record(batch(0, epoch=5, producer_id=2), 101)
    producers.record(batch(1, epoch=5, producer_id=1), 102)
    producers.end_transaction(marker(6, coordinator_epoch=4, producer_id=2), 7)
    again = ProducerState.decode(producers.encode())
    assert again.encode() == producers.encode()
    assert again.first_unstable_offset == 100
    assert again.has_open_transaction(1, 5)
    assert not again.has_open_transaction(2, 6)
    assert refusal(again, marker(7, coordinator_epoch=3, producer_id=2), bumps_epoch=True) is FENCED
    assert again.end_transaction(marker(6, producer_id=1), 8) == 100
    assert again.first_unstable_offset is None


def test_a_snapshot_keeps_the_open_transaction_of_one_that_only_coordinators_wrote_for() -> None:
    producers = ProducerState()
    producers.record(batch(-1, epoch=5), 100)
    again = ProducerState.decode(producers.encode())
    assert again.encode() == producers.encode()
    assert again.first_unstable_offset == 100
    assert refusal(again, marker(6), bumps_epoch=True) is NONE
    # Its own first batch still begins at 0.
    assert again.check(batch(0, epoch=5)) is None


# -- how many are remembered


def test_producers_known_by_their_markers_are_bounded_too() -> None:
    producers = ProducerState(producers_max=3)
    producers.record(batch(0, epoch=0, producer_id=1), 100)
    for producer_id in range(2, 7):
        producers.end_transaction(marker(0, producer_id=producer_id), 0)
    assert [producer.producer_id for producer in producers] == [1, 5, 6]


def test_one_whose_transaction_was_just_ended_is_not_the_next_to_be_forgotten() -> None:
    producers = ProducerState(producers_max=2)
    for producer_id in (1, 2):
        producers.record(batch(0, epoch=0, producer_id=producer_id), 100 + producer_id)
    for producer_id in (2, 1):
        producers.end_transaction(marker(1, producer_id=producer_id), 0)
    producers.record(batch(0, epoch=0, producer_id=3), 110)
    assert [producer.producer_id for producer in producers] == [1, 3]
