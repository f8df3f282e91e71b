"""The ISR and the high watermark: what is acknowledged is held by every replica that may be elected."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.metadata import keys
from flintmq.metadata.store import Put
from flintmq.testing.simulation.store import TxnFault
from flintmq.testing.simulation.wires import STORE, broker_name
from support.simulation.replicated_topic import NODES, TOPIC, ReplicatedTopic, between, to_store


def _check_equal(cluster: ReplicatedTopic, *acknowledged: str) -> None:
    cluster.wait_until_in_sync()
    logs = [cluster.written(node) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
    assert [value for value in logs[0] if value in acknowledged] == list(acknowledged)


def test_the_isr_expands_though_the_watermark_lags() -> None:
    """KAFKA-7128: a follower joins only with everything up to the start of the leader's epoch."""
    with ReplicatedTopic() as cluster:
        cluster.send("a", "b", "c")
        cluster.brokers[3].kill()
        cluster.wait(lambda: 3 not in cluster.isr)
        cluster.send("d")
        # Broker 2 leads next; its high watermark begins where broker 1 last reported it.
        cluster.restart_after(1, 30.0)
        cluster.wait(lambda: cluster.leader == 2)
        cluster.brokers[3].start()
        cluster.wait(lambda: 3 in cluster.isr)
        assert cluster.written(3) == ["a", "b", "c", "d"]
        cluster.send("e")
        _check_equal(cluster, "a", "b", "c", "d", "e")


def test_a_follower_that_catches_up_joins_only_when_it_has_everything() -> None:
    """KAFKA-7128: it fetches one batch at a time, and is in the ISR only after the last."""
    with ReplicatedTopic(settings={"replica.fetch.max.bytes": "100"}) as cluster:
        cluster.brokers[3].kill()
        cluster.wait(lambda: cluster.isr == [1, 2])
        for index in range(10):
            cluster.send(f"{index}")
        cluster.block(between(1, 3))
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].is_up)
        cluster.run(1.0)
        cluster.unblock(between(1, 3))
        cluster.run_checked(3.0)
        _check_equal(cluster, *[f"{index}" for index in range(10)])


def test_a_change_of_the_isr_that_was_applied_counts_though_nobody_says_so() -> None:
    """The store has expanded the ISR, and its response is lost: the leader waits for the follower all the same."""
    with ReplicatedTopic() as cluster:
        cluster.brokers[3].kill()
        cluster.wait(lambda: cluster.isr == [1, 2])
        cluster.run(0.5)
        silent = ((STORE, broker_name(1)),)
        cluster.brokers[3].start()
        cluster.wait(lambda: cluster.brokers[3].is_up)
        # What broker 1 must know of the registration has just arrived, and nothing more does.
        core = cluster.brokers[1].core
        assert core is not None
        cluster.wait(lambda: 3 in core.metadata.image.brokers)
        cluster.block(silent)
        cluster.wait(lambda: cluster.isr == list(NODES))
        cluster.block(between(1, 3))
        parked = cluster.spawn(cluster.produce_to(1, "a", timeout_ms=60_000))
        cluster.run_checked(12.0)
        assert not parked.done()
        cluster.unblock(silent)
        cluster.unblock(between(1, 3))
        assert cluster.world.run_until(parked) is ErrorCode.NONE
        _check_equal(cluster, "a")


def test_a_fetch_of_an_old_broker_epoch_does_not_let_a_follower_in() -> None:
    """KIP-903: broker 3 has lost its log since the fetch that the leader remembers."""
    with ReplicatedTopic(configs={"flush.messages": "1000000"}) as cluster:
        cluster.send("a", "b")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 3))
        cluster.brokers[3].start_after_end(0.2)
        cluster.brokers[3].lose_power()
        cluster.wait(lambda: cluster.isr == [1, 2])
        cluster.wait(lambda: cluster.brokers[3].is_up)
        cluster.run_checked(5.0)
        assert cluster.isr == [1, 2]
        cluster.unblock(between(1, 3))
        _check_equal(cluster, "a", "b")


