"""Partitions and groups that take part in a transaction (F6, KIP-98, KIP-890)."""

from __future__ import annotations

import pytest

from flintmq.coordinator.transactions import responses
from flintmq.coordinator.transactions.transaction import TransactionState
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AddPartitionsToTxnRequest
from unit.coordinator.transactions.driver import ID, PARTITION, START_MS, Driver

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def test_the_first_partition_begins_the_transaction() -> None:
    driver = Driver()
    producer = driver.producer()
    driver.advance(10)
    assert driver.add(producer) == 0
    assert (driver.state(), driver.transaction.start_ms) == (TransactionState.ONGOING, START_MS + 10)


def test_further_partitions_join_it() -> None:
    driver = Driver()
    producer = driver.producer()
    driver.add(producer)
    driver.advance(10)
    driver.add(producer, ("topic", 1))
    assert driver.transaction.partitions == {("topic", 0), ("topic", 1)}
    assert (driver.transaction.start_ms, driver.transaction.last_update_ms) == (START_MS, START_MS + 10)


def test_a_partition_that_takes_part_already_is_not_written_again() -> None:
    driver = Driver()
    producer = driver.producer()
    driver.add(producer)
    records = len(driver.records)
    assert driver.add(producer) == 0
    assert len(driver.records) == records


def test_the_partition_of_a_groups_offsets_takes_part() -> None:
    driver = Driver()
    producer = driver.producer()
    assert driver.add_offsets(producer, 17) == 0
    assert driver.transaction.partitions == {("__consumer_offsets", 17)}


@pytest.mark.parametrize(("version", "generation"), [(3, 0), (4, 2), (5, 2)])
def test_the_generation_of_the_client_is_remembered(version: int, generation: int) -> None:
    driver = Driver()
    driver.add(driver.producer(), version=version)
    assert driver.transaction.client_version == generation


def test_nobody_adds_to_an_id_that_nobody_has() -> None:
    driver = Driver()
    assert driver.add((5, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((5, 0), verify_only=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.add((5, 0), transactional_id="") == ErrorCode.INVALID_REQUEST
    assert driver.add((5, 0), transactional_id="", verify_only=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
def test_an_old_epoch_is_fenced(version: int, code: ErrorCode) -> None:
    """KIP-588: the oldest versions know the code of an invalid epoch only."""
    driver = Driver()
    old = driver.producer()
    driver.producer()
    assert driver.add(old, version=version) == code
    assert driver.add_offsets(old, 0, version=version) == code
    assert driver.add((old[0] + 1, 1), version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_everybody_waits_while_the_transaction_before_is_not_complete() -> None:
    driver = Driver()
    producer = driver.producer()
    driver.add(producer)
    reply = driver.end(producer, committed=True)
    after = (reply.producer_id, reply.producer_epoch)
    for one in (producer, after, (1, 1)):
        assert driver.add(one) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(after, verify_only=True) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert driver.add(producer, verify_only=True) == ErrorCode.PRODUCER_FENCED
    driver.write_markers()
    assert driver.add(after) == 0


def test_only_what_takes_part_is_verified() -> None:
    """KIP-890: a partition that does not makes the client abort."""
    driver = Driver()
    producer = driver.producer()
    assert driver.add(producer, verify_only=True) == ErrorCode.TRANSACTION_ABORTABLE
    driver.add(producer)
    records = len(driver.records)
    reply = driver.add_all(producer, [PARTITION, ("topic", 1)], verify_only=True)
    (topic,) = reply.results_by_transaction[0].topic_results
    codes = {one.partition_index: one.partition_error_code for one in topic.results_by_partition}
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE}
    assert driver.add((producer[0], 9), verify_only=True) == ErrorCode.PRODUCER_FENCED
    assert len(driver.records) == records


def test_the_answer_names_every_partition_in_the_shape_of_its_version() -> None:
    driver = Driver()
    producer = driver.producer()
    asked = [("b", 1), ("a", 0), ("b", 0)]
    old = driver.add_all(producer, asked, version=3)
    named = [
        (topic.name, one.partition_index)
        for topic in old.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    assert sorted(named) == sorted(asked)
    assert old.results_by_transaction == []
    new = driver.add_all(producer, asked, version=4)
    assert [one.transactional_id for one in new.results_by_transaction] == [ID]
    assert new.results_by_topic_v3_and_below == []
    assert len(responses.joined([new, new]).results_by_transaction) == 2


def test_old_requests_read_as_new_ones() -> None:
    topics = [Topic(name="t", partitions=[1, 1, 0]), Topic(name="t", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=5,
        v3_and_below_producer_epoch=2,
        v3_and_below_topics=topics,
    )
    (transaction,) = responses.transactions_of(request, 3)
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (ID, 5, 2)
    assert not transaction.verify_only
    assert responses.partitions_of(transaction) == [("t", 1), ("t", 0)]
    batched = AddPartitionsToTxnRequest(transactions=[transaction, transaction])
    assert len(responses.transactions_of(batched, 4)) == 2
