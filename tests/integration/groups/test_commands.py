"""`flintmq group …` and `flintmq consume --group` against a real broker, beside members of other clients (F4, Z7)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.broker.broker_process import BrokerProcess, clean_environment
from support.cli.command import Flintmq, Ran, run
from support.wire.wire import TIMESTAMP, Wire, batch_of

PATIENCE_S = 60.0
PARTITIONS = 2
_numbers = count()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("groups") / "data", ["--set", "group.min.session.timeout.ms=500"]
    ) as broker:
        yield broker


@pytest.fixture
def flintmq(shared_broker: BrokerProcess) -> Flintmq:
    """The command, told where the broker is."""

    def told(*args: str, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None) -> Ran:
        return run(
            *args,
            stdin=stdin,
            code=code,
            env={"FLINTMQ_BOOTSTRAP_SERVERS": shared_broker.address, **(env or {})},
        )

    return told


@pytest.fixture
def names(shared_broker: BrokerProcess) -> tuple[str, str]:
    """A topic with the records 0 to 9 in each partition, and a group that nobody has used."""
    number = next(_numbers)
    topic, group = f"topic-{number}", f"group-{number}"
    with Wire(shared_broker.address) as wire:
        wire.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            for value in range(10):
                batch = batch_of(b"%d" % value, timestamp=TIMESTAMP + value * 60_000)
                wire.produce(topic, batch, partition=partition)
    return topic, group


def committed(flintmq: Flintmq, group: str) -> list[int | None]:
    partitions: list[dict[str, Any]] = flintmq("group", "describe", group, "--json").json["partitions"]
    return [one["committed"] for one in partitions]


def member_of(broker: BrokerProcess, topic: str, group: str, *options: str) -> subprocess.Popen[str]:
    """`flintmq consume --group`, running."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "flintmq", "consume", topic, "--group", group, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment({"FLINTMQ_BOOTSTRAP_SERVERS": broker.address}),
    )


def consumer_of(broker: BrokerProcess, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6000,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic])
    return consumer


def poll_until_assigned(consumer: Consumer, partitions: int) -> None:
    for _ in range(int(PATIENCE_S * 10)):
        consumer.poll(0.1)
        if len(consumer.assignment()) == partitions:
            return
    raise AssertionError(f"{consumer.assignment()} instead of {partitions} partitions")


# ---- consume --group


