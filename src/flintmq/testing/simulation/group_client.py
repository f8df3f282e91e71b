"""Members of consumer groups in a simulated cluster, by the classic protocol.

    member = WorldGroupMember(client, "billing", [("orders", 0), ("orders", 1)])
    await member.join()
    positions = await member.committed()
    await member.commit({("orders", 0): 17})

The member that leads the group gives each member its share of the partitions. Invariant: after RequestError
the member must join again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from flintmq.records.topic_partition import TopicPartition
from flintmq.testing.simulation.client import WorldClient
from flintmq.testing.simulation.coordinator_client import CoordinatorClient, KeyType

_JOIN_GROUP, _SYNC_GROUP, _HEARTBEAT, _LEAVE_GROUP, _OFFSET_COMMIT, _OFFSET_FETCH = 9, 5, 4, 5, 8, 7
_PROTOCOL_TYPE: Final = "consumer"
_PROTOCOL: Final = "share"
_SESSION_MS: Final = 6_000
_REBALANCE_MS: Final = 2_000


class WorldGroupMember:
    def __init__(self, client: WorldClient, group: str, partitions: Sequence[TopicPartition]) -> None:
        """`partitions` are those that the group reads."""
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.assigned: list[TopicPartition] = []
        self._partitions = partitions
        self._coordinator = CoordinatorClient(client, group, KeyType.GROUP)

    async def join(self) -> None:
        """Take part in a rebalance, and learn which partitions are this member's."""
        while True:
            try:
                joined = await self._join()
                synced = await self._sync(joined)
            except RequestError as error:
                if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                elif error.code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                    raise
                await self._coordinator.client.pause(float("inf"))
                continue
            self.assigned = [(topic, index) for topic, index in json.loads(synced.assignment or b"[]")]
            return

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )
        response = await self._coordinator.call(
            request, JoinGroupResponse, _JOIN_GROUP, code_of=_code_of_join
        )
        self.member_id = response.member_id
        if response.error_code:
            return await self._join()
        self.generation = response.generation_id
        return response

    async def _sync(self, joined: JoinGroupResponse) -> SyncGroupResponse:
        assignments = []
        if joined.leader == self.member_id:
            members = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member, assignment=json.dumps(self._partitions[rank :: len(members)]).encode()
                )
                for rank, member in enumerate(members)
            ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        return await self._coordinator.call(request, SyncGroupResponse, _SYNC_GROUP)

    async def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        await self._coordinator.call(request, HeartbeatResponse, _HEARTBEAT)

    async def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self.group, members=[LeaveGroupRequest.MemberIdentity(member_id=self.member_id)]
        )
        await self._coordinator.call(request, LeaveGroupResponse, _LEAVE_GROUP)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        await self._coordinator.call(request, OffsetCommitResponse, _OFFSET_COMMIT, code_of=_code_of_commit)

    @property
    def may_have_committed(self) -> bool:
        """Whether a `commit` that raised may have been carried out, or may still be."""
        return self._coordinator.may_have_happened

    async def committed(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offsets of the group; -1 where it has none. Open transactions are waited for."""
        request = OffsetFetchRequest(
            group_id=self.group,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
                for topic, index in (self.assigned if partitions is None else partitions)
            ],
            require_stable=True,
        )
        response = await self._coordinator.call(
            request, OffsetFetchResponse, _OFFSET_FETCH, code_of=_code_of_fetch
        )
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in response.topics
            for partition in topic.partitions
        }


def _code_of_join(response: JoinGroupResponse) -> int:
    """MEMBER_ID_REQUIRED is no failure: the response has the id (KIP-394)."""
    return 0 if response.error_code == ErrorCode.MEMBER_ID_REQUIRED else response.error_code


def _code_of_commit(response: OffsetCommitResponse) -> int:
    return next(
        (one.error_code for topic in response.topics for one in topic.partitions if one.error_code), 0
    )


def _code_of_fetch(response: OffsetFetchResponse) -> int:
    codes = (one.error_code for topic in response.topics for one in topic.partitions if one.error_code)
    return response.error_code or next(codes, 0)