def test_nothing_is_committed_under_min_isr() -> None:
    """KAFKA-19996, KIP-966: neither acknowledged nor seen until min.insync.replicas are in sync again."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        parked = cluster.spawn(cluster.produce_to(1, "b", timeout_ms=20_000))
        cluster.wait(lambda: cluster.isr == [1])
        cluster.run(3.0)
        assert not parked.done()
        assert cluster.partition(1).log.high_watermark == 1
        assert cluster.result(cluster.produce_to(1, "c", name="later")) is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.brokers[3].start()
        cluster.wait(parked.done)
        assert parked.result() is ErrorCode.NONE
        assert cluster.written(3) == ["a", "b"]
        cluster.brokers[2].start()
        _check_equal(cluster, "a", "b")


def test_a_shrink_counts_only_once_it_is_committed() -> None:
    """KAFKA-13091: while the store is away, the leader waits for the follower that it wants to remove."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.block(to_store(*NODES))
        cluster.block(between(1, 3))
        parked = cluster.spawn(cluster.produce_to(1, "b", timeout_ms=60_000))
        cluster.wait(lambda: cluster.partition(2).log.end_offset == 2)
        cluster.run(4.0)
        assert not parked.done()
        assert cluster.partition(1).log.high_watermark == 1
        cluster.unblock(to_store(*NODES))
        cluster.wait(lambda: cluster.isr == [1, 2])
        cluster.wait(parked.done, within_s=5)
        cluster.unblock(between(1, 3))
        _check_equal(cluster, "a")


@pytest.mark.parametrize("outcome", list(TxnFault))
def test_an_isr_change_whose_outcome_is_uncertain(outcome: TxnFault) -> None:
    """Applied, not applied, or applied late: the leader finds out, and acknowledges only what both ISRs allow."""
    with ReplicatedTopic() as cluster:
        assert cluster.world.store is not None
        cluster.send("a")
        for _ in range(3):
            cluster.world.store.fail_next(broker_name(1), outcome)
        cluster.block(between(1, 3))
        parked = cluster.spawn(cluster.produce_to(1, "b", timeout_ms=60_000))
        cluster.wait(parked.done)
        assert parked.result() is ErrorCode.NONE
        assert cluster.isr == [1, 2]
        for _ in range(3):
            cluster.world.store.fail_next(broker_name(1), outcome)
        cluster.unblock(between(1, 3))
        cluster.wait(lambda: cluster.isr == list(NODES))
        cluster.send("c")
        states = cluster.partition(1).replicas
        assert states is not None
        cluster.wait(lambda: states.pending_isr is None)
        _check_equal(cluster, "a", "b", "c")


