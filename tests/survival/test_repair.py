"""Damage on the disk of one replica is repaired from another one while the brokers run (S5)."""

from __future__ import annotations

import pytest

from flintmq.errors import ErrorCode
from flintmq.partitions.maintenance.log_cleaner import CompactionResult
from flintmq.records.record import build_batch
from flintmq.storage.segment import INDEX, TXN_INDEX
from flintmq.testing.simulation.transactional_client import TransactionalWorldProducer
from support.simulation.damaged_replica import (
    begin_verification,
    check_identical,
    damage,
    find_damage,
    repaired_ranges,
    roll,
    wait_until_repaired,
)
from support.simulation.replicated_topic import NODES, TOPIC, ReplicatedTopic, between


def _send(cluster: ReplicatedTopic, *values: str) -> None:
    """Send each value in a batch of its own."""
    for value in values:
        cluster.send(value)


def test_damage_on_a_follower_is_copied_from_the_leader() -> None:
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        roll(cluster, 2)
        _send(cluster, "d")
        cluster.wait_until_in_sync()
        damage(cluster, 2, 1)
        find_damage(cluster, 2)
        assert cluster.partition(2).log.corrupt == [(1, 2)]
        wait_until_repaired(cluster, 2)
        assert repaired_ranges(cluster, 2) == 1
        assert cluster.brokers[2].starts == 1
        check_identical(cluster)
        assert cluster.written(2) == ["a", "b", "c", "d"]


def test_damage_on_a_leader_is_copied_from_a_follower() -> None:
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        roll(cluster, 1)
        _send(cluster, "d")
        cluster.wait_until_in_sync()
        damage(cluster, 1, 0)
        damage(cluster, 1, 2)
        find_damage(cluster, 1)
        wait_until_repaired(cluster, 1)
        assert cluster.leader == 1
        check_identical(cluster)
        assert cluster.read() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("node", [1, 2], ids=["leader", "follower"])
def test_damage_in_the_active_segment_is_repaired(node: int) -> None:
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        cluster.wait_until_in_sync()
        damage(cluster, node, 1)
        find_damage(cluster, node)
        wait_until_repaired(cluster, node)
        _send(cluster, "d")
        check_identical(cluster)
        assert cluster.written(node) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("byte", [7, 8, 11, 16, 20], ids=["offset", "length", "length too", "magic", "crc"])
def test_damage_in_the_header_of_a_batch_is_repaired(byte: int) -> None:
    """The CRC covers neither the offset nor the length: what follows may be lost with them."""
    with ReplicatedTopic(configs={"index.interval.bytes": "0"}) as cluster:
        _send(cluster, "a", "b", "c", "d")
        roll(cluster, 2)
        _send(cluster, "e")
        cluster.wait_until_in_sync()
        damage(cluster, 2, 2, byte=byte)
        find_damage(cluster, 2)
        wait_until_repaired(cluster, 2)
        check_identical(cluster)


def test_damage_above_the_watermark_of_a_follower_waits_for_the_watermark() -> None:
    """A follower that truncated instead would lack, as a member of the ISR, what may be acknowledged by now."""
    with ReplicatedTopic() as cluster:
        _send(cluster, "a")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 3))
        parked = cluster.spawn(cluster.produce_to(1, "b", timeout_ms=60_000))
        cluster.wait(lambda: cluster.partition(2).log.end_offset == 2)
        damage(cluster, 2, 1)
        find_damage(cluster, 2)
        cluster.run_checked(1.0)
        assert cluster.partition(2).log.corrupt == [(1, 2)]
        assert cluster.partition(2).log.high_watermark == 1
        cluster.unblock(between(1, 3))
        assert cluster.world.run_until(parked) is ErrorCode.NONE
        wait_until_repaired(cluster, 2)
        assert cluster.partition(2).log.generation == 0
        check_identical(cluster)
        assert cluster.read() == ["a", "b"]


def test_a_leader_that_is_damaged_above_the_watermark_gives_way() -> None:
    """No replica has a sound copy, and the record was never acknowledged: another replica leads without it."""
    with ReplicatedTopic() as cluster:
        _send(cluster, "a")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 2, 3))
        lost = cluster.spawn(cluster.produce_to(1, "lost", timeout_ms=60_000))
        cluster.wait(lambda: cluster.partition(1).log.end_offset == 2)
        damage(cluster, 1, 1)
        find_damage(cluster, 1)
        cluster.wait(lambda: cluster.leader != 1)
        cluster.unblock(between(1, 2, 3))
        _send(cluster, "b")
        wait_until_repaired(cluster, 1)
        check_identical(cluster)
        assert cluster.read() == ["a", "b"]
        assert lost.result() is not ErrorCode.NONE


def test_another_replica_is_asked_where_the_first_is_damaged_too() -> None:
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        for node in (1, 2):
            roll(cluster, node)
        _send(cluster, "d")
        cluster.wait_until_in_sync()
        for node in (1, 2):
            damage(cluster, node, 1)
        find_damage(cluster, 2)
        wait_until_repaired(cluster, 2)
        # Broker 1 did not know, and its batch was rejected by its CRC.
        assert cluster.partition(2).log.counters.repaired_ranges == 1
        find_damage(cluster, 1)
        wait_until_repaired(cluster, 1)
        check_identical(cluster)


