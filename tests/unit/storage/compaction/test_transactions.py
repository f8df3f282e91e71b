"""Aborted data and spent markers, batch by batch (KIP-98)."""

from __future__ import annotations

import pytest

from flintmq.errors import CorruptionError
from flintmq.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from flintmq.records.markers import ABORT, COMMIT, control_type
from flintmq.storage.aborted_transactions import AbortedTransaction, decode_aborted, encode_aborted
from flintmq.storage.compaction.transactions import CleanedTransactions


def batch(first: int, last: int, producer_id: int, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(
        first, 49, 0, 2, 0, attributes, last - first, 0, 0, producer_id, 0, 0, last - first + 1
    )


def marker(offset: int, producer_id: int) -> BatchHeader:
    return batch(offset, offset, producer_id, TRANSACTIONAL | CONTROL)


def test_data_between_the_first_offset_and_the_marker_of_an_aborted_transaction_is_aborted() -> None:
    aborted = AbortedTransaction(1, 10, 20, 21)
    transactions = CleanedTransactions([aborted], 0)
    assert not transactions.pass_data(batch(5, 9, 1))
    assert transactions.pass_data(batch(10, 12, 1))
    assert not transactions.pass_data(batch(13, 14, 2))
    assert not transactions.pass_data(batch(15, 15, 1, attributes=0))
    assert not transactions.pass_marker(marker(20, 1), ABORT)
    assert transactions.still_indexed == [aborted]
    assert not transactions.pass_data(batch(21, 21, 1))


def test_marker_of_an_aborted_transaction_is_spent_when_no_data_of_it_was_met() -> None:
    transactions = CleanedTransactions([AbortedTransaction(1, 10, 20, 21)], 0)
    transactions.pass_data(batch(11, 12, 2))
    assert transactions.pass_marker(marker(20, 1), ABORT)
    assert transactions.still_indexed == []


def test_marker_of_a_committed_transaction_is_spent_when_no_data_of_it_was_met() -> None:
    transactions = CleanedTransactions([], 0)
    transactions.pass_data(batch(1, 1, 1))
    assert not transactions.pass_marker(marker(2, 1), COMMIT)
    assert transactions.pass_marker(marker(3, 1), COMMIT)


def test_two_aborted_transactions_of_one_producer_are_told_apart() -> None:
    both = [AbortedTransaction(1, 30, 35, 36), AbortedTransaction(1, 10, 12, 13)]
    transactions = CleanedTransactions(both, 0)
    assert transactions.pass_data(batch(10, 11, 1))
    assert not transactions.pass_marker(marker(12, 1), ABORT)
    assert not transactions.pass_data(batch(20, 21, 1))
    assert not transactions.pass_marker(marker(22, 1), COMMIT)
    assert transactions.pass_data(batch(30, 31, 1))
    assert not transactions.pass_marker(marker(35, 1), ABORT)
    assert transactions.still_indexed == [both[1], both[0]]


def test_a_transaction_that_ended_before_the_walk_says_nothing() -> None:
    transactions = CleanedTransactions([AbortedTransaction(1, 10, 20, 21)], 21)
    assert not transactions.pass_data(batch(21, 22, 1))


def test_other_control_records_are_never_spent_and_empty_ones_always() -> None:
    transactions = CleanedTransactions([], 0)
    assert not transactions.pass_marker(marker(1, -1), 2)
    assert transactions.pass_marker(marker(2, 1), None)


def test_index_is_in_kafkas_format_and_comes_back() -> None:
    entries = [AbortedTransaction(7, 1, 2, 3), AbortedTransaction(8, 4, 5, 6)]
    data = encode_aborted(entries)
    assert len(data) == 2 * 34
    assert data[:18] == b"\x00\x00" + (7).to_bytes(8, "big") + (1).to_bytes(8, "big")
    assert decode_aborted(data) == entries


@pytest.mark.parametrize("data", [bytes(33), b"\x00\x01" + bytes(32)])
def test_index_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_aborted(data)


def test_control_records_say_what_they_are_in_their_key() -> None:
    assert control_type(b"\x00\x00\x00\x00") == ABORT
    assert control_type(b"\x00\x00\x00\x01") == COMMIT
    for key in (None, b"\x00\x00\x00"):
        with pytest.raises(CorruptionError):
            control_type(key)
