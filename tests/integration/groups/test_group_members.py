"""Consumer groups through real clients (F4, Z2, Z7): rebalances, durable offsets, static and silent members."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from support.broker.broker_process import BrokerProcess, StartBroker

TOPIC, PARTITIONS, GROUP = "t", 4, "g"
PATIENCE_S = 60.0
FAST = ("--set", "group.min.session.timeout.ms=500")

Assigned = list[list[int]]


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(*FAST)


def fill(broker: BrokerProcess, count: int = 100, start: int = 0, *, make: bool = True) -> None:
    if make:
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(start, start + count):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def consumer(broker: BrokerProcess, **settings: Any) -> Consumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **named,
        }
    )


class Members:
    """Consumers of one group that are polled in turn, as each would be in its own process."""

    def __init__(self, *members: Consumer) -> None:
        self.members = list(members)
        for member in members:
            member.subscribe([TOPIC])
        self.values: list[int] = []

    def until(self, reached: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < ends, (self.assigned, sorted(self.values))
            for member in self.members:
                for message in member.consume(100, 0.05):
                    assert message.error() is None, message.error()
                    value = message.value()
                    assert value is not None
                    self.values.append(int(value))

    @property
    def assigned(self) -> Assigned:
        return [sorted(one.partition for one in member.assignment()) for member in self.members]

    def share(self, *sizes: int) -> Callable[[], bool]:
        """Whether every partition has one reader, and the readers so many each."""

        def shared() -> bool:
            assigned = self.assigned
            all_of_them = sorted(partition for part in assigned for partition in part)
            return all_of_them == list(range(PARTITIONS)) and sorted(
                len(part) for part in assigned
            ) == sorted(sizes)

        return shared


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_move_as_members_come_and_go(
    broker: BrokerProcess, ends: ExitStack, strategy: str
) -> None:
    fill(broker)
    first = ends.enter_context(closing(consumer(broker, partition_assignment_strategy=strategy)))
    group = Members(first)
    group.until(group.share(4))
    group.until(lambda: len(group.values) == 100)
    second = consumer(broker, partition_assignment_strategy=strategy)
    group = Members(first, second)
    group.until(group.share(2, 2))
    second.close()
    group = Members(first)
    group.until(group.share(4))


def test_committed_offsets_outlive_a_kill_and_members_carry_on(
    broker: BrokerProcess, ends: ExitStack
) -> None:
    fill(broker)
    group = Members(ends.enter_context(closing(consumer(broker))))
    group.until(lambda: len(group.values) == 100)
    group.members[0].commit(asynchronous=False)
    broker.args += ["--port", str(broker.port)]
    broker.kill()
    broker.start()
    fill(broker, 20, start=100, make=False)
    # The same member, which nobody told of it, goes on where it was.
    group.until(lambda: len(group.values) == 120)
    assert sorted(group.values) == list(range(120))
    group.members[0].commit(asynchronous=False)
    with closing(consumer(broker)) as another:
        committed = another.committed([TopicPartition(TOPIC, n) for n in range(PARTITIONS)], PATIENCE_S)
        assert [one.offset for one in committed] == [30] * PARTITIONS


def test_a_member_that_falls_silent_loses_its_partitions(broker: BrokerProcess, ends: ExitStack) -> None:
    fill(broker)
    silent = consumer(broker, session_timeout_ms=1000, max_poll_interval_ms=1500)
    group = Members(silent)
    group.until(group.share(4))
    others = Members(ends.enter_context(closing(consumer(broker))))
    # It is polled no more: its own client leaves the group for it.
    others.until(others.share(4))
    silent.close()


def test_a_static_member_comes_back_without_a_rebalance(broker: BrokerProcess, ends: ExitStack) -> None:
    fill(broker)
    revoked: list[int] = []

    def lost(_: object, partitions: list[TopicPartition]) -> None:
        revoked.extend(one.partition for one in partitions)

    first = ends.enter_context(closing(consumer(broker, group_instance_id="one")))
    second = consumer(broker, group_instance_id="two")
    group = Members(first, second)
    first.subscribe([TOPIC], on_revoke=lost)
    group.until(group.share(2, 2))
    had = group.assigned[1]
    # A static member does not leave when it closes.
    second.close()
    revoked.clear()
    group.members[1] = ends.enter_context(closing(consumer(broker, group_instance_id="two")))
    group.members[1].subscribe([TOPIC])
    group.until(lambda: group.assigned[1] == had)
    assert revoked == []


def test_groups_are_described_and_deleted_with_their_offsets(broker: BrokerProcess) -> None:
    fill(broker)
    admin = AdminClient({"bootstrap.servers": broker.address})
    with closing(consumer(broker)) as member:
        group = Members(member)
        group.until(lambda: len(group.values) == 100)
        member.commit(asynchronous=False)
        described = admin.describe_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
        assert described.state is ConsumerGroupState.STABLE
        assert [len(one.assignment.topic_partitions) for one in described.members] == [PARTITIONS]
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert [(one.group_id, one.state) for one in listed.valid] == [(GROUP, ConsumerGroupState.EMPTY)]
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP]
    assert {
        one.partition: one.offset for one in offsets.result(PATIENCE_S).topic_partitions
    } == dict.fromkeys(range(PARTITIONS), 25)
    admin.delete_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
    assert admin.list_consumer_groups().result(PATIENCE_S).valid == []


def test_offsets_are_altered_from_outside_and_go_with_their_topic(broker: BrokerProcess) -> None:
    fill(broker)
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = [TopicPartition(TOPIC, number, 7) for number in range(PARTITIONS)]
    altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, wanted)])[GROUP]
    assert all(one.error is None for one in altered.result(PATIENCE_S).topic_partitions)
    with closing(consumer(broker)) as member:
        group = Members(member)
        group.until(lambda: len(group.values) == 100 - 7 * PARTITIONS)
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP]
        if not offsets.result(PATIENCE_S).topic_partitions:
            return
    raise AssertionError("the offsets of a deleted topic stay")


def test_kafka_python_and_librdkafka_share_a_group(broker: BrokerProcess, ends: ExitStack) -> None:
    fill(broker)
    settings = {"group_id": GROUP, "auto_offset_reset": "earliest", "session_timeout_ms": 6000}
    other = KafkaConsumer(TOPIC, bootstrap_servers=broker.address, heartbeat_interval_ms=200, **settings)
    ends.callback(other.close)
    member = ends.enter_context(closing(consumer(broker, partition_assignment_strategy="range")))
    member.subscribe([TOPIC])
    found: set[bytes] = set()
    ends_at = time.monotonic() + PATIENCE_S
    while len(found) < 100 or len(member.assignment()) != 2 or len(other.assignment()) != 2:
        assert time.monotonic() < ends_at, (len(found), member.assignment(), other.assignment())
        for message in member.consume(100, 0.05):
            found.add(message.value() or b"")
        for records in other.poll(timeout_ms=50).values():
            found.update(record.value for record in records)
    assert found == {b"%d" % number for number in range(100)}


def test_without_groups_their_requests_are_not_listed(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "enable_consumer_groups=false")
    fill(broker, 4)
    from flintmq.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
    from support.wire.wire import Wire

    with Wire(broker.address) as wire:
        response = wire.ask(ApiVersionsRequest(), 0)
        assert isinstance(response, ApiVersionsResponse)
        keys = {one.api_key for one in response.api_keys}
    assert not keys & {8, 9, 11, 12, 13, 14, 15, 16, 25, 28, 42, 47}
    # Transactions have a coordinator all the same.
    assert {0, 1, 3, 10, 22, 26} <= keys
