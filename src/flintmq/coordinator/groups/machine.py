"""The groups of one partition of `__consumer_offsets`, as a machine of `coordination`.

A request becomes a decision: the records that make it so, the replies, the timers. Groups and offsets come to be, and
go, by records alone; while members gather, a group is ahead of its record, and if the broker dies the record is what
remains. Nothing here knows which topics exist, who may do what, or where the partition is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from flintmq.coordinator.groups import membership, offset_commits, responses
from flintmq.coordinator.groups.group import Group, GroupState, ParkedRequest
from flintmq.coordinator.groups.membership import GroupClient, JoinAttempt
from flintmq.coordinator.groups.offsets import CommittedOffset, Offsets, expired
from flintmq.coordinator.groups.rebalance import (
    GroupSettings,
    GroupStep,
    JoinTimer,
    SessionTimer,
    SyncTimer,
    expire_joins,
    expire_session,
    expire_syncs,
    prepare,
    start_session,
)
from flintmq.coordinator.groups.records import (
    NO_TOPIC_ID,
    GroupKey,
    OffsetKey,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from flintmq.coordinator.runtime.machine import CoordinatorRecord, Decision, StoredRecord, TimerKey, Token
from flintmq.errors import ErrorCode, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
)

_NO_OFFSETS: Final = Offsets()
_PART_BYTES: Final = 256 * 1024


class DeletedTopic(NamedTuple):
    name: str
    id: bytes


class GroupMachine:
    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self._groups: dict[str, Group] = {}
        self._offsets: dict[str, Offsets] = {}
        self._transactions: dict[int, dict[str, None]] = {}
        """By producer id, the groups with pending offsets of its transaction."""

    # ---- what the records say

    def apply(self, stored: StoredRecord) -> None:
        key = read_key(stored.key)
        if isinstance(key, OffsetKey):
            self._apply_offset(key, stored)
        elif isinstance(key, GroupKey):
            self._apply_group(key.group, stored.value)

    def _apply_group(self, group_id: str, value: bytes | None) -> None:
        group = self._groups.get(group_id)
        if value is None:
            self._groups.pop(group_id, None)
        elif group is None or not group.confirm(value):
            self._groups[group_id] = Group.recorded(group_id, read_group(value))

    def _apply_offset(self, key: OffsetKey, stored: StoredRecord) -> None:
        group_id, topic, partition = key
        if stored.value is None:
            offsets = self._offsets.get(group_id)
            if offsets is not None:
                offsets.remove(topic, partition)
                self._tidy(group_id, offsets)
            return
        committed = CommittedOffset(read_offset(stored.value), stored.offset)
        if group_id not in self._groups:
            self._groups[group_id] = Group(group_id, GroupState.EMPTY, stored.timestamp)
        offsets = self._offsets.setdefault(group_id, Offsets())
        if stored.producer_id == -1:
            offsets.put(topic, partition, committed)
        else:
            offsets.put_pending(stored.producer_id, (topic, partition), committed)
            self._transactions.setdefault(stored.producer_id, {})[group_id] = None

    def end_transaction(self, producer_id: int, offset: int, *, committed: bool) -> None:
        for group_id in self._transactions.pop(producer_id, ()):
            offsets = self._offsets.get(group_id)
            if offsets is not None:
                offsets.end_transaction(producer_id, committed=committed)
                self._tidy(group_id, offsets)

    def _tidy(self, group_id: str, offsets: Offsets) -> None:
        if offsets.is_empty:
            del self._offsets[group_id]

    def loaded(self, now_ms: int) -> Decision:
        """Members get a whole session to make themselves heard."""
        step = GroupStep(self.settings, now_ms)
        for group in self._groups.values():
            for member in group.members.values():
                start_session(step, group, member)
            if len(group.members) > self.settings.group_max_size:
                prepare(step, group)
        return step.decision

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        step = GroupStep(self.settings, now_ms)
        if not isinstance(key, SessionTimer | JoinTimer | SyncTimer):
            return step.decision
        group = self._groups.get(key.group)
        if group is None:
            return step.decision
        if isinstance(key, SessionTimer):
            expire_session(step, group, key.member)
        elif isinstance(key, JoinTimer):
            expire_joins(step, group)
        else:
            expire_syncs(step, group)
        return _with_failure(step.decision, group)

    # ---- members

    def join_group(
        self,
        token: Token,
        request: JoinGroupRequest,
        version: int,
        client: GroupClient,
        new_member_id: str,
        now_ms: int,
    ) -> Decision:
        """`new_member_id` is a uuid; a member that has no id yet gets one made of it."""
        step = GroupStep(self.settings, now_ms)
        parked = ParkedRequest(token, version)
        joining = JoinAttempt.of(request, parked, client, new_member_id)
        code = self._check_join(request, joining)
        if code:
            step.refuse_join(parked, request.member_id, code)
            return step.decision
        group = self._groups.get(request.group_id)
        if group is not None:
            membership.join(step, group, joining)
            return step.decision
        # ORDER: the record is announced after the join, with the time of the state that the group is in by then.
        group = self._groups[request.group_id] = Group(request.group_id, GroupState.EMPTY, now_ms)
        membership.join(step, group, joining)
        step.decision.records.append(group.announce_new())
        step.decision.failed = self._uncreate(step, group, parked)
        return step.decision

    def _check_join(self, request: JoinGroupRequest, joining: JoinAttempt) -> ErrorCode:
        settings = self.settings
        shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.group_id not in self._groups:
            if request.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if not request.protocol_type or not joining.protocols:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def _uncreate(
        self, step: GroupStep, group: Group, parked: ParkedRequest
    ) -> Callable[[ErrorCode], Decision]:
        def failed(code: ErrorCode) -> Decision:
            del self._groups[group.id]
            undone = GroupStep(step.settings, step.now_ms)
            undone.decision.timers.update(dict.fromkeys(step.decision.timers))
            undone.refuse_join(parked, "", responses.write_error(code))
            return undone.decision

        return failed

    def sync_group(self, token: Token, request: SyncGroupRequest, version: int, now_ms: int) -> Decision:
        step = GroupStep(self.settings, now_ms)
        try:
            if version >= membership.PROTOCOL_REQUIRED_VERSION and (
                request.protocol_type is None or request.protocol_name is None
            ):
                raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            group = self._group_of_member(request.group_id)
            membership.sync(step, group, request, ParkedRequest(token, version))
        except RequestError as error:
            step.decision.respond(token, SyncGroupResponse(error_code=error.code))
        return step.decision

    def heartbeat(self, token: Token, request: HeartbeatRequest, version: int, now_ms: int) -> Decision:
        step = GroupStep(self.settings, now_ms)
        try:
            group = self._group_of_member(request.group_id)
            code = membership.heartbeat(
                step, group, request.member_id, request.group_instance_id, request.generation_id
            )
        except RequestError as error:
            code = error.code
        return step.decision.respond(token, HeartbeatResponse(error_code=code))

    def leave_group(self, token: Token, request: LeaveGroupRequest, version: int, now_ms: int) -> Decision:
        step = GroupStep(self.settings, now_ms)
        leaving = request.members
        if version < responses.SEVERAL_LEAVE_VERSION:
            leaving = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        if not request.group_id:
            return step.decision.respond(token, responses.left(version, (), ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            outcomes = [(one.member_id, one.group_instance_id, unknown) for one in leaving]
            return step.decision.respond(token, responses.left(version, outcomes))
        outcomes = membership.leave(step, group, leaving)
        refused = _Refusal(token, lambda code: responses.left(version, (), responses.write_error(code)))
        return _with_failure(step.decision.respond(token, responses.left(version, outcomes)), group, refused)

    def _group_of_member(self, group_id: str) -> Group:
        if not group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID)
        group = self._groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # ---- offsets

    def commit_offsets(
        self, token: Token, request: OffsetCommitRequest, version: int, now_ms: int
    ) -> Decision:
        step = GroupStep(self.settings, now_ms)
        group = self._groups.get(request.group_id)
        try:
            offset_commits.check_commit(group, request, version)
        except RequestError as error:
            return step.decision.respond(token, offset_commits.commit_refused(request, error.code))
        if group is not None and request.member_id in group.members:
            start_session(step, group, group.members[request.member_id])
        records, response = offset_commits.commit(request, now_ms, self.settings.offset_metadata_max_bytes)
        step.decision.records += records
        refused = _Refusal(
            token, lambda code: offset_commits.commit_refused(request, offset_commits.commit_error(code))
        )
        return _with_failure(step.decision.respond(token, response), None, refused)

    def commit_offsets_in_transaction(
        self, token: Token, request: TxnOffsetCommitRequest, version: int, now_ms: int
    ) -> Decision:
        """TxnOffsetCommit. The records are to be written as part of the producer's transaction."""
        decision = Decision()
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
            return decision.respond(token, offset_commits.transactional_commit_refused(request, code))
        try:
            offset_commits.check_transactional_commit(self._groups.get(request.group_id), request)
        except RequestError as error:
            return decision.respond(token, offset_commits.transactional_commit_refused(request, error.code))
        records, response = offset_commits.commit_in_transaction(
            request, now_ms, self.settings.offset_metadata_max_bytes
        )
        decision.records += records
        decision.producer = request.producer_id, request.producer_epoch
        refused = _Refusal(
            token,
            lambda code: offset_commits.transactional_commit_refused(
                request, offset_commits.commit_error(code)
            ),
        )
        return _with_failure(decision.respond(token, response), None, refused)

    def fetch_offsets(
        self,
        token: Token,
        request: OffsetFetchRequest.OffsetFetchRequestGroup,
        version: int,
        *,
        require_stable: bool,
    ) -> Decision:
        """One group of a request (see `commits.fetched_groups`); the reply has that group alone."""
        offsets = self._offsets.get(request.group_id, _NO_OFFSETS)
        group = offset_commits.fetch(offsets, request, require_stable=require_stable)
        return Decision().respond(token, offset_commits.fetch_response(group, version))

    def delete_offsets(self, token: Token, request: OffsetDeleteRequest, version: int) -> Decision:
        decision = Decision()
        try:
            if not request.group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID)
            group = offset_commits.check_delete(self._groups.get(request.group_id))
        except RequestError as error:
            return decision.respond(token, OffsetDeleteResponse(error_code=error.code))
        offsets = self._offsets.get(group.id, _NO_OFFSETS)
        records, response = offset_commits.delete(group, offsets, request)
        decision.records += records
        refused = _Refusal(token, lambda code: OffsetDeleteResponse(error_code=responses.write_error(code)))
        return _with_failure(decision.respond(token, response), None, refused)

    def topics_deleted(self, topics: Sequence[DeletedTopic]) -> list[Decision]:
        """Offsets of these topics go, but not those of a new topic that has the name by now."""
        ids: dict[str, list[bytes]] = {}
        for name, topic_id in topics:
            ids.setdefault(name, [NO_TOPIC_ID]).append(topic_id)
        records: list[CoordinatorRecord] = []
        for group_id, offsets in self._offsets.items():
            for topic, partition in offsets.places():
                committed = offsets.get(topic, partition)
                # Transactions do not say which topic of that name they mean.
                if topic in ids and (committed is None or committed.value.topic_id in ids[topic]):
                    records.append(offset_record(OffsetKey(group_id, topic, partition), None))
        return _in_parts(records)

    def expire_offsets(self, now_ms: int) -> list[Decision]:
        """What has had its time goes; so does an empty group that has nothing left."""
        records: list[CoordinatorRecord] = []
        for group in self._groups.values():
            offsets = self._offsets.get(group.id, _NO_OFFSETS)
            gone = expired(group, offsets, now_ms, self.settings.offsets_retention_ms)
            records += [
                offset_record(OffsetKey(group.id, topic, partition), None) for topic, partition in gone
            ]
            is_bare = len(gone) == sum(1 for _ in offsets.places())
            if is_bare and group.state is GroupState.EMPTY and not group.pending_ids:
                records.append(group_record(group.id, None))
        return _in_parts(records)

    @property
    def offsets(self) -> Mapping[str, Offsets]:
        """By group."""
        return self._offsets

    # ---- groups

    def describe_groups(self, token: Token, group_ids: Sequence[str], version: int) -> Decision:
        described = [
            responses.unknown_group(version, group_id)
            if group_id not in self._groups
            else responses.described(self._groups[group_id])
            for group_id in group_ids
        ]
        return Decision().respond(token, DescribeGroupsResponse(groups=described))

    def list_groups(self, token: Token, request: ListGroupsRequest, version: int) -> Decision:
        states = [state.strip().lower() for state in request.states_filter]
        types = [kind.lower() for kind in request.types_filter]
        listed = [
            responses.listed(group)
            for group in self._groups.values()
            if (not states or group.state.value.lower() in states)
            and (not types or responses.CLASSIC in types)
        ]
        return Decision().respond(token, ListGroupsResponse(groups=listed))

    def delete_groups(self, token: Token, group_ids: Sequence[str], version: int) -> Decision:
        decision = Decision()
        results: list[DeleteGroupsResponse.DeletableGroupResult] = []
        for group_id in group_ids:
            code = ErrorCode.NONE
            group = self._groups.get(group_id)
            if group is None:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            elif group.state is not GroupState.EMPTY:
                code = ErrorCode.NON_EMPTY_GROUP
            else:
                decision.records += [
                    offset_record(OffsetKey(group_id, topic, partition), None)
                    for topic, partition in self._offsets.get(group_id, _NO_OFFSETS).places()
                ]
                decision.records.append(group_record(group_id, None))
            results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code))

        def refusal(code: ErrorCode) -> Message:
            mapped = responses.write_error(code)
            return DeleteGroupsResponse(
                results=[
                    DeleteGroupsResponse.DeletableGroupResult(
                        group_id=result.group_id, error_code=result.error_code or mapped
                    )
                    for result in results
                ]
            )

        response = DeleteGroupsResponse(results=results)
        return _with_failure(decision.respond(token, response), None, _Refusal(token, refusal))


class _Refusal(NamedTuple):
    token: Token
    response: Callable[[ErrorCode], Message]


def _with_failure(decision: Decision, group: Group | None, refused: _Refusal | None = None) -> Decision:
    """If the records cannot be written, all stays as decided but for the reply to the one who asked.

    A group that became empty without a record of it is empty all the same: if the broker dies before the next one,
    the members of the generation before are back, and their sessions run out.
    """
    if not decision.records:
        return decision

    def failed(code: ErrorCode) -> Decision:
        if group is not None:
            group.retract()
        kept = [one for one in decision.responses if refused is None or one[0] != refused.token]
        undone = Decision(responses=kept, timers=decision.timers)
        return undone if refused is None else undone.respond(refused.token, refused.response(code))

    decision.failed = failed
    return decision


def _in_parts(records: list[CoordinatorRecord]) -> list[Decision]:
    """Tombstones in decisions that each fit into a batch; if one of them fails, the others hold."""
    parts: list[Decision] = []
    room = 0
    for record in records:
        if room <= 0:
            parts.append(Decision())
            room = _PART_BYTES
        parts[-1].records.append(record)
        room -= len(record.key)
    return parts
