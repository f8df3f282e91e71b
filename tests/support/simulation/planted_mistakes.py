"""Mistakes in replication, one at a time, for the tests of the simulation: each function patches the product.

with pytest.MonkeyPatch.context() as patch:
    MISTAKES["truncates_to_the_high_watermark"](patch)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from flintmq.broker.handlers import fetch
from flintmq.coordinator.runtime.shard import CoordinatorShard, ShardState
from flintmq.coordinator.transactions.remote_markers import RemoteMarker, RemoteMarkers
from flintmq.errors import ErrorCode
from flintmq.metadata.cluster_metadata import ClusterMetadata
from flintmq.metadata.store import StoreUnavailable
from flintmq.partitions.partition import Partition, Role
from flintmq.partitions.replication import fetcher
from flintmq.partitions.replication.fetch_session import FetchPosition
from flintmq.partitions.replication.fetcher import ReplicaFetcher
from flintmq.partitions.replication.leader import LeaderReplication
from flintmq.partitions.replication.replica_states import ReplicaStates
from flintmq.storage.log import Log

Patch = pytest.MonkeyPatch


def truncates_to_the_high_watermark(patch: Patch) -> None:
    """Truncate with each new epoch, and never by epoch (KAFKA-1211)."""
    fetch_once, seen = ReplicaFetcher._fetch, set()

    async def careless(self: ReplicaFetcher, asked: dict[Any, Any]) -> None:
        for key, one in list(asked.items()):
            if (id(one.partition), one.leader_epoch) not in seen:
                seen.add((id(one.partition), one.leader_epoch))
                await one.partition.truncate(one.partition.log.high_watermark)
                if not self._is_current(one):
                    del asked[key]
        if asked:
            await fetch_once(self, asked)

    patch.setattr(ReplicaFetcher, "_fetch", careless)
    patch.setattr(fetch._Fetch, "_divergence", staticmethod(lambda partition, wanted: None))


def does_not_truncate_after_a_missed_epoch(patch: Patch) -> None:
    """Compare logs only if the follower's last epoch is the one before (KAFKA-7164)."""

    def careless(**fields: Any) -> Any:
        if fields["leader_epoch"] - fields["last_fetched_epoch"] > 1:
            fields["last_fetched_epoch"] = -1
        return FetchPosition(**fields)

    patch.setattr(fetcher, "FetchPosition", careless)


def notes_followers_that_diverge(patch: Patch) -> None:
    """Take the offset of a fetch that diverges for what the follower has (KAFKA-13141)."""
    read_one = fetch._Fetch._read_one

    def careless(self: Any, wanted: Any, budget: int, *, at_least_one: bool) -> Any:
        result = read_one(self, wanted, budget, at_least_one=at_least_one)
        if self._replica_id >= 0 and result.diverging is not None and not self._is_noted:
            self._serve_follower(self._find(wanted), wanted, None)
        return result

    patch.setattr(fetch._Fetch, "_read_one", careless)


def takes_responses_of_older_epochs(patch: Patch) -> None:
    """Take what a response says whatever has happened since the request (KAFKA-18991)."""
    for check in ("_is_current", "_follows"):
        patch.setattr(ReplicaFetcher, check, lambda self, one: one.partition.role is Role.FOLLOWER)


def lets_followers_join_that_lag(patch: Patch) -> None:
    """Expand the ISR by a follower that has not reached the high watermark (KAFKA-7128)."""

    def careless(
        self: ReplicaStates,
        node: int,
        *,
        high_watermark: int,
        registered: Mapping[int, int],
        draining: Sequence[int],
    ) -> bool:
        state = self.follower(node)
        return (
            state is not None
            and self.pending_isr is None
            and node not in self.isr
            and registered.get(node) == state.broker_epoch
            and node not in draining
        )

    patch.setattr(ReplicaStates, "may_join", careless)


def counts_a_shrink_before_it_is_committed(patch: Patch) -> None:
    """Stop waiting for a follower when its removal is proposed (KAFKA-13091)."""
    propose = ReplicaStates.propose

    def careless(self: ReplicaStates, isr: Sequence[int]) -> None:
        propose(self, isr)
        self._isr = [node for node in self._isr if node in isr]

    patch.setattr(ReplicaStates, "propose", careless)


