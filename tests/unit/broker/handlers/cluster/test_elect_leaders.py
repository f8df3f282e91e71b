"""ElectLeaders where every partition has its leader (KIP-183, KIP-460)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from support.broker.single_broker import SingleBroker

Wanted = ElectLeadersRequest.TopicPartitions


def elect(
    broker: SingleBroker, wanted: list[Wanted] | None, *, election_type: int = 0, version: int = 2
) -> tuple[int, dict[str, dict[int, ErrorCode]]]:
    message = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted, timeout_ms=1000)
    answer = broker.ask(message, ElectLeadersResponse, version)
    results = {
        topic.topic: {one.partition_id: ErrorCode(one.error_code) for one in topic.partition_result}
        for topic in answer.replica_election_results
    }
    return answer.error_code, results


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(broker: SingleBroker, version: int) -> None:
    broker.create("t", 2)
    wanted = [Wanted(topic="t", partitions=[0, 1, 2]), Wanted(topic="none", partitions=[0])]
    needless, unknown = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for election_type in (0, 1) if version >= 1 else (0,):
        assert elect(broker, wanted, election_type=election_type, version=version) == (
            0,
            {"t": {0: needless, 1: needless, 2: unknown}, "none": {0: unknown}},
        )


def test_all_partitions_have_nothing_to_tell(broker: SingleBroker) -> None:
    broker.create("t", 2)
    assert elect(broker, None) == (0, {"t": {}})


def test_an_unknown_kind_of_election_is_refused(broker: SingleBroker) -> None:
    broker.create("t")
    refused = ErrorCode.INVALID_REQUEST
    assert elect(broker, [Wanted(topic="t", partitions=[0])], election_type=2) == (
        refused,
        {"t": {0: refused}},
    )
    assert elect(broker, None, election_type=2) == (refused, {})
