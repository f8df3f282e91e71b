"""A replica leads, follows, or neither; each change is one step (KIP-101, KIP-497, KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from flintmq.errors import ErrorCode, FlintError, error_code_of
from flintmq.partitions.partition import NO_LEADER, ROLE_CHANGED, Partition, Role
from flintmq.records.markers import Marker
from flintmq.records.record import build_batch
from flintmq.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedExecutor, SimulatedLoop
from support.broker.single_broker import SEED, SingleBroker

NODE = 1


class Waiter:
    def __init__(self) -> None:
        self.failures: list[FlintError | None] = []

    def __call__(self, failure: FlintError | None) -> None:
        self.failures.append(failure)

    @property
    def codes(self) -> list[ErrorCode]:
        return [ErrorCode.NONE if one is None else error_code_of(one) for one in self.failures]


class Reader:
    def __init__(self, partition: Partition, *, is_follower: bool = False) -> None:
        self.sizes: list[int] = []
        partition.park(self, is_follower=is_follower)

    def records_arrived(self, partition: Partition, size: int) -> None:
        self.sizes.append(size)


class Replica:
    def __init__(self, loop: SimulatedLoop, log_of: SingleBroker) -> None:
        self.loop = loop
        log = log_of.partition("t").log
        self.partition = Partition(log, clock=loop.clock, timers=loop, executor=SimulatedExecutor(loop, SEED))

    def lead(self, epoch: int = 3, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.partition.lead(node_id=NODE, leader_epoch=epoch, replicas=(1, 2, 3), isr=isr)

    def append(self) -> int:
        now_ms = self.loop.clock.now_ms()
        batch = memoryview(bytearray(build_batch([(None, b"value", now_ms, ())])))
        return self.partition.append(batch, self.partition.check(batch, now_ms), now_ms).last_offset

    def fetched(self, node: int, offset: int) -> None:
        assert self.partition.replicas is not None
        assert self.partition.replicas.fetched(
            node,
            broker_epoch=9,
            offset=offset,
            start_offset=0,
            leader_end=self.partition.log.end_offset,
            now_ms=0,
        )
        self.partition.advance_with_replicas()


@pytest.fixture
def replica() -> Iterator[Replica]:
    with closing(SimulatedLoop(SimulatedClock())) as loop:
        broker = SingleBroker(loop, {"auto.create.topics.enable": "false"}, SimulatedDisk(SEED))
        broker.create("t", min_insync_replicas="2")
        yield Replica(loop, broker)
        broker.close()


def test_a_leader_with_followers_waits_for_all_of_its_isr(replica: Replica) -> None:
    replica.lead()
    waiter = Waiter()
    offset = replica.append()
    assert not replica.partition.is_visible(offset)
    assert replica.partition.is_written(offset)
    replica.partition.when_visible(offset, waiter)
    replica.fetched(2, offset + 1)
    assert waiter.codes == []
    replica.fetched(3, offset + 1)
    assert waiter.codes == [ErrorCode.NONE]


def test_new_settings_do_not_make_anything_visible(replica: Replica) -> None:
    replica.lead()
    offset = replica.append()
    replica.partition.configure(replica.partition.log.config)
    assert not replica.partition.is_visible(offset)


def test_a_leader_that_is_alone_in_its_isr_waits_for_a_second_one(replica: Replica) -> None:
    """min.insync.replicas is 2."""
    replica.lead(isr=(1,))
    offset = replica.append()
    assert not replica.partition.is_visible(offset)
    assert not replica.partition.has_min_isr


def test_demotion_fails_what_waits_before_anything_else(replica: Replica) -> None:
    replica.lead()
    waiter = Waiter()
    reader, follower = Reader(replica.partition), Reader(replica.partition, is_follower=True)
    replica.partition.when_visible(replica.append(), waiter)
    replica.partition.follow(leader=2, leader_epoch=4, isr=[2, 3])
    assert waiter.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (reader.sizes, follower.sizes) == ([ROLE_CHANGED], [ROLE_CHANGED])
    assert replica.partition.role is Role.FOLLOWER


def test_a_new_epoch_of_the_same_leader_fails_what_waits(replica: Replica) -> None:
    """What was fetched in the epoch before proves nothing in this one."""
    replica.lead(epoch=3)
    offset = replica.append()
    waiter = Waiter()
    replica.partition.when_visible(offset, waiter)
    replica.fetched(2, offset + 1)
    replica.lead(epoch=4)
    replica.fetched(3, offset + 1)
    assert waiter.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not replica.partition.is_visible(offset)


def test_an_isr_change_in_the_same_epoch_keeps_what_is_known(replica: Replica) -> None:
    replica.lead()
    offset = replica.append()
    waiter = Waiter()
    replica.partition.when_visible(offset, waiter)
    replica.fetched(2, offset + 1)
    replica.lead(isr=(1, 2))
    assert waiter.codes == [ErrorCode.NONE]


def test_followers_are_woken_by_records_that_are_not_visible(replica: Replica) -> None:
    replica.lead()
    reader, follower = Reader(replica.partition), Reader(replica.partition, is_follower=True)
    replica.append()
    replica.append()
    replica.loop.run_until_idle()
    assert reader.sizes == []
    assert len(follower.sizes) == 1


def test_a_follower_takes_the_watermark_of_its_leader_as_far_as_it_has_records(replica: Replica) -> None:
    replica.lead()
    replica.append()
    replica.append()
    replica.partition.follow(leader=2, leader_epoch=4, isr=[2, 1])
    replica.partition.followed(1, 0)
    assert replica.partition.log.high_watermark == 1
    replica.partition.followed(9, 0)
    assert replica.partition.log.high_watermark == 2


def test_a_new_leader_does_not_know_the_watermark_until_it_reaches_its_epoch(replica: Replica) -> None:
    """KIP-207."""
    replica.lead()
    replica.append()
    replica.lead(epoch=4)
    assert not replica.partition.knows_high_watermark
    for node in (2, 3):
        replica.fetched(node, 1)
    assert replica.partition.knows_high_watermark


def test_a_marker_ends_the_verification_of_its_producer(replica: Replica) -> None:
    """KIP-890."""
    replica.lead()
    replica.partition.begin_verification(7, 0)
    assert replica.partition.is_verifying(7)
    replica.partition.append_marker(Marker(8, 0, 0, True), 0, bumps_epoch=False)
    assert replica.partition.is_verifying(7)
    replica.partition.append_marker(Marker(7, 0, 0, True), 0, bumps_epoch=False)
    assert not replica.partition.is_verifying(7)
    replica.partition.begin_verification(7, 0)
    replica.lead(epoch=4)
    assert not replica.partition.is_verifying(7)


def test_the_marker_of_the_transaction_before_does_not_end_a_verification(replica: Replica) -> None:
    """Where markers bump the epoch (KIP-890), that of the transaction before has the next transaction's epoch."""
    replica.lead()
    replica.partition.begin_verification(7, 5)
    replica.partition.append_marker(Marker(7, 5, 0, True), 0, bumps_epoch=True)
    assert replica.partition.is_verifying(7)
    replica.partition.append_marker(Marker(7, 6, 0, True), 0, bumps_epoch=True)
    assert not replica.partition.is_verifying(7)


