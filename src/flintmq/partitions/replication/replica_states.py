"""What a leader knows of the replicas of one partition, and what follows from it for the ISR and the high watermark.

    states = ReplicaStates(node_id=1, membership=..., epoch_start=17, now_ms=0)
    states.fetched(2, broker_epoch=40, offset=20, leader_end=25, now_ms=3)
    states.committed_end(leader_end=25)        the high watermark that the replicas allow

Invariants: the high watermark follows the *maximal* ISR, the committed one and the one that is proposed, so that a
record is acknowledged only if every replica that may be elected has it (KIP-497, KIP-966); it does not move while the
committed ISR is smaller than min.insync.replicas or others may be elected (the ELR); a replica counts until its
removal from the ISR is committed.
Pure: the leader's own end, the time and the registrations of brokers are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

UNKNOWN: Final = -1
"""The end of a replica that has not fetched in this epoch."""
_NEVER: Final = -(1 << 62)


class FollowerState:
    """What fetches of one follower have shown in the leader's epoch."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_then",
        "start_offset",
    )

    def __init__(self, now_ms: int, *, is_in_sync: bool) -> None:
        self.broker_epoch = UNKNOWN
        self.end_offset = UNKNOWN
        self.start_offset = UNKNOWN
        self.fetched_ms = now_ms
        self.leader_end_then = UNKNOWN
        """The leader's end at the previous fetch."""
        self.caught_up_ms = now_ms if is_in_sync else _NEVER
        """When the follower last had everything that the leader had at the fetch before. A follower that was in the
        ISR when the leader was elected gets the benefit of the doubt; for others nothing waits until they show it."""

    def fetched(
        self, broker_epoch: int, offset: int, start_offset: int, leader_end: int, now_ms: int
    ) -> None:
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_then >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.broker_epoch = broker_epoch
        self.end_offset = offset
        self.start_offset = start_offset
        self.fetched_ms = now_ms
        self.leader_end_then = leader_end


