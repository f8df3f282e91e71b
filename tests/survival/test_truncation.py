"""Replicas whose logs part are made equal again, and nothing that was acknowledged is lost on the way."""

from __future__ import annotations

from flintmq.errors import ErrorCode
from support.simulation.replicated_topic import NODES, ReplicatedTopic, between, to_store


def _check_equal(cluster: ReplicatedTopic, *acknowledged: str) -> None:
    """All replicas hold the same, and each acknowledged value once, in order."""
    cluster.wait_until_in_sync()
    logs = [cluster.written(node) for node in NODES]
    assert logs[0] == logs[1] == logs[2]
    assert [value for value in logs[0] if value in acknowledged] == list(acknowledged)
    assert cluster.read() == logs[0]


def test_a_follower_that_restarts_with_a_stale_high_watermark_keeps_what_is_committed() -> None:
    """KAFKA-1211, KIP-101: a follower that truncates to its high watermark loses what it is then elected to lead."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        # Broker 2 has "b" and does not know that it is committed: the next response would tell it.
        cluster.send("b")
        behind = cluster.partition(2).log
        assert behind.end_offset == 2
        cluster.brokers[2].start_after_end(0.5)
        cluster.brokers[2].kill()
        cluster.wait(lambda: cluster.brokers[2].core is not None)
        cluster.brokers[3].kill()
        cluster.restart_after(1, 20.0)
        cluster.wait(lambda: cluster.leader == 2)
        cluster.brokers[3].start()
        cluster.send("c")
        _check_equal(cluster, "a", "b", "c")


def test_records_of_a_leader_that_was_cut_off_are_truncated() -> None:
    """KIP-101: what only the old leader has was never acknowledged, and gives way to what the new one wrote."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        links = (*between(1, 2, 3), *to_store(1))
        cluster.block(links)
        lost = cluster.spawn(cluster.produce_to(1, "lost", "lost too"))
        cluster.wait(lambda: cluster.leader == 2)
        assert cluster.written(1) == ["a", "lost", "lost too"]
        cluster.send("b")
        cluster.unblock(links)
        _check_equal(cluster, "a", "b")
        assert lost.done()
        assert lost.result() is not ErrorCode.NONE
        assert "lost" not in cluster.written(1)


def test_logs_that_diverge_through_fast_failovers_become_equal() -> None:
    """KAFKA-6361, KIP-279: each of two leaders has written in an epoch that the other never saw."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        apart = (*between(1, 2, 3), *between(2, 3))
        cluster.block(apart)
        cluster.spawn(cluster.produce_to(1, "one", "one", "one"))
        cluster.run(0.1)
        cluster.restart_after(1, 30.0)
        cluster.wait(lambda: cluster.leader in (2, 3))
        second = cluster.leader
        cluster.run(0.1)
        cluster.spawn(cluster.produce_to(second, "two", name="second"))
        cluster.run(0.1)
        third = 5 - second
        cluster.restart_after(second, 30.0)
        cluster.wait(lambda: cluster.leader == third)
        cluster.unblock(apart)
        assert cluster.written(third) == ["a"]
        cluster.send("b")
        _check_equal(cluster, "a", "b")


def test_a_follower_that_missed_an_epoch_still_truncates() -> None:
    """KAFKA-7164: broker 1 is away while an epoch begins and ends without records."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        links = (*between(1, 2, 3), *to_store(1))
        cluster.block(links)
        for index in range(3):
            cluster.spawn(cluster.produce_to(1, "lost", name=f"{index}"))
        cluster.wait(lambda: cluster.leader == 2)
        cluster.restart_after(2, 1.0)
        cluster.wait(lambda: cluster.leader == 3)
        cluster.send("b")
        cluster.unblock(links)
        _check_equal(cluster, "a", "b")


def test_a_follower_with_a_longer_log_is_cut() -> None:
    """The new leader has nothing in the epoch in which the old one went on writing."""
    with ReplicatedTopic() as cluster:
        links = (*between(1, 2, 3), *to_store(1))
        cluster.block(links)
        cluster.spawn(cluster.produce_to(1, *["lost"] * 20))
        cluster.wait(lambda: cluster.leader == 2)
        assert cluster.partition(1).log.end_offset == 20
        cluster.unblock(links)
        cluster.wait_until_in_sync()
        assert cluster.partition(1).log.end_offset == 0
        cluster.send("a")
        _check_equal(cluster, "a")


