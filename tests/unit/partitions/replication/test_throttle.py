"""Replicas that catch up are limited (KIP-73)."""

from __future__ import annotations

from flintmq.partitions.replication.throttle import UNLIMITED, ReplicationThrottle, is_throttled


def test_over_time_the_rate_is_kept() -> None:
    throttle = ReplicationThrottle()
    taken = 0
    for tick in range(1000):
        if not throttle.is_exceeded(1000, tick / 10):
            throttle.take(500)
            taken += 500
    # A second's allowance may be saved up at the beginning.
    assert 99_000 <= taken <= 102_000


def test_one_batch_may_exceed_the_allowance_and_is_paid_back() -> None:
    throttle = ReplicationThrottle()
    assert not throttle.is_exceeded(1000, 0.0)
    throttle.take(5000)
    assert throttle.is_exceeded(1000, 3.9)
    assert not throttle.is_exceeded(1000, 4.1)


def test_without_a_limit_nothing_is_counted() -> None:
    throttle = ReplicationThrottle()
    throttle.take(1 << 40)
    assert not throttle.is_exceeded(UNLIMITED, 0.0)
    assert not throttle.is_exceeded(1000, 0.0)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    throttle = ReplicationThrottle()
    assert not throttle.is_exceeded(1000, 100.0)
    throttle.take(2000)
    assert throttle.is_exceeded(1000, 50.0)


def test_which_replicas_are_meant() -> None:
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:2"), 3, 2)
    assert not is_throttled(("0:1", "3:2"), 3, 1)
    assert not is_throttled((), 0, 1)