def test_an_isr_change_of_a_zombie_is_rejected() -> None:
    """A leader that was replaced without noticing cannot change the ISR when it reaches the store again."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[1].pause()
        cluster.wait(lambda: cluster.leader == 2)
        cluster.wait(lambda: cluster.isr == [2, 3])
        epoch = cluster.state.epoch
        # It still believes that it leads, and that its followers have not fetched for long.
        cluster.brokers[1].resume()
        cluster.run(0.01)
        _check_equal(cluster, "a")
        assert (cluster.leader, cluster.state.epoch) == (2, epoch)


def test_a_fetch_that_was_sent_before_a_restart_does_not_let_a_follower_in() -> None:
    """KIP-903: a follower that lost power may have lost what its last fetch showed."""
    with ReplicatedTopic(configs={"flush.messages": "1000000"}) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        cluster.send("b", "c")
        cluster.brokers[3].start_after_end(0.2)
        cluster.brokers[3].lose_power()
        cluster.wait(lambda: cluster.brokers[3].core is not None)
        cluster.wait(lambda: cluster.brokers[3].is_up)
        cluster.wait(lambda: cluster.isr == list(NODES))
        assert cluster.written(3) == ["a", "b", "c"]
        recorded = dict(zip(cluster.state.isr, cluster.state.isr_epochs, strict=True))
        assert cluster.brokers[3].core is not None
        assert cluster.brokers[3].core.cluster is not None
        assert recorded[3] == cluster.brokers[3].core.cluster.broker_epoch


def test_a_slow_follower_at_the_lag_limit_does_not_flap() -> None:
    """A follower that is slower than the leader, and still fetches, stays in the ISR."""
    with ReplicatedTopic() as cluster:
        cluster.brokers[3].disk_operation_s = 0.02
        core = cluster.brokers[1].core
        assert core is not None
        assert core.cluster is not None
        replication = core.cluster.replication
        for index in range(40):
            cluster.send(f"{index}")
            cluster.run(0.2)
        assert cluster.isr == list(NODES)
        assert replication.isr_shrinks == 0


def test_a_follower_whose_disk_is_full_leaves_and_returns_by_itself() -> None:
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[3].fill_disk()
        cluster.send("b")
        cluster.wait(lambda: cluster.isr == [1, 2])
        cluster.send("c")
        cluster.brokers[3].free_disk()
        _check_equal(cluster, "a", "b", "c")
        assert cluster.brokers[3].starts == 1


def test_a_leader_whose_disk_is_full_answers_with_an_error_and_recovers() -> None:
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[1].fill_disk()
        refused = cluster.result(cluster.produce_to(1, "lost"))
        assert refused not in (None, ErrorCode.NONE)
        cluster.brokers[1].free_disk()
        cluster.send("b")
        _check_equal(cluster, "a", "b")


@pytest.mark.parametrize("node", [1, 3])
def test_a_sync_that_fails_loses_nothing(node: int) -> None:
    """The broker stops, for its disk may have lost what was written before; the others go on."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        starts = cluster.brokers[node].starts
        cluster.brokers[node].disk.fail("sync", nth=1)
        cluster.send("b")
        cluster.send("c")
        cluster.wait(lambda: cluster.brokers[node].starts > starts)
        cluster.brokers[node].mend_disk()
        cluster.send("d")
        _check_equal(cluster, "a", "b", "c", "d")


def test_min_insync_replicas_is_raised_while_produces_are_parked() -> None:
    """NOT_ENOUGH_REPLICAS before the append; what is parked waits for the new minimum, or times out."""
    with ReplicatedTopic(configs={"min.insync.replicas": "1"}) as cluster:
        cluster.send("a")
        cluster.block(between(1, 2, 3))
        parked = cluster.spawn(cluster.produce_to(1, "b", timeout_ms=8_000))
        cluster.run(0.1)
        core = cluster.brokers[1].core
        assert core is not None
        assert cluster.world.store is not None
        _configure(cluster, {"min.insync.replicas": "3", "flush.messages": "1"})
        cluster.wait(lambda: cluster.isr == [1])
        cluster.wait(parked.done)
        assert parked.result() in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        assert cluster.partition(1).log.high_watermark == 1
        assert cluster.result(cluster.produce_to(1, "c", name="later")) is ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.unblock(between(1, 2, 3))
        _check_equal(cluster, "a", "b")


def test_min_insync_replicas_is_lowered_while_produces_are_parked() -> None:
    """What waited is acknowledged only after the ELR is empty: nobody without it can be elected any more."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.brokers[2].kill()
        cluster.brokers[3].kill()
        parked = cluster.spawn(cluster.produce_to(1, "b", timeout_ms=50_000))
        cluster.wait(lambda: cluster.isr == [1])
        assert sorted(cluster.state.elr) == [2, 3]
        _configure(cluster, {"min.insync.replicas": "1", "flush.messages": "1"})
        cluster.wait(parked.done)
        assert parked.result() is ErrorCode.NONE
        assert not cluster.state.elr
        # The others have no right to lead: they lack what was acknowledged.
        cluster.brokers[1].kill()
        cluster.brokers[2].start()
        cluster.brokers[3].start()
        cluster.run(20.0)
        assert cluster.leader == -1
        cluster.brokers[1].start()
        _check_equal(cluster, "a", "b")


def _configure(cluster: ReplicatedTopic, configs: dict[str, str]) -> None:
    store = cluster.world.store
    assert store is not None
    assert store.txn({}, {keys.topic_config(TOPIC): Put(keys.encode(configs))}).committed
