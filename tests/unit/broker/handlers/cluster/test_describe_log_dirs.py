"""DescribeLogDirs: sizes and room (KIP-113, KIP-827)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from support.broker.single_broker import SingleBroker

Topic = DescribeLogDirsRequest.DescribableLogDirTopic
NOW = 1_700_000_000_000


def describe(
    broker: SingleBroker, topics: list[Topic] | None, version: int = 5
) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    answer = broker.ask(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse, version)
    assert answer.error_code == 0
    [folder] = answer.results
    assert folder.log_dir == broker.path
    return folder


def partitions(
    folder: DescribeLogDirsResponse.DescribeLogDirsResult,
) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, one.partition_index): (one.partition_size, one.offset_lag)
        for topic in folder.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_all_partitions_with_their_sizes(broker: SingleBroker, version: int) -> None:
    broker.create("a", 2)
    broker.create("b")
    broker.append("b", NOW)
    folder = describe(broker, None, version)
    size = broker.partition("b").log.size
    assert size > 60
    assert partitions(folder) == {("a", 0): (0, 0), ("a", 1): (0, 0), ("b", 0): (size, 0)}
    if version >= 4:
        assert (folder.total_bytes, folder.usable_bytes) == broker.disk.usage(broker.path)


def test_only_the_partitions_asked_for_that_are_here(broker: SingleBroker) -> None:
    broker.create("a", 2)
    broker.create("b")
    wanted = [Topic(topic="a", partitions=[1, 1, 7]), Topic(topic="none", partitions=[0])]
    assert list(partitions(describe(broker, wanted))) == [("a", 1)]
    assert partitions(describe(broker, [])) == {}


def test_the_lag_of_an_offline_log_is_not_known(broker: SingleBroker) -> None:
    broker.create("a")
    broker.partition("a").log.go_offline("the disk is gone")
    assert partitions(describe(broker, None)) == {("a", 0): (0, -1)}


def test_a_folder_that_is_gone_is_a_storage_error(
    broker: SingleBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: str) -> tuple[int, int]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(broker.disk, "usage", gone)
    folder = describe(broker, None)
    assert (folder.error_code, folder.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
