"""A machine of groups with the smallest runtime there can be: records are kept in a list, time passes when told to.

Every reply is encoded in the version of its request, so that one which that version has no words for is found out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

from flintmq.coordinator.groups import GroupClient, GroupMachine, GroupSettings
from flintmq.coordinator.groups.group import Group
from flintmq.coordinator.groups.offset_commits import fetched_groups
from flintmq.coordinator.runtime.machine import Decision, StoredRecord, TimerKey, Token
from flintmq.errors import ErrorCode
from flintmq.protocol.codec import encode
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    ConsumerProtocolSubscription,
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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

R = TypeVar("R", bound=Message)

START_MS = 1_700_000_000_000
CLIENT = GroupClient("c", "/127.0.0.1")


class Marker(tuple[int, bool]):
    """A producer id, and whether its transaction is committed."""


def subscription(*topics: str, version: int = 1) -> bytes:
    return version.to_bytes(2, "big") + encode(ConsumerProtocolSubscription(topics=list(topics)), version)


class World:
    def __init__(
        self, settings: GroupSettings | None = None, log: Sequence[StoredRecord | Marker] = ()
    ) -> None:
        self.settings = settings or GroupSettings()
        self.now_ms = START_MS
        self.log: list[StoredRecord | Marker] = []
        self.timers: dict[TimerKey, int] = {}
        self.responses: dict[Token, Message] = {}
        self.versions: dict[Token, int] = {}
        self.refuse_writes: ErrorCode | None = None
        self.refused_count = 0
        self.end_offset = 0
        self._uuids = itertools.count(1)
        self.start(log)

    def start(self, log: Sequence[StoredRecord | Marker]) -> None:
        """As after a crash: what is not in the log is gone."""
        self.machine = GroupMachine(self.settings)
        self.log = list(log)
        self.timers.clear()
        for stored in log:
            if isinstance(stored, StoredRecord):
                self.machine.apply(stored)
                self.end_offset = max(self.end_offset, stored.offset + 1)
            else:
                producer_id, committed = stored
                self.machine.end_transaction(producer_id, -1, committed=committed)
        self.perform(self.machine.loaded(self.now_ms))

    def group(self, group_id: str = "g") -> Group:
        return self.machine._groups[group_id]

    @property
    def groups(self) -> Mapping[str, Group]:
        return self.machine._groups

    # ---- the runtime

    def token(self, version: int) -> Token:
        token = len(self.versions) + 1
        self.versions[token] = version
        return token

    def perform(self, decision: Decision, producer_id: int = -1) -> None:
        if decision.records and self.refuse_writes is not None:
            self.refused_count += 1
            if decision.failed is None:
                assert not decision.responses
                decision = Decision(timers=decision.timers)
            else:
                decision = decision.failed(self.refuse_writes)
            assert not decision.records
        for key, value in decision.records:
            stored = StoredRecord(key, value, self.end_offset, self.now_ms, producer_id)
            self.end_offset += 1
            self.log.append(stored)
            self.machine.apply(stored)
        for timer, delay_ms in decision.timers.items():
            self.timers.pop(timer, None)
            if delay_ms is not None:
                self.timers[timer] = self.now_ms + delay_ms
        for token, message in decision.responses:
            assert token not in self.responses, f"{token} was answered twice"
            encode(message, self.versions[token])
            self.responses[token] = message

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.timers:
            timer = min(self.timers, key=self.timers.__getitem__)
            if self.timers[timer] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.perform(self.machine.expire(timer, self.now_ms))
        self.now_ms = end_ms

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.machine.end_transaction(producer_id, self.end_offset, committed=committed)
        self.end_offset += 1
        self.log.append(Marker((producer_id, committed)))

    def reply(self, token: Token, kind: type[R]) -> R:
        message = self.responses[token]
        assert isinstance(message, kind)
        return message

    def waits(self, token: Token) -> bool:
        return token not in self.responses

    # ---- members

    def ask_join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] | Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: GroupClient = CLIENT,
    ) -> Token:
        if protocols is None:
            protocols = {"range": subscription("t")}
        pairs = protocols.items() if isinstance(protocols, Mapping) else protocols
        token = self.token(version)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in pairs
            ],
        )
        uuid = f"uuid{next(self._uuids)}"
        self.perform(self.machine.join_group(token, request, version, client, uuid, self.now_ms))
        return token

    def new_id(self, group: str = "g", client: GroupClient = CLIENT) -> str:
        """A member id, as a client gets it that does not have one (KIP-394)."""
        reply = self.reply(self.ask_join(group=group, client=client), JoinGroupResponse)
        assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return reply.member_id

    def joined(self, token: Token) -> JoinGroupResponse:
        reply = self.reply(token, JoinGroupResponse)
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code).name
        return reply

    def join_code(self, token: Token) -> ErrorCode:
        return ErrorCode(self.reply(token, JoinGroupResponse).error_code)

    def ask_sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol: str | None = "range",
        version: int = 5,
    ) -> Token:
        token = self.token(version)
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=assignment)
                for one, assignment in (assignments or {}).items()
            ],
        )
        self.perform(self.machine.sync_group(token, request, version, self.now_ms))
        return token

    def assignment(self, token: Token) -> bytes:
        reply = self.reply(token, SyncGroupResponse)
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code).name
        return reply.assignment

    def sync_code(self, token: Token) -> ErrorCode:
        return ErrorCode(self.reply(token, SyncGroupResponse).error_code)

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        token = self.token(4)
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        self.perform(self.machine.heartbeat(token, request, 4, self.now_ms))
        return ErrorCode(self.reply(token, HeartbeatResponse).error_code)

    def leave(
        self, *members: tuple[str, str | None], group: str = "g", version: int = 5
    ) -> LeaveGroupResponse:
        token = self.token(version)
        request = LeaveGroupRequest(group_id=group)
        if version < 3:
            request.member_id = members[0][0]
        else:
            request.members = [
                LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
                for member_id, instance in members
            ]
        self.perform(self.machine.leave_group(token, request, version, self.now_ms))
        return self.reply(token, LeaveGroupResponse)

    def stable(
        self, count: int, *, group: str = "g", session_ms: int = 10_000, rebalance_ms: int = 60_000
    ) -> list[str]:
        """The members of a fresh group that has gone through its first rebalance; the leader is the first."""
        ids = [self.new_id(group) for _ in range(count)]
        tokens = [
            self.ask_join(member_id, group=group, session_ms=session_ms, rebalance_ms=rebalance_ms)
            for member_id in ids
        ]
        self.advance(self.settings.group_initial_rebalance_delay_ms * 2)
        generation = {self.joined(token).generation_id for token in tokens}.pop()
        leader = self.joined(tokens[0]).leader
        assert leader == ids[0]
        syncs = [self.ask_sync(member_id, generation, group=group) for member_id in ids[1:]]
        assignments = {member_id: member_id.encode() for member_id in ids}
        syncs.append(self.ask_sync(leader, generation, assignments, group=group))
        assert all(self.sync_code(token) == ErrorCode.NONE for token in syncs)
        return ids

    # ---- offsets

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = None,
        retention_ms: int = -1,
        topic_id: bytes = bytes(16),
        version: int = 9,
    ) -> list[ErrorCode]:
        token = self.token(version)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        self.perform(self.machine.commit_offsets(token, request, version, self.now_ms))
        reply = self.reply(token, OffsetCommitResponse)
        return [ErrorCode(one.error_code) for topic in reply.topics for one in topic.partitions]

    def commit_in_transaction(
        self,
        producer_id: int,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = None,
    ) -> list[ErrorCode]:
        token = self.token(5)
        request = TxnOffsetCommitRequest(
            transactional_id=f"tx{producer_id}",
            group_id=group,
            producer_id=producer_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        decision = self.machine.commit_offsets_in_transaction(token, request, 5, self.now_ms)
        self.perform(decision, producer_id)
        reply = self.reply(token, TxnOffsetCommitResponse)
        return [ErrorCode(one.error_code) for topic in reply.topics for one in topic.partitions]

    def fetch(
        self,
        *places: tuple[str, int],
        group: str = "g",
        require_stable: bool = False,
        version: int = 9,
        topic_id: bytes = bytes(16),
    ) -> dict[tuple[str, int], int | ErrorCode]:
        """Offsets, or what is wrong with them; all of the group's if no place is given."""
        token = self.token(version)
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic, topic_id=topic_id, partition_indexes=[partition]
            )
            for topic, partition in places
        ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics or None)]
        )
        (one,) = fetched_groups(request, 9)
        self.perform(self.machine.fetch_offsets(token, one, version, require_stable=require_stable))
        (answer,) = self.reply(token, OffsetFetchResponse).groups
        return {
            (topic.name, found.partition_index): ErrorCode(found.error_code)
            if found.error_code
            else found.committed_offset
            for topic in answer.topics
            for found in topic.partitions
        }
