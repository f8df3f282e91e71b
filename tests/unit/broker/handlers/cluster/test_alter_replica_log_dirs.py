"""AlterReplicaLogDirs with one data folder (KIP-113)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from support.broker.single_broker import SingleBroker

Folder = AlterReplicaLogDirsRequest.AlterReplicaLogDir
Topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic


def move(broker: SingleBroker, *folders: Folder, version: int = 2) -> dict[str, dict[int, ErrorCode]]:
    answer = broker.ask(AlterReplicaLogDirsRequest(dirs=list(folders)), AlterReplicaLogDirsResponse, version)
    return {
        topic.topic_name: {one.partition_index: ErrorCode(one.error_code) for one in topic.partitions}
        for topic in answer.results
    }


def folder(path: str, **topics: list[int]) -> Folder:
    return Folder(path=path, topics=[Topic(name=name, partitions=at) for name, at in topics.items()])


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_may_stay_where_it_is(broker: SingleBroker, version: int) -> None:
    broker.create("t", 2)
    answers = move(broker, folder(broker.path, t=[0, 1, 2], none=[0]), version=version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == {"t": {0: ErrorCode.NONE, 1: ErrorCode.NONE, 2: unknown}, "none": {0: unknown}}


def test_another_folder_is_not_found(broker: SingleBroker) -> None:
    broker.create("t")
    assert move(broker, folder("/elsewhere", t=[0])) == {"t": {0: ErrorCode.LOG_DIR_NOT_FOUND}}


def test_the_last_folder_named_for_a_partition_counts(broker: SingleBroker) -> None:
    broker.create("t")
    assert move(broker, folder("/elsewhere", t=[0]), folder(broker.path, t=[0])) == {"t": {0: ErrorCode.NONE}}


def test_an_offline_log_is_a_storage_error(broker: SingleBroker) -> None:
    broker.create("t")
    broker.partition("t").log.go_offline("the disk is gone")
    assert move(broker, folder(broker.path, t=[0])) == {"t": {0: ErrorCode.KAFKA_STORAGE_ERROR}}