class ReplicaStates:
    """Of one partition, in one leader epoch."""

    __slots__ = (
        "_followers",
        "_has_elr",
        "_isr",
        "_min_isr",
        "_node_id",
        "_pending",
        "epoch_start",
        "replicas",
    )

    def __init__(
        self,
        *,
        node_id: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        has_elr: bool = False,
        min_isr: int,
        epoch_start: int,
        now_ms: int,
    ) -> None:
        """`epoch_start` is the end of the leader's log when it was elected; `has_elr`: see `change`."""
        self._node_id = node_id
        self._isr = list(isr)
        self._has_elr = has_elr
        self._pending: list[int] | None = None
        self._min_isr = min_isr
        self.epoch_start = epoch_start
        self.replicas = list(replicas)
        self._followers = {
            node: FollowerState(now_ms, is_in_sync=node in isr) for node in replicas if node != node_id
        }

    # ---- what the metadata says

    @property
    def isr(self) -> list[int]:
        """The ISR that is committed."""
        return self._isr

    @property
    def pending_isr(self) -> list[int] | None:
        """The ISR that was proposed, and of which it is not known yet whether it is committed."""
        return self._pending

    @property
    def is_alone(self) -> bool:
        """Whether no follower is in the ISR, nor in one that is proposed: no fetch will raise the high watermark."""
        return len(self._isr) == 1 and (self._pending is None or len(self._pending) == 1)

    def configure(self, min_isr: int) -> None:
        self._min_isr = min_isr

    def change(
        self, *, replicas: Sequence[int], isr: Sequence[int], has_elr: bool = False, now_ms: int
    ) -> None:
        """Take over what the metadata says now. A proposal is settled by `settle`, not by this.

        `has_elr`: replicas outside of the ISR may be elected (KIP-966). What is committed without them could be lost,
        so nothing is, until the next change of the ISR has emptied the ELR.
        """
        self._isr = list(isr)
        self._has_elr = has_elr
        self.replicas = list(replicas)
        for node in replicas:
            if node != self._node_id and node not in self._followers:
                self._followers[node] = FollowerState(now_ms, is_in_sync=node in isr)
        for node in [node for node in self._followers if node not in replicas]:
            del self._followers[node]

    def propose(self, isr: Sequence[int]) -> None:
        """Count `isr` as well until the outcome is known."""
        self._pending = list(isr)

    def settle(self) -> None:
        """Stop counting the proposal: it is committed, and `change` was called, or it surely never will be."""
        self._pending = None

    # ---- what followers show

    def follower(self, node: int) -> FollowerState | None:
        return self._followers.get(node)

    def fetched(
        self, node: int, *, broker_epoch: int, offset: int, start_offset: int, leader_end: int, now_ms: int
    ) -> bool:
        """Note a fetch that did not diverge; False if the node is no replica of this partition."""
        state = self._followers.get(node)
        if state is None:
            return False
        state.fetched(broker_epoch, offset, start_offset, leader_end, now_ms)
        return True

    # ---- what follows

    @property
    def has_min_isr(self) -> bool:
        """Whether enough replicas are in sync for acks=all."""
        return len(self._isr) >= self.required

    @property
    def may_commit(self) -> bool:
        """Whether the high watermark may advance."""
        return self.has_min_isr and not self._has_elr

    @property
    def required(self) -> int:
        """min.insync.replicas, but not more than there are replicas."""
        return min(self._min_isr, len(self.replicas))

    def committed_end(self, leader_end: int, joining: Collection[int] = ()) -> int:
        """Return the offset below which every replica that counts has everything; UNKNOWN if that is not known.

        `leader_end` is how much of the leader's own log counts. `joining` are followers that keep up and may enter
        the ISR: the high watermark waits for them, or it would stay ahead of them for ever.
        """
        if not self.may_commit:
            return UNKNOWN
        end = leader_end
        for node, state in self._followers.items():
            if node in self._isr or (self._pending is not None and node in self._pending):
                if state.end_offset < 0:
                    return UNKNOWN
            elif node not in joining or state.end_offset < 0:
                continue
            if state.end_offset < end:
                end = state.end_offset
        return end

    def keeps_up(self, node: int, *, leader_end: int, lag_max_ms: int, now_ms: int) -> bool:
        """Whether a follower has caught up within the time that a member of the ISR may lag."""
        state = self._followers.get(node)
        return state is not None and (
            state.end_offset == leader_end or now_ms - state.caught_up_ms <= lag_max_ms
        )

    def low_watermark(self, leader_start: int, alive: Collection[int]) -> int:
        """Return the offset below which every replica that is alive has deleted its records (KIP-107)."""
        start = leader_start
        for node, state in self._followers.items():
            if node in alive:
                start = min(start, state.start_offset)
        return start

    def may_join(
        self, node: int, *, high_watermark: int, registered: Mapping[int, int], draining: Collection[int]
    ) -> bool:
        """Whether a follower that has just fetched may enter the ISR.

        It has all that is committed and has read into the leader's own epoch, so that its log cannot diverge below
        its end. `registered` are the epochs of the brokers that are registered: a fetch that a broker sent before
        it restarted proves nothing of its log now (KIP-903).
        """
        state = self._followers.get(node)
        if state is None or self._pending is not None or node in self._isr:
            return False
        return (
            state.end_offset >= max(high_watermark, self.epoch_start)
            and registered.get(node) == state.broker_epoch
            and node not in draining
        )

    def lagging(self, *, leader_end: int, lag_max_ms: int, now_ms: int) -> list[int]:
        """Return the members of the ISR that have not caught up for too long.

        A follower that has everything is in sync however long ago it fetched: nothing was written since.
        """
        if self._pending is not None:
            return []
        found = []
        for node in self._isr:
            state = self._followers.get(node)
            if (
                state is not None
                and state.end_offset != leader_end
                and now_ms - state.caught_up_ms > lag_max_ms
            ):
                found.append(node)
        return found
