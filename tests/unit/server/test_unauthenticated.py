"""How many connections may be unauthenticated, and for how long."""

from __future__ import annotations

from collections.abc import Callable

from flintmq.server.unauthenticated import FAIR_S, UnauthenticatedConnections
from flintmq.settings import BrokerConfig

CONFIG = BrokerConfig(
    flint_authentication_timeout_ms=10_000,
    flint_max_unauthenticated_connections=4,
    flint_max_unauthenticated_connections_per_ip=3,
)


class Timeline:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timeline:
        self.timers.append((self.now + delay, callback))
        return self

    def cancel(self) -> None:
        raise AssertionError("timers are not cancelled")

    def move(self, seconds: float) -> None:
        self.now += seconds
        due = [callback for at, callback in self.timers if at <= self.now]
        self.timers = [(at, callback) for at, callback in self.timers if at > self.now]
        for callback in due:
            callback()


class Stranger:
    def __init__(self, host: str) -> None:
        self.host = host
        self.reason: str | None = None

    def give_up(self, reason: str) -> None:
        self.reason = reason


def test_one_address_has_its_own_limit() -> None:
    pending: UnauthenticatedConnections[Stranger] = UnauthenticatedConnections(Timeline(), lambda: CONFIG)
    mine = [Stranger("a") for _ in range(3)]
    assert [pending.enter(one) for one in mine] == [None] * 3
    assert "per.ip" in (pending.enter(Stranger("a")) or "")
    assert pending.enter(Stranger("b")) is None
    pending.leave(mine[0])
    assert pending.enter(Stranger("a")) is None


def test_the_oldest_of_an_address_gives_way_to_a_new_one_of_the_same() -> None:
    """Half-open connections behind a load balancer, for instance, where all clients have one address."""
    time = Timeline()
    pending: UnauthenticatedConnections[Stranger] = UnauthenticatedConnections(time, lambda: CONFIG)
    other, mine = Stranger("b"), [Stranger("a") for _ in range(3)]
    for one in (other, *mine):
        assert pending.enter(one) is None
    time.now = FAIR_S
    assert pending.enter(Stranger("a")) is None
    assert [one.reason is not None for one in (other, *mine)] == [False, True, False, False]
    assert len(pending) == 4


def test_the_oldest_gives_way_when_it_had_a_fair_time() -> None:
    time = Timeline()
    pending: UnauthenticatedConnections[Stranger] = UnauthenticatedConnections(time, lambda: CONFIG)
    hosts = [Stranger(host) for host in "abcd"]
    for one in hosts:
        assert pending.enter(one) is None
    assert "flint.max.unauthenticated.connections" in (pending.enter(Stranger("e")) or "")
    time.now = FAIR_S
    assert pending.enter(Stranger("e")) is None
    assert [one.reason is not None for one in hosts] == [True, False, False, False]
    assert len(pending) == 4


def test_each_is_closed_when_its_own_time_is_over_with_one_timer_for_all() -> None:
    time = Timeline()
    pending: UnauthenticatedConnections[Stranger] = UnauthenticatedConnections(time, lambda: CONFIG)
    first, second, known = Stranger("a"), Stranger("b"), Stranger("c")
    for one in (first, known):
        pending.enter(one)
    time.move(5)
    pending.enter(second)
    pending.leave(known)
    assert len(time.timers) == 1
    time.move(5)
    assert "not authenticated within 10 s" in (first.reason or "")
    assert second.reason is None
    assert len(time.timers) == 1
    time.move(5)
    assert second.reason is not None
    assert known.reason is None
    assert (len(pending), time.timers) == (0, [])
