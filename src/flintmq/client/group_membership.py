"""Being a member of a consumer group: joining, staying, committing, leaving (the classic protocol, eager).

    membership = Membership(client, "g", ["orders"])
    assignment = membership.join()        waits until the group has shared out its partitions
    membership.heartbeat()                False: the group shares anew, so commit and join again
    membership.leave()

Invariant: a member id and generation are of the last join that succeeded, or none. Heartbeats are sent when the
caller asks for it, on the caller's thread: whoever does other things for longer than the session time-out is taken
for dead, and learns of it with the next request. This module must not know what is read, or how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from flintmq.client.admin.groups import COMMIT_VERSION_MAX, check_commit, commit_request
from flintmq.client.assignors import (
    ASSIGNORS,
    PROTOCOL_TYPE,
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from flintmq.client.cluster import ClusterClient
from flintmq.client.coordinators import CoordinatorType, find_coordinator
from flintmq.client.errors import check
from flintmq.errors import ErrorCode, FlintError, ProtocolError, RequestError
from flintmq.protocol.codegen.structures import Message
from flintmq.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from flintmq.records.topic_partition import TopicPartition

SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 60_000
HEARTBEAT_INTERVAL_S: Final = 3.0
_JOIN_TIMEOUT_S: Final = 310.0
"""The group waits for its slowest member, which with other clients' defaults may take five minutes."""
_LEAVE_TIMEOUT_S: Final = 5.0
_ROUNDS_MAX: Final = 100
_LAST_LEAVE_OF_ONE: Final = 2
_NO_GENERATION: Final = -1

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_FORGOTTEN: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)
"""The group goes on without this member."""

M = TypeVar("M", bound=Message)


class GroupMembership:
    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        topics: Sequence[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = _NO_GENERATION
        self.is_leader = False
        self.partition_counts: dict[str, int] = {}
        """What the leader shared out the last time, to notice when topics grow."""
        self._client = client
        self._topics = list(topics)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._node: int | None = None
        self._heard_s = 0.0

    # ---- joining

    def join(self) -> Assignment:
        """Become a member, or go on as one, and wait for what it is to read."""
        for _ in range(_ROUNDS_MAX):
            joined = self._join_once()
            if joined is None:
                continue
            assignment = self._sync(joined)
            if assignment is not None:
                self._heard_s = self._client.clock.monotonic()
                return assignment
        raise RequestError(
            ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id} does not come to rest; try again later"
        )

    def _join_once(self) -> JoinGroupResponse | None:
        subscription = encode_subscription(self._topics)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=subscription)
                for name in ASSIGNORS
            ],
        )
        self.generation = _NO_GENERATION
        response = self._call(
            request, JoinGroupResponse, lambda response: response.error_code, timeout_s=_JOIN_TIMEOUT_S
        )
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:  # KIP-394
            self.member_id = response.member_id
            return None
        if code in _FORGOTTEN:
            self.forget()
            return None
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise RequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id}: its members share partitions in another way than "
                f"{' or '.join(ASSIGNORS)}, or are no consumers",
            )
        check(code, what=f"group {self.group_id}")
        self.member_id, self.generation = response.member_id, response.generation_id
        self.is_leader = response.leader == response.member_id
        return response

    def _sync(self, joined: JoinGroupResponse) -> Assignment | None:
        shares = self._share(joined) if self.is_leader else {}
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encode_assignment(share)
                )
                for member_id, share in shares.items()
            ],
        )
        response = self._call(
            request, SyncGroupResponse, lambda response: response.error_code, timeout_s=_JOIN_TIMEOUT_S
        )
        if response.error_code in _FORGOTTEN:
            self.forget()
            return None
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        check(response.error_code, what=f"group {self.group_id}")
        assignment = decode_assignment(response.assignment)
        if assignment is None:
            raise ProtocolError(f"the leader of group {self.group_id} assigns in a way that makes no sense")
        return assignment

    def _share(self, joined: JoinGroupResponse) -> dict[str, Assignment]:
        """As the leader: for all members, whatever they read, and whichever client they are."""
        assignor = ASSIGNORS.get(joined.protocol_name or "")
        if assignor is None:
            raise ProtocolError(f"group {self.group_id} chose {joined.protocol_name}, which was not offered")
        members = {one.member_id: decode_subscription(one.metadata) or [] for one in joined.members}
        topics = sorted({topic for subscribed in members.values() for topic in subscribed})
        self.partition_counts = self._count(topics)
        return assignor(members, self.partition_counts)

    def topics_changed(self) -> bool:
        """As the leader: whether there are other partitions now than were shared out. Asks the cluster."""
        return self.is_leader and self._count(list(self.partition_counts)) != self.partition_counts

    def _count(self, topics: Sequence[str]) -> dict[str, int]:
        self._client.attempt(lambda: self._client.refresh(topics))
        known = self._client.metadata.topics
        return {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}

    # ---- staying

    @property
    def is_due(self) -> bool:
        """Whether it is time for a heartbeat."""
        return self._client.clock.monotonic() - self._heard_s >= HEARTBEAT_INTERVAL_S

    def heartbeat(self) -> bool:
        """Whether all is as it was; if not, the thing to do is to commit and to join again."""
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )
        response = self._call(request, HeartbeatResponse, lambda response: response.error_code)
        self._heard_s = self._client.clock.monotonic()
        if response.error_code in _FORGOTTEN:
            self.forget()
            return False
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        check(response.error_code, what=f"group {self.group_id}")
        return True

    def commit(self, offsets: Mapping[TopicPartition, int], *, patient: bool = True) -> bool:
        """False if the group goes on without this member, or shares anew, and did not take the offsets."""
        if self.generation == _NO_GENERATION:
            return False
        request = commit_request(self.group_id, offsets, member_id=self.member_id, generation=self.generation)
        response = self._call(
            request,
            OffsetCommitResponse,
            lambda response: next(
                (one.error_code for topic in response.topics for one in topic.partitions), 0
            ),
            highest=COMMIT_VERSION_MAX,
            patient=patient,
        )
        try:
            check_commit(response, self.group_id)
        except RequestError as error:
            if error.code in _FORGOTTEN:
                self.forget()
                return False
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                return False
            raise
        return True

    def leave(self) -> None:
        """The others need not wait until the session has run out. Asked once, and not for long."""
        if not self.member_id:
            return
        request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        self.forget()
        response = self._call(
            request,
            LeaveGroupResponse,
            lambda response: response.error_code,
            timeout_s=_LEAVE_TIMEOUT_S,
            highest=_LAST_LEAVE_OF_ONE,
            patient=False,
        )
        if response.error_code not in _FORGOTTEN:
            check(response.error_code, what=f"group {self.group_id}")

    def forget(self) -> None:
        self.member_id, self.generation, self.is_leader = "", _NO_GENERATION, False

    # ---- to the coordinator

    def _call(
        self,
        request: Message,
        response_type: type[M],
        code_of: Callable[[M], int],
        *,
        timeout_s: float | None = None,
        highest: int | None = None,
        patient: bool = True,
    ) -> M:
        """Find the coordinator again where it has moved or is lost; other errors are the caller's."""

        def ask() -> M:
            try:
                if self._node is None:
                    self._node = find_coordinator(self._client, CoordinatorType.GROUP, self.group_id)
                connection = self._client.broker(self._node)
                response = connection.call(
                    request, response_type, timeout_s or self._client.request_timeout_s, highest=highest
                )
                code = code_of(response)
                if code in _MOVED:
                    check(code, what=f"group {self.group_id}")
            except FlintError:
                self._node = None
                raise
            return response

        return self._client.attempt(ask) if patient else ask()