def test_a_response_of_an_older_epoch_is_dropped() -> None:
    """KAFKA-18991: a response that was on its way while the leader changed writes nothing and truncates nothing."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        # Keeps the connection of broker 3 to broker 1 in use.
        cluster.create_topic("others", [[1, 3]])
        cluster.run(1.0)
        late = (("broker 1", "broker 3"),)
        cluster.block(late)
        lost = cluster.spawn(cluster.produce_to(1, "lost"))
        cluster.wait(lambda: cluster.partition(2).log.end_offset == 2)
        cluster.elect(3)
        cluster.wait(lambda: cluster.written(2) == ["a"])
        cluster.elect(1)
        cluster.wait(lambda: cluster.partition(3).leader == 1)
        cluster.unblock(late)
        end_s = cluster.world.timeline.now_s + 0.5
        while cluster.world.timeline.now_s < end_s:
            cluster.world.step()
            assert cluster.partition(3).log.end_offset == 1, "the leader has written nothing in this epoch"
        cluster.send("b")
        _check_equal(cluster, "a", "b")
        assert lost.result() is not ErrorCode.NONE


def test_a_fetch_that_diverges_does_not_let_a_follower_into_the_isr() -> None:
    """KAFKA-13141: a follower that is longer than the leader proves nothing by its offset."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        links = (*between(1, 2, 3), *to_store(1))
        cluster.block(links)
        for index in range(5):
            cluster.spawn(cluster.produce_to(1, "lost", name=f"{index}"))
        cluster.wait(lambda: cluster.leader == 2)
        cluster.send("b")
        cluster.unblock(to_store(1))
        cluster.wait(lambda: cluster.partition(1).leader == 2)
        cluster.run(1.0)
        # The fetch that is on its way has the broker epoch from before.
        cluster.world.network.drop_connections("broker 1")
        cluster.run(2.0)
        # The truncation takes a while: what the first fetch said is all that broker 2 knows.
        cluster.brokers[1].disk_operation_s = 0.2
        cluster.unblock(between(1, 2, 3))
        cluster.wait(lambda: cluster.partition(1).log.truncation is not None)
        cluster.run_checked(3.0)
        cluster.brokers[1].disk_operation_s = 0.0
        _check_equal(cluster, "a", "b")


def test_the_start_of_the_leader_lies_beyond_the_end_of_a_follower() -> None:
    """The follower begins with an empty log where the leader's begins."""
    with ReplicatedTopic(configs={"segment.bytes": "1048576"}) as cluster:
        cluster.send("a")
        cluster.wait_until_in_sync()
        cluster.brokers[3].kill()
        cluster.wait(lambda: 3 not in cluster.isr)
        cluster.send("b", "c")
        partition = cluster.partition(1)
        core = cluster.brokers[1].core
        assert core is not None
        partition.log.advance_start(3)
        cluster.send("d")
        cluster.brokers[3].start()
        cluster.wait_until_in_sync()
        assert [cluster.partition(node).log.start_offset for node in NODES] == [3, 3, 3]
        assert cluster.written(3) == ["d"]


def test_a_truncation_outlives_the_leader_that_asked_for_it() -> None:
    """The leader changes while a slow disk truncates: the log is cut once, and the next leader is followed."""
    with ReplicatedTopic() as cluster:
        cluster.send("a")
        links = (*between(1, 2, 3), *to_store(1))
        cluster.block(links)
        cluster.spawn(cluster.produce_to(1, *["lost"] * 5))
        cluster.wait(lambda: cluster.leader == 2)
        cluster.send("b")
        cluster.brokers[1].disk_operation_s = 0.3
        cluster.unblock(links)
        cluster.wait(lambda: cluster.partition(1).log.truncation is not None)
        cluster.brokers[2].kill()
        cluster.wait(lambda: cluster.leader == 3 and cluster.partition(1).leader == 3)
        cluster.brokers[1].disk_operation_s = 0.0
        cluster.wait(lambda: cluster.isr == [1, 3])
        cluster.brokers[2].start()
        cluster.send("c")
        _check_equal(cluster, "a", "b", "c")


def test_a_crash_inside_a_truncation_and_regrowth_in_the_same_segment() -> None:
    """Power is lost at each step of the truncation in turn; the log comes back as a prefix and grows again."""
    for operation in range(1, 26, 3):
        with ReplicatedTopic(seed=operation) as cluster:
            cluster.send("a")
            links = (*between(1, 2, 3), *to_store(1))
            cluster.block(links)
            cluster.spawn(cluster.produce_to(1, *["lost"] * 5))
            cluster.wait(lambda: cluster.leader == 2)
            cluster.send("b", "c")
            cluster.brokers[1].disk_operation_s = 0.05
            cluster.unblock(links)
            cluster.wait(lambda: cluster.partition(1).log.truncation is not None)
            cluster.brokers[1].start_after_end(0.5)
            cluster.brokers[1].die_at_disk_operation(operation, power=True)
            cluster.wait(lambda: cluster.brokers[1].starts == 2)
            cluster.brokers[1].disk_operation_s = 0.0
            cluster.send("d", "e", "f", "g", "h")
            _check_equal(cluster, "a", "b", "c", "d", "e", "f", "g", "h")