def test_a_range_that_nobody_has_stays_refused_and_is_tried_again() -> None:
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        cluster.wait_until_in_sync()
        for node in NODES:
            damage(cluster, node, 1)
        find_damage(cluster, 2)
        find_damage(cluster, 1)
        cluster.run(10.0)
        assert [cluster.partition(node).log.corrupt for node in (1, 2)] == [[(1, 2)], [(1, 2)]]
        # What was flipped is flipped back: broker 3 is sound again.
        damage(cluster, 3, 1)
        for node in (1, 2):
            wait_until_repaired(cluster, node)
        check_identical(cluster)
        assert cluster.read() == ["a", "b", "c"]


def test_damage_that_is_found_at_a_start_is_repaired() -> None:
    """The index of a segment is lost with a batch: the log is opened without the rest of the segment."""
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        roll(cluster, 2)
        _send(cluster, "d")
        cluster.wait_until_in_sync()
        cluster.run(70.0)
        damage(cluster, 2, 1)
        path = cluster.partition(2).log.segments[0].path(INDEX)
        cluster.brokers[2].kill()
        cluster.brokers[2].disk.remove(path)
        cluster.brokers[2].start()
        cluster.wait(lambda: cluster.brokers[2].core is not None)
        assert cluster.partition(2).log.corrupt == [(1, 3)]
        wait_until_repaired(cluster, 2)
        check_identical(cluster)
        assert cluster.written(2) == ["a", "b", "c", "d"]


def test_records_that_were_deleted_are_not_asked_for() -> None:
    """A segment that is damaged below the start of the log, and above it."""
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c", "d")
        roll(cluster, 2)
        _send(cluster, "e")
        cluster.wait_until_in_sync()
        cluster.partition(1).log.advance_start(2)
        cluster.wait(lambda: cluster.partition(2).log.start_offset == 2)
        damage(cluster, 2, 0)
        damage(cluster, 2, 3)
        find_damage(cluster, 2)
        wait_until_repaired(cluster, 2)
        assert cluster.written(2) == ["c", "d", "e"]


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_broker_dies_at_each_disk_operation_of_a_repair(power: bool) -> None:
    """The old segment or the new one is there, whole; the repair is made again if need be."""
    operation, has_died = 0, True
    while has_died:
        operation += 1
        with ReplicatedTopic(seed=operation) as cluster:
            _send(cluster, "a", "b", "c")
            roll(cluster, 2)
            _send(cluster, "d")
            cluster.wait_until_in_sync()
            damage(cluster, 2, 1)
            find_damage(cluster, 2)
            cluster.brokers[2].start_after_end(0.5)
            cluster.brokers[2].die_at_disk_operation(operation, power=power)
            cluster.wait(
                lambda: (
                    cluster.brokers[2].starts == 2
                    or (cluster.brokers[2].core is not None and not cluster.partition(2).log.corrupt)
                )
            )
            has_died = cluster.brokers[2].starts == 2
            cluster.brokers[2].mend_disk()
            cluster.wait(lambda: cluster.brokers[2].is_up)
            if has_died:
                cluster.wait(begin_verification(cluster, 2).done)
            wait_until_repaired(cluster, 2)
            _send(cluster, "e")
            check_identical(cluster)
            assert cluster.written(2) == ["a", "b", "c", "d", "e"]
    assert operation > 15, "a repair has more operations than that"


def test_a_compacted_topic_is_repaired_and_compacted_again() -> None:
    """Replicas compact when they like: the damaged one may be compacted more or less than the one it copies from."""
    with ReplicatedTopic(configs={"cleanup.policy": "compact"}) as cluster:
        for index in range(8):
            _send_keyed(cluster, b"k%d" % (index % 3), b"%d" % index)
        for node in (1, 2):
            roll(cluster, node)
        _send_keyed(cluster, b"other", b"8")
        cluster.wait_until_in_sync()
        damage(cluster, 2, 6)
        damage(cluster, 2, 1)
        _compact(cluster, 1)
        assert cluster.written(1) == ["5", "6", "7", "8"]
        find_damage(cluster, 2)
        wait_until_repaired(cluster, 2)
        assert cluster.written(2) == ["0", "2", "3", "4", "5", "6", "7", "8"]
        # Now the leader copies from one that is compacted less.
        damage(cluster, 1, 6)
        find_damage(cluster, 1)
        wait_until_repaired(cluster, 1)
        assert cluster.partition(1).log.first_dirty_offset <= 6
        for node in (1, 2):
            _compact(cluster, node)
        assert cluster.written(1) == cluster.written(2) == ["5", "6", "7", "8"]