def test_a_replica_without_a_leader_serves_and_fetches_nothing(replica: Replica) -> None:
    replica.partition.follow(leader=NO_LEADER, leader_epoch=4, isr=[2])
    assert replica.partition.leader == NO_LEADER


def test_a_follower_of_a_synced_topic_may_fetch_again_after_its_flush(replica: Replica) -> None:
    """Nothing else would wake its fetcher: with flush.messages=1 a fetch says that all before it is synced."""
    partition, calls = replica.partition, []
    partition.configure(replace(partition.log.config, flush_messages=1))
    partition.follow(leader=2, leader_epoch=4, isr=[2, 1])
    partition.may_fetch_again = lambda: calls.append(partition.may_fetch)
    batch = bytearray(build_batch([(None, b"value", 0, ())]))
    partition.append_fetched(memoryview(batch), 0)
    assert not partition.may_fetch
    replica.loop.run_until_idle()
    assert calls == [True]


def test_records_that_were_not_synced_are_synced_where_the_topic_asks_for_it_now(replica: Replica) -> None:
    """As after a restart: no append need come, and a follower would never fetch again."""
    replica.lead()
    replica.append()
    partition = replica.partition
    partition.follow(leader=2, leader_epoch=4, isr=[2, 1])
    replica.loop.run_until_idle()
    assert partition.log.recovery_point < partition.log.end_offset
    partition.configure(replace(partition.log.config, flush_messages=1))
    replica.loop.run_until_idle()
    assert partition.may_fetch
