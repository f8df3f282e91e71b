"""DescribeQuorum: one voter (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from support.broker.single_broker import NODE_ID, SingleBroker

METADATA = "__cluster_metadata"


def request_for(*places: tuple[str, int]) -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(topic_name=name, partitions=[partition(partition_index=index)])
            for name, index in places
        ]
    )


@pytest.mark.parametrize("version", range(3))
def test_this_broker_is_the_one_voter(broker: SingleBroker, version: int) -> None:
    broker.create("t")
    answer = broker.ask(request_for((METADATA, 0)), DescribeQuorumResponse, version)
    assert answer.error_code == 0
    [partition] = answer.topics[0].partitions
    revision = broker.services.metadata.image.revision
    assert (partition.error_code, partition.leader_id, partition.high_watermark) == (0, NODE_ID, revision)
    [voter] = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, revision)
    assert partition.observers == []
    now_ms = broker.loop.clock.now_ms()
    assert voter.last_caught_up_timestamp == (now_ms if version >= 1 else -1)
    if version >= 2:
        [node] = answer.nodes
        [listener] = node.listeners
        assert (node.node_id, listener.host, listener.port) == (NODE_ID, "127.0.0.1", 9092)


@pytest.mark.parametrize("places", [[("t", 0)], [(METADATA, 1)], [(METADATA, 0), ("t", 0)]])
def test_anything_else_is_unknown(broker: SingleBroker, places: list[tuple[str, int]]) -> None:
    broker.create("t")
    answer = broker.ask(request_for(*places), DescribeQuorumResponse, 2)
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(places)