def test_a_log_that_could_not_be_compacted_is_compacted_after_its_repair() -> None:
    with ReplicatedTopic(configs={"cleanup.policy": "compact"}) as cluster:
        for index in range(8):
            _send_keyed(cluster, b"k%d" % (index % 3), b"%d" % index)
        roll(cluster, 2)
        _send_keyed(cluster, b"other", b"8")
        cluster.wait_until_in_sync()
        damage(cluster, 2, 4)
        core = cluster.brokers[2].core
        assert core is not None
        cleaner, partition = core.maintenance.cleaner, cluster.partition(2)
        process = cluster.brokers[2].process
        assert process is not None
        failing = process.spawn(cleaner.compact(partition, forced=True))
        cluster.wait(failing.done)
        assert failing.exception() is not None
        assert cleaner.gave_up(partition)
        wait_until_repaired(cluster, 2)
        assert not cleaner.gave_up(partition)
        _compact(cluster, 2)
        assert cluster.written(2) == ["5", "6", "7", "8"]


@pytest.mark.parametrize("forgets", [False, True], ids=["running", "opened without its indexes"])
def test_aborted_transactions_stay_aborted(forgets: bool) -> None:
    """KIP-98: also where the marker of an aborted transaction was damaged, and with it what was known of it."""
    with ReplicatedTopic() as cluster:
        for index, commits in enumerate((True, False, True)):
            producer = TransactionalWorldProducer(cluster.client, f"payments-{index}")
            cluster.result(producer.open())
            cluster.result(producer.send(TOPIC, 0, [b"yes" if commits else b"no"]))
            cluster.result(producer.end(commits=commits))
            _wait_for_watermark(cluster, 2 * index + 2)
        cluster.wait_until_in_sync()
        roll(cluster, 2)
        _send(cluster, "last")
        cluster.wait_until_in_sync()
        cluster.run(70.0)
        aborted = cluster.partition(2).log.segments[0].aborted
        assert [(one.first_offset, one.last_offset) for one in aborted] == [(2, 3)]
        damage(cluster, 2, 2)
        damage(cluster, 2, 3)
        if forgets:
            log = cluster.partition(2).log
            paths = [log.segments[0].path(suffix) for suffix in (INDEX, TXN_INDEX)]
            cluster.brokers[2].kill()
            for path in paths:
                cluster.brokers[2].disk.remove(path)
            cluster.brokers[2].start()
            cluster.wait(lambda: cluster.brokers[2].core is not None)
            assert not cluster.partition(2).log.segments[0].aborted
        else:
            find_damage(cluster, 2)
        wait_until_repaired(cluster, 2)
        assert cluster.partition(2).log.segments[0].aborted == aborted
        check_identical(cluster)
        cluster.elect(2)
        cluster.wait(lambda: cluster.partition(2).leader == 2)
        assert cluster.read(committed_only=True) == ["yes", "yes", "last"]
        # The index of aborted transactions is on disk too.
        cluster.restart_after(2, 0.5)
        cluster.wait(lambda: cluster.brokers[2].starts == (3 if forgets else 2))
        cluster.wait_until_in_sync()
        assert cluster.partition(2).log.segments[0].aborted == aborted


def test_a_follower_does_not_copy_damage_of_its_leader() -> None:
    """The leader does not know of it; when it does, it gives way."""
    with ReplicatedTopic() as cluster:
        _send(cluster, "a")
        cluster.wait_until_in_sync()
        cluster.block(between(1, 2, 3))
        cluster.spawn(cluster.produce_to(1, "b", timeout_ms=60_000))
        cluster.wait(lambda: cluster.partition(1).log.end_offset == 2)
        damage(cluster, 1, 1)
        cluster.unblock(between(1, 2, 3))
        cluster.run(1.0)
        for node in (2, 3):
            assert cluster.written(node) == ["a"]
        find_damage(cluster, 1)
        cluster.wait(lambda: cluster.leader != 1)
        wait_until_repaired(cluster, 1)
        check_identical(cluster)
        assert cluster.read() == ["a"]


def test_a_repair_outlives_a_change_of_leaders() -> None:
    with ReplicatedTopic() as cluster:
        _send(cluster, "a", "b", "c")
        roll(cluster, 2)
        _send(cluster, "d")
        cluster.wait_until_in_sync()
        damage(cluster, 2, 1)
        cluster.brokers[2].disk_operation_s = 0.05
        find_damage(cluster, 2)
        cluster.elect(2)
        wait_until_repaired(cluster, 2)
        cluster.brokers[2].disk_operation_s = 0.0
        check_identical(cluster)


def _wait_for_watermark(cluster: ReplicatedTopic, offset: int) -> None:
    cluster.wait(lambda: cluster.partition(1).log.high_watermark == offset)


def _send_keyed(cluster: ReplicatedTopic, key: bytes, value: bytes) -> None:
    batch = build_batch([(key, value, cluster.client.now_ms(), ())])
    assert not cluster.result(cluster.client.produce(TOPIC, 0, batch)).error_code


def _compact(cluster: ReplicatedTopic, node: int) -> CompactionResult:
    core, process = cluster.brokers[node].core, cluster.brokers[node].process
    assert core is not None
    assert process is not None
    compacting = process.spawn(core.maintenance.cleaner.compact(cluster.partition(node), forced=True))
    cluster.wait(compacting.done)
    return compacting.result()