def test_a_group_goes_on_where_it_left_off(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    first = flintmq("consume", topic, "--group", group, "--until-end")
    assert sorted(first.out.split()) == sorted([str(value) for value in range(10)] * 2)
    assert f"reading {topic}, partitions: 0, 1" in first.error
    assert committed(flintmq, group) == [10, 10]
    flintmq("produce", topic, "more")
    assert flintmq("consume", topic, "--group", group, "--until-end").out == "more\n"
    assert flintmq("consume", topic, "--group", group, "--until-end").out == ""


def test_what_was_not_printed_is_not_committed(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    read: list[str] = []
    for limit in (7, 6, 7):
        lines = flintmq("consume", topic, "--group", group, "--max", str(limit), "--offsets").out.splitlines()
        assert len(lines) == limit
        read += lines
    assert len(set(read)) == 20
    assert committed(flintmq, group) == [10, 10]


def test_a_group_that_begins_at_the_end_comes_back_to_it(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    assert flintmq("consume", topic, "--group", group, "--from", "end", "--until-end").out == ""
    assert committed(flintmq, group) == [10, 10]
    flintmq("produce", topic, "more")
    assert flintmq("consume", topic, "--group", group, "--from", "end", "--until-end").out == "more\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_partitions_are_shared_with_another_client_and_given_back_at_once(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str], number: signal.Signals
) -> None:
    topic, group = names
    with closing(consumer_of(shared_broker, topic, group)) as other:
        poll_until_assigned(other, PARTITIONS)
        process = member_of(shared_broker, topic, group)
        try:
            poll_until_assigned(other, 1)
            assert process.stderr is not None
            assert "reading" in process.stderr.readline()
            described = flintmq("group", "describe", group, "--json").json
            assert described["state"] == "Stable"
            assert sorted(one["client"] for one in described["partitions"]) == ["flintmq", "rdkafka"]
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0
            # Long before its session of 45 seconds would have run out.
            poll_until_assigned(other, PARTITIONS)
        finally:
            process.kill()
            process.communicate()


def test_a_second_member_takes_over_from_the_first(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, group = names
    first = member_of(shared_broker, topic, group)
    try:
        assert first.stdout is not None
        assert first.stderr is not None
        assert "0, 1" in first.stderr.readline()
        values = sorted(first.stdout.readline().strip() for _ in range(20))
        assert values == sorted([str(value) for value in range(10)] * 2)
        second = member_of(shared_broker, topic, group)
        try:
            assert second.stderr is not None
            assert "reading" in second.stderr.readline()
            assert "reading" in first.stderr.readline()
            members = flintmq("group", "members", group, "--json").json
            assert sorted(one["assignment"][topic] for one in members) == [[0], [1]]
            first.send_signal(signal.SIGINT)
            assert first.wait(PATIENCE_S) == 0
            assert "0, 1" in second.stderr.readline()
        finally:
            second.send_signal(signal.SIGINT)
            out, _ = second.communicate(timeout=PATIENCE_S)
        # All that the first one printed was committed before its partitions moved.
        assert out == ""
    finally:
        first.kill()
        first.communicate()
    assert committed(flintmq, group) == [10, 10]


def test_a_group_decides_about_partitions_itself(flintmq: Flintmq, names: tuple[str, str]) -> None:
    ran = flintmq("consume", names[0], "--group", "g", "--partition", "0", code=2)
    assert "the group decides" in ran.error


# ---- group list, describe, members


def test_groups_are_listed_by_name_and_state(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    flintmq("consume", topic, "--group", group, "--until-end")
    listed = flintmq("group", "list", group, "--json").json
    assert listed == [{"name": group, "state": "Empty", "protocol_type": "consumer"}]
    assert group in flintmq("group", "list", "--state", "empty").out
    assert group not in flintmq("group", "list", "--state", "Stable").out
    assert "no groups like that" in flintmq("group", "list", "nobody*").error


def test_a_group_is_described_with_its_lag(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    flintmq("group", "reset-offsets", group, "--topic", f"{topic}:0", "--to-offset", "4")
    found = flintmq("group", "describe", group, "--json").json
    assert (found["state"], found["lag"], found["members"]) == ("Empty", 6, [])
    (partition,) = found["partitions"]
    assert (partition["committed"], partition["end"], partition["lag"]) == (4, 10, 6)
    text = flintmq("group", "describe", group).out
    assert "Empty, 0 members, 6 records behind" in text
    assert "has no members" in flintmq("group", "members", group).error


def test_members_are_shown_with_what_they_read(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, group = names
    with closing(consumer_of(shared_broker, topic, group)) as consumer:
        poll_until_assigned(consumer, PARTITIONS)
        (member,) = flintmq("group", "members", group, "--json").json
        assert member["topics"] == [topic]
        assert member["assignment"] == {topic: [0, 1]}
        assert f"{topic}:0-1" in flintmq("group", "members", group).out


@pytest.mark.parametrize("command", ["describe", "members", "delete"])
def test_a_group_that_is_not_there_is_said_so(flintmq: Flintmq, command: str) -> None:
    assert "there is no group nobody" in flintmq("group", command, "nobody", code=1).error


# ---- group reset-offsets, delete


@pytest.mark.parametrize(
    ("options", "after"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "3"), 3),
        (("--to-offset", "300"), 10),
        (("--shift-by", "-2"), 3),
        (("--shift-by", "100"), 10),
        (("--to-datetime", "2023-11-14T22:16:20+00:00"), 3),
        (("--to-datetime", "2033-11-14"), 10),
        (("--by-duration", "1h"), 10),
    ],
)
def test_offsets_are_set_where_they_are_wanted(
    flintmq: Flintmq, names: tuple[str, str], options: tuple[str, ...], after: int
) -> None:
    topic, group = names
    flintmq("group", "reset-offsets", group, "--topic", topic, "--to-offset", "5")
    planned = flintmq(
        "group", "reset-offsets", group, "--topic", f"{topic}:1", *options, "--dry-run", "--json"
    )
    assert planned.json == {
        "group": group,
        "dry_run": True,
        "partitions": [{"topic": topic, "partition": 1, "before": 5, "after": after}],
    }
    assert committed(flintmq, group) == [5, 5]
    ran = flintmq("group", "reset-offsets", group, "--topic", f"{topic}:1", *options)
    assert "Set 1 offset" in ran.out
    assert committed(flintmq, group) == [5, after]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--to-earliest", "--to-latest"), 2, "say where to with one of"),
        ((), 2, "say where to with one of"),
        (("--to-datetime", "soon"), 2, "expected a time"),
        (("--by-duration", "long"), 2, "expected a duration"),
        (("--shift-by", "1"), 1, "no offset there that could be shifted"),
        (("--topic", "nowhere", "--to-latest"), 1, "there is no topic nowhere"),
        (("--topic", "x:y", "--to-latest"), 2, "expected TOPIC or TOPIC:PARTITION"),
    ],
)
def test_a_reset_that_makes_no_sense_says_why(
    flintmq: Flintmq, names: tuple[str, str], args: tuple[str, ...], code: int, words: str
) -> None:
    topic, group = names
    assert words in flintmq("group", "reset-offsets", group, "--topic", topic, *args, code=code).error


def test_a_partition_that_is_not_there_is_named(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    ran = flintmq("group", "reset-offsets", group, "--topic", f"{topic}:7", "--to-latest", code=1)
    assert "has no partition 7, only 0 to 1" in ran.error


def test_a_group_with_members_is_neither_reset_nor_deleted_and_they_are_named(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, group = names
    with closing(consumer_of(shared_broker, topic, group)) as consumer:
        poll_until_assigned(consumer, PARTITIONS)
        for args in (("reset-offsets", group, "--topic", topic, "--to-earliest"), ("delete", group)):
            ran = flintmq("group", *args, code=1)
            assert "has 1 member: rdkafka-" in ran.error
            assert "Stop them first" in ran.error


def test_groups_are_deleted_with_their_offsets(flintmq: Flintmq, names: tuple[str, str]) -> None:
    topic, group = names
    flintmq("consume", topic, "--group", group, "--until-end")
    ran = flintmq("group", "delete", group, "nobody", code=1)
    assert f"Deleted {group}." in ran.out
    assert flintmq("group", "list", group, "--json").json == []
    assert flintmq("group", "delete", group, "--if-exists", "--json").json == {"deleted": []}
    assert len(flintmq("consume", topic, "--group", group, "--until-end").out.split()) == 20
