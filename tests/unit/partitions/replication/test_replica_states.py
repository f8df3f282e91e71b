"""What a leader concludes from the fetches of its followers (KIP-497, KIP-903, KIP-966)."""

from __future__ import annotations

import pytest

from flintmq.partitions.replication.replica_states import UNKNOWN, ReplicaStates

LAG_MAX_MS = 30_000


def make_states(
    isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 2, epoch_start: int = 10, replicas: int = 3
) -> ReplicaStates:
    return ReplicaStates(
        node_id=1,
        replicas=range(1, replicas + 1),
        isr=isr,
        min_isr=min_isr,
        epoch_start=epoch_start,
        now_ms=0,
    )


def fetch(
    states: ReplicaStates, node: int, offset: int, *, end: int = 20, now_ms: int = 0, epoch: int = 5
) -> bool:
    return states.fetched(
        node, broker_epoch=epoch, offset=offset, start_offset=0, leader_end=end, now_ms=now_ms
    )


def may_join(
    states: ReplicaStates, node: int, high_watermark: int, *, draining: tuple[int, ...] = ()
) -> bool:
    return states.may_join(
        node, high_watermark=high_watermark, registered={1: 4, 2: 5, 3: 5}, draining=draining
    )


def test_the_slowest_member_of_the_isr_decides() -> None:
    states = make_states()
    fetch(states, 2, 18)
    fetch(states, 3, 15)
    assert states.committed_end(20) == 15
    fetch(states, 3, 20)
    assert states.committed_end(20) == 18


def test_a_member_that_has_not_fetched_in_this_epoch_holds_everything_back() -> None:
    states = make_states()
    fetch(states, 2, 20)
    assert states.committed_end(20) == UNKNOWN


def test_replicas_outside_of_the_isr_do_not_count() -> None:
    states = make_states((1, 2))
    fetch(states, 2, 19)
    fetch(states, 3, 12)
    assert states.committed_end(20) == 19


def test_a_proposed_member_counts_before_it_is_committed() -> None:
    states = make_states((1, 2))
    fetch(states, 2, 20)
    fetch(states, 3, 17)
    states.propose([1, 2, 3])
    assert states.committed_end(20) == 17
    states.settle()
    assert states.committed_end(20) == 20


def test_a_member_counts_until_its_removal_is_committed() -> None:
    states = make_states()
    fetch(states, 2, 20)
    fetch(states, 3, 11)
    states.propose([1, 2])
    assert states.committed_end(20) == 11
    states.change(replicas=[1, 2, 3], isr=[1, 2], now_ms=0)
    states.settle()
    assert states.committed_end(20) == 20


def test_nothing_is_committed_under_min_insync_replicas() -> None:
    states = make_states((1,))
    assert states.committed_end(20) == UNKNOWN
    assert not states.has_min_isr
    states.configure(1)
    assert states.committed_end(20) == 20


def test_nothing_is_committed_while_a_replica_outside_of_the_isr_may_be_elected() -> None:
    """KIP-966, after min.insync.replicas was lowered: the ELR is still what it was."""
    states = make_states((1, 2), min_isr=1)
    fetch(states, 2, 20)
    states.change(replicas=[1, 2, 3], isr=[1, 2], has_elr=True, now_ms=0)
    assert states.committed_end(20) == UNKNOWN
    states.change(replicas=[1, 2, 3], isr=[1, 2], now_ms=0)
    assert states.committed_end(20) == 20


def test_a_proposed_member_does_not_make_up_for_a_missing_one() -> None:
    """KAFKA-19996: the watermark would advance before enough replicas are committed."""
    states = make_states((1,))
    fetch(states, 2, 20)
    states.propose([1, 2])
    assert states.committed_end(20) == UNKNOWN


def test_min_insync_replicas_is_at_most_the_number_of_replicas() -> None:
    states = make_states((1, 2), min_isr=3, replicas=2)
    assert states.has_min_isr


def test_a_follower_joins_when_it_has_all_that_is_committed() -> None:
    states = make_states((1, 2))
    fetch(states, 3, 14)
    assert not may_join(states, 3, 15)
    fetch(states, 3, 15)
    assert may_join(states, 3, 15)


def test_a_follower_must_have_read_into_the_leaders_epoch() -> None:
    """KAFKA-7128: below it, the watermark of a new leader may lag behind what is committed."""
    states = make_states((1, 2), epoch_start=18)
    fetch(states, 3, 17)
    assert not may_join(states, 3, 12)
    fetch(states, 3, 18)
    assert may_join(states, 3, 12)


def test_a_fetch_of_an_older_registration_proves_nothing() -> None:
    """KIP-903."""
    states = make_states((1, 2))
    fetch(states, 3, 20, epoch=4)
    assert not may_join(states, 3, 10)


@pytest.mark.parametrize("case", ["draining", "pending", "member", "no replica"])
def test_who_may_not_join(case: str) -> None:
    states = make_states((1, 2) if case != "member" else (1, 2, 3))
    fetch(states, 3, 20)
    if case == "pending":
        states.propose([1])
    assert not may_join(
        states, 3 if case != "no replica" else 9, 10, draining=(3,) if case == "draining" else ()
    )


def test_a_follower_lags_when_it_has_not_caught_up_for_long() -> None:
    states = make_states()
    fetch(states, 2, 20, now_ms=1000)
    fetch(states, 3, 15, now_ms=1000)
    assert states.lagging(leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=LAG_MAX_MS) == []
    assert states.lagging(leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=LAG_MAX_MS + 1) == [3]


def test_a_follower_with_everything_does_not_lag_while_nothing_is_written() -> None:
    states = make_states()
    fetch(states, 2, 20)
    fetch(states, 3, 20)
    assert states.lagging(leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=10 * LAG_MAX_MS) == []


def test_a_follower_that_is_always_one_fetch_behind_keeps_up() -> None:
    """It has, at each fetch, what the leader had at the fetch before."""
    states = make_states()
    for second in range(1, 100):
        fetch(states, 2, 20 + second - 1, end=20 + second, now_ms=1000 * second)
        fetch(states, 3, 20, end=20 + second, now_ms=1000 * second)
    assert states.lagging(leader_end=200, lag_max_ms=LAG_MAX_MS, now_ms=99_000) == [3]


def test_the_watermark_waits_for_a_follower_that_is_about_to_join() -> None:
    states = make_states((1, 2))
    fetch(states, 2, 20)
    fetch(states, 3, 18, end=18)
    assert states.keeps_up(3, leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=10)
    assert states.committed_end(20, joining=(3,)) == 18


def test_a_replica_outside_of_the_isr_keeps_up_only_once_it_has_shown_it() -> None:
    """Nothing waits for one that a new leader knows nothing of, and that may be far behind."""
    states = make_states((1, 2))
    assert not states.keeps_up(3, leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=0)
    fetch(states, 3, 12)
    assert not states.keeps_up(3, leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=1)
    states.change(replicas=(1, 2, 3, 4), isr=(1, 2), now_ms=5)
    assert not states.keeps_up(4, leader_end=20, lag_max_ms=LAG_MAX_MS, now_ms=5)


def test_a_fetch_of_a_broker_that_holds_no_replica_is_not_noted() -> None:
    assert not fetch(make_states(), 9, 20)
