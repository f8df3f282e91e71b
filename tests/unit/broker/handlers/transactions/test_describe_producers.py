"""DescribeProducers (KIP-664)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from support.broker.single_broker import SingleBroker

NOW = 1_700_000_000_000


def describe(broker: SingleBroker, topic: str, index: int = 0) -> DescribeProducersResponse.PartitionResponse:
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])
    answer = broker.ask(DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse, 0)
    [partition] = answer.topics[0].partitions
    assert (answer.topics[0].name, partition.partition_index) == (topic, index)
    return partition


def test_producers_and_their_open_transactions(broker: SingleBroker) -> None:
    broker.create("t")
    broker.append("t", NOW)
    broker.append("t", NOW, NOW + 5, producer_id=7)
    broker.append("t", NOW + 9, producer_id=8, transactional=True)
    told = [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in describe(broker, "t").active_producers
    ]
    assert told == [(7, 0, 1, NOW + 5, -1, -1), (8, 0, 0, NOW + 9, -1, 3)]


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no/name", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_partition_that_cannot_be_is_told(
    broker: SingleBroker, topic: str, index: int, code: ErrorCode
) -> None:
    broker.create("t")
    partition = describe(broker, topic, index)
    assert (ErrorCode(partition.error_code), partition.active_producers) == (code, [])
