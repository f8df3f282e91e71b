"""The runtime of coordinators, with the smallest machine there is: named counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flintmq.coordinator.runtime.coordinator import Coordinator, shard_index
from flintmq.coordinator.runtime.machine import CoordinatorRecord, Decision, StoredRecord, TimerKey, Token
from flintmq.errors import ErrorCode, StorageError
from flintmq.metadata.topics import NewTopic
from flintmq.protocol.messages import HeartbeatResponse
from support.broker.single_broker import SingleBroker

TOPIC = "__counters"
Outcome = int | ErrorCode


class Counters:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.transactional: list[tuple[int, bool]] = []
        self.expired: list[TimerKey] = []

    def add(self, token: Token, name: str, *, within_ms: int | None = None) -> Decision:
        count = self.counts.get(name, 0) + 1
        decision = Decision([CoordinatorRecord(name.encode(), b"%d" % count)]).respond(
            token, HeartbeatResponse(throttle_time_ms=count)
        )
        if within_ms is not None:
            decision.timers[name] = within_ms
        return decision

    def look(self, token: Token, name: str) -> Decision:
        return Decision().respond(token, HeartbeatResponse(throttle_time_ms=self.counts.get(name, 0)))

    def apply(self, stored: StoredRecord) -> None:
        name = stored.key.decode()
        if stored.value is None:
            self.counts.pop(name, None)
        else:
            self.counts[name] = int(stored.value)

    def end_transaction(self, producer_id: int, offset: int, *, committed: bool) -> None:
        self.transactional.append((producer_id, committed))

    def loaded(self, now_ms: int) -> Decision:
        return Decision(timers={"loaded": 1000})

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        self.expired.append(key)
        return Decision([CoordinatorRecord(str(key).encode(), None)])


class World:
    def __init__(self, broker: SingleBroker, **configs: str) -> None:
        self.broker = broker
        self.configs: dict[str, str | None] = {"cleanup.policy": "compact", **configs}
        self.outcomes: list[Outcome] = []
        services = broker.services
        self.coordinator = Coordinator(
            TOPIC,
            lambda _: Counters(),
            lambda: NewTopic(TOPIC, 4, 1, {}, self.configs),
            metadata=services.metadata,
            topics=services.topics,
            partitions=services.partitions,
            clock=services.clock,
            timers=services.timers,
            executor=services.executor,
        )
        self.run(self.coordinator.start)

    def run(self, work: Callable[[], Any]) -> Any:
        async def step() -> Any:
            result = work()
            await self.coordinator.loaded()
            return result

        return self.broker.loop.run_until_complete(step())

    def make(self) -> World:
        self.broker.loop.run_until_complete(self.coordinator.make_topic())
        self.run(lambda: None)
        return self

    def ask(self, decide: Callable[[Counters, Token], Decision], name: str = "a") -> Outcome | None:
        """What was answered by the time the question was put; None if nothing was."""
        before = len(self.outcomes)

        def respond(message: Any) -> None:
            self.outcomes.append(message.throttle_time_ms)

        self.run(lambda: self.coordinator.call(name, decide, respond=respond, fail=self.outcomes.append))
        return self.outcomes[before] if len(self.outcomes) > before else None

    def add(self, name: str = "a", **how: int) -> Outcome | None:
        return self.ask(lambda machine, token: machine.add(token, name, **how), name)

    def look(self, name: str = "a") -> Outcome | None:
        return self.ask(lambda machine, token: machine.look(token, name), name)

    def machine(self, name: str = "a") -> Counters:
        shard = self.coordinator.shard_of(name)
        assert shard is not None
        return shard.machine


@pytest.fixture
def world(broker: SingleBroker) -> Iterator[World]:
    world = World(broker).make()
    yield world
    world.coordinator.close()


def test_names_are_spread_as_java_hashes_them() -> None:
    # "hello".hashCode() is 99162322, "polygenelubricants" has the smallest hash there is.
    assert shard_index("hello", 50) == 99162322 % 50
    assert shard_index("polygenelubricants", 50) == 0
    assert shard_index("", 50) == 0
    assert shard_index("\U0001f600", 1000) == (31 * 0xD83D + 0xDE00) % 1000


def test_a_decision_is_written_applied_and_answered_in_one_step(world: World) -> None:
    assert [world.add(), world.add(), world.look()] == [1, 2, 2]


def test_without_its_topic_nothing_is_coordinated_and_it_is_made_once(broker: SingleBroker) -> None:
    world = World(broker)
    assert world.add() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.make().make()
    assert world.add() == 1


def test_a_restart_finds_the_machine_as_it_was(world: World) -> None:
    world.add("a")
    world.add("b")
    world.add("a")
    again = World(world.broker)
    assert (again.look("a"), again.look("b")) == (2, 1)


def test_replies_wait_for_the_disk_where_the_topic_promises_it(broker: SingleBroker) -> None:
    world = World(broker, **{"flush.messages": "1"}).make()
    told: list[int] = []

    async def put() -> list[int]:
        world.coordinator.call(
            "a",
            lambda machine, token: machine.add(token, "a"),
            respond=lambda message: told.append(message.throttle_time_ms),  # type: ignore[attr-defined]
            fail=lambda code: None,
        )
        # One that only looks sees what is not safe yet, and so it waits as well.
        world.coordinator.call(
            "a",
            lambda machine, token: machine.look(token, "a"),
            respond=lambda message: told.append(-message.throttle_time_ms),  # type: ignore[attr-defined]
            fail=lambda code: None,
        )
        return list(told)

    assert broker.loop.run_until_complete(put()) == []
    broker.loop.run_until_idle()
    assert told == [1, -1]


@pytest.mark.plain
def test_a_record_that_cannot_be_written_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add()
    shard = world.coordinator.shard_of("a")
    assert shard is not None

    def full(*args: object, **kwargs: object) -> object:
        raise StorageError("No space left.")

    with monkeypatch.context() as patched:
        patched.setattr(shard.partition.log, "append", full)
        assert world.add() is ErrorCode.COORDINATOR_NOT_AVAILABLE

        def instead(machine: Counters, token: Token) -> Decision:
            decision = machine.add(token, "a", within_ms=5)
            decision.failed = lambda code: Decision().respond(token, HeartbeatResponse(throttle_time_ms=-7))
            return decision

        assert world.ask(instead) == -7
    assert world.look() == 1


def test_a_timer_is_set_replaced_and_called_off(world: World) -> None:
    broker = world.broker
    world.add(within_ms=1000)
    world.add(within_ms=5000)
    broker.loop.advance(2)
    assert world.look() == 2
    broker.loop.advance(4)
    assert world.look() == 0, "the timer took it away"
    world.add(within_ms=1000)

    def call_off(machine: Counters, token: Token) -> Decision:
        return Decision(timers={"a": None}).respond(token, HeartbeatResponse())

    world.ask(call_off)
    broker.loop.advance(5)
    assert world.look() == 1
    assert "loaded" in world.machine().expired


def test_a_question_that_makes_no_sense_is_answered_and_hurts_nobody(world: World) -> None:
    def broken(machine: Counters, token: Token) -> Decision:
        raise KeyError("a bug")

    assert world.ask(broken) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.add() == 1


def test_a_machine_goes_with_its_topic(world: World) -> None:
    world.add()
    services = world.broker.services

    async def delete() -> None:
        await services.topics.delete(services.metadata.image.topics[TOPIC])

    world.broker.loop.run_until_complete(delete())
    assert world.look() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.make()
    assert world.look() == 0


def test_nobody_is_told_twice_or_after_he_has_left(world: World) -> None:
    parked: list[Token] = []

    def park(machine: Counters, token: Token) -> Decision:
        parked.append(token)
        return Decision()

    assert world.ask(park) is None
    assert world.ask(park) is None
    world.coordinator.forget(parked[0])

    def release(machine: Counters, token: Token) -> Decision:
        decision = Decision().respond(token, HeartbeatResponse(throttle_time_ms=9))
        for one in (*parked, *parked):
            decision.respond(one, HeartbeatResponse(throttle_time_ms=one))
        return decision

    world.ask(release)
    assert world.outcomes == [9, parked[1]]