def commits_under_min_isr(patch: Patch) -> None:
    """Advance the high watermark however small the ISR is (KAFKA-19996)."""
    patch.setattr(ReplicaStates, "may_commit", property(lambda self: True))


def accepts_stale_broker_epochs(patch: Patch) -> None:
    """Let a follower join by a fetch from before its restart (KIP-903)."""
    planned = LeaderReplication._planned

    def careless(self: LeaderReplication, partition: Partition, states: ReplicaStates, isr: list[int]) -> Any:
        for node in isr:
            follower, broker = states.follower(node), self._metadata.image.brokers.get(node)
            if follower is not None and broker is not None:
                follower.broker_epoch = broker.epoch
        return planned(self, partition, states, isr)

    def may_join(self: ReplicaStates, node: int, *, high_watermark: int, **others: Any) -> bool:
        state = self.follower(node)
        return (
            state is not None
            and self.pending_isr is None
            and node not in self.isr
            and state.end_offset >= max(high_watermark, self.epoch_start)
        )

    check = LeaderReplication._check

    def eager(self: LeaderReplication) -> None:
        # What followers have shown once is enough.
        for partition in list(self._led):
            states = partition.replicas
            for node in states.replicas if states is not None else ():
                if states is not None and may_join(states, node, high_watermark=partition.log.high_watermark):
                    self._propose(partition, states, [*states.isr, node])
        check(self)

    patch.setattr(LeaderReplication, "_planned", careless)
    patch.setattr(LeaderReplication, "_check", eager)
    patch.setattr(ReplicaStates, "may_join", may_join)


def takes_uncertain_for_failed(patch: Patch) -> None:
    """Take a change whose outcome is not known for one that was not made."""

    async def careless(self: ClusterMetadata, expect: object, writes: object, error: Exception) -> None:
        raise StoreUnavailable("assumed")

    patch.setattr(ClusterMetadata, "_settle", careless)


def acknowledges_after_demotion(patch: Patch) -> None:
    """Keep what waits when the role changes: it is acknowledged by what the next leader commits (KAFKA-20634)."""

    patch.setattr(Partition, "_leave_role", lambda self: [])
    patch.setattr(Partition, "_why_never", lambda self: None)


def takes_remote_markers_for_done(patch: Patch) -> None:
    """Take a marker for a partition of another broker for written."""

    def careless(self: RemoteMarkers, node: int, marker: RemoteMarker) -> None:
        marker.done(ErrorCode.NONE)

    patch.setattr(RemoteMarkers, "write", careless)


def answers_before_it_has_loaded(patch: Patch) -> None:
    """Let a coordinator decide with what it has, before its partition is read, which takes a while."""
    load = CoordinatorShard.load

    async def slow(self: CoordinatorShard[Any]) -> None:
        await asyncio.sleep(0.3)
        await load(self)

    def careless(self: CoordinatorShard[Any]) -> None:
        if self.state is not ShardState.LOADING:
            check(self)

    check = CoordinatorShard.check
    patch.setattr(CoordinatorShard, "load", slow)
    patch.setattr(CoordinatorShard, "check", careless)


def keeps_producer_state_after_a_truncation(patch: Patch) -> None:
    """Remember batches of producers that the truncation has removed."""
    finish = Log.finish_truncation

    def careless(self: Log, truncation: Any, now_ms: int, error: BaseException | None = None) -> None:
        producers = self.producers
        finish(self, truncation, now_ms, error)
        self.producers = producers

    patch.setattr(Log, "finish_truncation", careless)


MISTAKES: dict[str, Callable[[Patch], None]] = {
    mistake.__name__: mistake
    for mistake in (
        truncates_to_the_high_watermark,
        does_not_truncate_after_a_missed_epoch,
        notes_followers_that_diverge,
        takes_responses_of_older_epochs,
        lets_followers_join_that_lag,
        counts_a_shrink_before_it_is_committed,
        commits_under_min_isr,
        accepts_stale_broker_epochs,
        takes_uncertain_for_failed,
        acknowledges_after_demotion,
        takes_remote_markers_for_done,
        answers_before_it_has_loaded,
        keeps_producer_state_after_a_truncation,
    )
}
