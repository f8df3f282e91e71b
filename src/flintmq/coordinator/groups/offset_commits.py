"""The requests about offsets: which are allowed to whom, which records they make, and their replies.

Topics come with both their name and their id, resolved by the caller; offsets are kept by name, and an id that does
not match is of a topic that was deleted and made anew.
"""

from __future__ import annotations

from typing import Final

from flintmq.coordinator.groups.group import CONSUMER_PROTOCOL_TYPE, Group, GroupState
from flintmq.coordinator.groups.offsets import CommittedOffset, Offsets
from flintmq.coordinator.groups.records import NO_TOPIC_ID, OffsetKey, OffsetValue, offset_record
from flintmq.coordinator.groups.responses import write_error
from flintmq.coordinator.runtime.machine import CoordinatorRecord
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

NO_OFFSET: Final = -1
BATCHED_FETCH_VERSION: Final = 8
GROUP_ID_NOT_FOUND_VERSION: Final = 9

_FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def commit_error(code: ErrorCode) -> ErrorCode:
    """Why the records could not be written, as one who commits understands it."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if code in _TOO_LARGE else write_error(code)


# ---- who may


def check_commit(group: Group | None, request: OffsetCommitRequest, version: int) -> None:
    """Raises RequestError. A commit without a generation, to a group without members, is of a simple group."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation >= 0:
            is_new = version >= GROUP_ID_NOT_FOUND_VERSION
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION)
        return
    if group.state is GroupState.EMPTY and generation < 0:
        return
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
    _check_member(group, request.member_id, request.group_instance_id, generation)
    if group.state is GroupState.COMPLETING:
        raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS)


def check_transactional_commit(group: Group | None, request: TxnOffsetCommitRequest) -> None:
    """Raises RequestError. Old versions name no member, and are taken at their word (KIP-447)."""
    generation = request.generation_id
    if group is None:
        if generation >= 0:
            raise RequestError(ErrorCode.ILLEGAL_GENERATION)
        return
    if group.state is GroupState.EMPTY and generation < 0:
        return
    if generation >= 0 or request.member_id or request.group_instance_id is not None:
        _check_member(group, request.member_id, request.group_instance_id, generation)


def check_delete(group: Group | None) -> Group:
    """Raises RequestError. Where subscriptions are known, they decide topic by topic."""
    if group is None:
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise RequestError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _check_member(group: Group, member_id: str, instance_id: str | None, generation: int) -> None:
    group.member(member_id, instance_id)
    if generation != group.generation:
        raise RequestError(ErrorCode.ILLEGAL_GENERATION)


# ---- commits


def commit(
    request: OffsetCommitRequest, now_ms: int, metadata_max_bytes: int
) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse()
    expire_timestamp = -1 if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            value = OffsetValue(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms,
                expire_timestamp,
                bytes(topic.topic_id),
            )
            key = OffsetKey(request.group_id, topic.name, partition.partition_index)
            code = _add_entry(records, key, value, metadata_max_bytes)
            partitions.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
        response.topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return records, response


def _add_entry(
    records: list[CoordinatorRecord], key: OffsetKey, value: OffsetValue, metadata_max_bytes: int
) -> ErrorCode:
    """The record of one offset, unless the text that comes with it is too long."""
    if len(value.metadata) > metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    records.append(offset_record(key, value))
    return ErrorCode.NONE


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def commit_in_transaction(
    request: TxnOffsetCommitRequest, now_ms: int, metadata_max_bytes: int
) -> tuple[list[CoordinatorRecord], TxnOffsetCommitResponse]:
    records: list[CoordinatorRecord] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            value = OffsetValue(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms,
            )
            key = OffsetKey(request.group_id, topic.name, partition.partition_index)
            code = _add_entry(records, key, value, metadata_max_bytes)
            partitions.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
        response.topics.append(
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)
        )
    return records, response


def transactional_commit_refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# ---- fetches


def fetch(
    offsets: Offsets,
    request: OffsetFetchRequest.OffsetFetchRequestGroup,
    *,
    require_stable: bool,
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """Of the topics asked for, or of all that have a committed offset."""
    topics = request.topics
    if topics is None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=list(partitions))
            for name, partitions in offsets.committed.items()
        ]
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=request.group_id,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _fetched(offsets, topic.name, topic.topic_id, partition, require_stable)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in topics
        ],
    )


def _fetched(
    offsets: Offsets, topic: str, topic_id: bytes, partition: int, require_stable: bool
) -> _FetchedPartition:
    if require_stable and offsets.is_unstable(topic, partition):
        return _FetchedPartition(
            partition_index=partition,
            committed_offset=NO_OFFSET,
            metadata="",
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    committed = offsets.get(topic, partition)
    if committed is None or _is_of_another_topic(committed, topic_id):
        return _FetchedPartition(partition_index=partition, committed_offset=NO_OFFSET, metadata="")
    return _FetchedPartition(
        partition_index=partition,
        committed_offset=committed.value.offset,
        committed_leader_epoch=committed.value.leader_epoch,
        metadata=committed.value.metadata,
    )


def _is_of_another_topic(committed: CommittedOffset, topic_id: bytes) -> bool:
    known_id = committed.value.topic_id
    return known_id != NO_TOPIC_ID and topic_id != NO_TOPIC_ID and known_id != topic_id


def fetch_response(group: OffsetFetchResponse.OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """The whole reply of versions that ask for one group; of those that ask for several, a reply with this one."""
    if version >= BATCHED_FETCH_VERSION:
        return OffsetFetchResponse(groups=[group])
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def fetched_groups(
    request: OffsetFetchRequest, version: int
) -> list[OffsetFetchRequest.OffsetFetchRequestGroup]:
    """The groups that a request of any version asks for."""
    if version >= BATCHED_FETCH_VERSION:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in request.topics
        ]
    return [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


# ---- deletions


def delete(
    group: Group, offsets: Offsets, request: OffsetDeleteRequest
) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
    records: list[CoordinatorRecord] = []
    response = OffsetDeleteResponse()
    for topic in request.topics:
        is_subscribed = group.is_subscribed(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        for partition in topic.partitions:
            if not is_subscribed and offsets.is_known(topic.name, partition.partition_index):
                key = OffsetKey(group.id, topic.name, partition.partition_index)
                records.append(offset_record(key, None))
        response.topics.append(
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
        )
    return records, response
