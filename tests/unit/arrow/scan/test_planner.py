"""What the driver asks the brokers for, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="toolchain: pyspark, of flintmq[spark]")
pytest.importorskip("pyarrow", reason="toolchain: pyarrow, of flintmq[spark]")

from pyspark.sql.datasource import EqualTo

from flintmq.arrow.scan.limits import ScanLimits
from flintmq.arrow.scan.narrowing import EVERYTHING, Narrowing
from flintmq.arrow.scan.offset_range import OffsetRange
from flintmq.arrow.scan.options import parse
from flintmq.arrow.scan.planner import Planner
from flintmq.client.admin.topics import EARLIEST, LATEST
from flintmq.errors import ErrorCode
from flintmq.protocol.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
)
from flintmq.spark.filters import narrow
from support.broker.scripted_broker import TOPIC_ID, ScriptedBroker, metadata, scripted_client

ENDS = {0: 1000, 1: 100, 2: 0}


def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Partitions begin at 0 and end at ENDS, or for committed reads one earlier."""
    committed = request.isolation_level
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        offset=0
                        if one.timestamp == EARLIEST
                        else max(0, ENDS[one.partition_index] - committed),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def log_dirs(size: int, error: ErrorCode = ErrorCode.NONE) -> Any:
    def answer(_: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        partitions = [
            DescribeLogDirsResponse.DescribeLogDirsPartition(partition_index=index, partition_size=size)
            for index in ENDS
        ]
        topic = DescribeLogDirsResponse.DescribeLogDirsTopic(name="t", partitions=partitions)
        folder = DescribeLogDirsResponse.DescribeLogDirsResult(topics=[topic])
        return DescribeLogDirsResponse(error_code=error, results=[folder])

    return answer


@pytest.fixture
def broker() -> ScriptedBroker:
    return ScriptedBroker(
        {
            MetadataRequest: metadata(3),
            ListOffsetsRequest: list_offsets,
            DescribeLogDirsRequest: log_dirs(10_000),
        }
    )


def planned(
    broker: ScriptedBroker,
    narrowing: Narrowing = EVERYTHING,
    limits: ScanLimits | None = None,
    **options: str,
) -> list[tuple[int, int, int]]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    needed = {"kafka.bootstrap.servers": "bootstrap", "subscribe": "t", "segments": "never"}
    parsed = replace(parse({**needed, **named}), limits=limits or ScanLimits())
    ranges = Planner(scripted_client(broker), parsed).batch(narrowing)
    assert all(isinstance(one, OffsetRange) and one.topic_id == TOPIC_ID for one in ranges)
    return [(one.partition, one.start, one.end) for one in ranges if isinstance(one, OffsetRange)]


def test_a_plan_takes_one_round_of_each_question(broker: ScriptedBroker) -> None:
    assert planned(broker) == [(0, 0, 1000), (1, 0, 100)]
    asked = [type(one).__name__ for one in broker.requests]
    assert asked == ["MetadataRequest", "ListOffsetsRequest", "ListOffsetsRequest", "DescribeLogDirsRequest"]
    times = [one.topics[0].partitions[0].timestamp for one in broker.requests[1:3]]
    assert times == [EARLIEST, LATEST]


def test_committed_reads_ask_for_the_last_stable_offset(broker: ScriptedBroker) -> None:
    assert planned(broker, kafka__isolation__level="read_committed") == [(0, 0, 999), (1, 0, 99)]


def test_partitions_that_a_filter_leaves_out_are_not_asked_about(broker: ScriptedBroker) -> None:
    narrowing, _ = narrow([EqualTo(("partition",), 1)])
    assert planned(broker, narrowing) == [(1, 0, 100)]
    asked = [one for one in broker.requests if isinstance(one, ListOffsetsRequest)]
    assert {place.partition_index for one in asked for place in one.topics[0].partitions} == {1}


def test_large_partitions_are_split_by_their_bytes(broker: ScriptedBroker) -> None:
    found = planned(broker, limits=ScanLimits(task_bytes=5_000))
    assert found == [
        (0, 0, 500),
        (0, 500, 1000),
        (1, 0, 50),
        (1, 50, 100),
    ]


def test_a_broker_that_does_not_tell_sizes_is_read_partition_by_partition(broker: ScriptedBroker) -> None:
    broker.answers[DescribeLogDirsRequest] = log_dirs(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert planned(broker) == [(0, 0, 1000), (1, 0, 100)]


def test_who_says_how_to_split_is_not_asked_about_sizes(broker: ScriptedBroker) -> None:
    assert len(planned(broker, minPartitions="11")) == 11
    assert not [one for one in broker.requests if isinstance(one, DescribeLogDirsRequest)]
