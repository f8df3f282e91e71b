"""`flintmq transaction …` against a real broker, with transactions of another client (N1, KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support.broker.broker_process import BrokerProcess
from support.cli.command import Flintmq, Ran, run
from support.wire.wire import Wire

PATIENCE_S = 60.0
_numbers = count()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data") as broker:
        yield broker


@pytest.fixture
def flintmq(shared_broker: BrokerProcess) -> Flintmq:
    """The command, told where the broker is."""
    return command_at(shared_broker)


def command_at(broker: BrokerProcess) -> Flintmq:
    def told(*args: str, stdin: bytes = b"", code: int = 0, env: Mapping[str, str] | None = None) -> Ran:
        where = {"FLINTMQ_BOOTSTRAP_SERVERS": broker.address, **(env or {})}
        return run(*args, stdin=stdin, code=code, env=where)

    return told


@pytest.fixture
def names(shared_broker: BrokerProcess) -> tuple[str, str]:
    """A topic of two partitions, and a transactional id that nobody has used."""
    number = next(_numbers)
    with Wire(shared_broker.address) as wire:
        wire.create_topic(f"topic-{number}", 2)
    return f"topic-{number}", f"id-{number}"


def open_transaction(broker: BrokerProcess, topic: str, transactional_id: str) -> Producer:
    """One record in each partition, and no end."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(topic, b"open", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def read_committed(broker: BrokerProcess, topic: str, records: int) -> list[bytes | None]:
    """The first records of partition 0 that a consumer of committed ones gets."""
    config = {
        "bootstrap.servers": broker.address,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(records, PATIENCE_S)]


# ---- consume


@pytest.mark.parametrize("group", [(), ("--group", "readers")], ids=["alone", "group"])
def test_only_committed_records_are_consumed_if_that_is_asked_for(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str], group: tuple[str, ...]
) -> None:
    """KIP-98: neither those of an aborted transaction, nor those of one that is open and what is behind it."""
    topic, name = names
    producer = open_transaction(shared_broker, topic, name)
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=0)
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"never ended", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    flintmq("produce", topic, "behind it", "--partition", "0")

    def consumed(*args: str) -> list[str]:
        own = (group[0], f"{group[1]}-{topic}-{'-'.join(args)}") if group else ()
        return sorted(flintmq("consume", topic, "--until-end", *own, *args).out.split("\n")[:-1])

    assert consumed("--isolation-level", "read_committed") == ["committed"]
    everything = ["behind it", "committed", "never ended", "open", "open"]
    assert consumed() == everything
    assert consumed("--isolation-level", "read_uncommitted") == everything
    producer.abort_transaction(PATIENCE_S)
    assert consumed("--isolation-level", "read_committed", "--max", "2") == ["behind it", "committed"]
    assert "read_committed" in flintmq("consume", topic, "--isolation-level", "all", code=2).error


# ---- list, describe


def test_ids_are_listed_by_state_age_and_name(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, name = names
    producer = open_transaction(shared_broker, topic, name)
    (listed,) = flintmq("transaction", "list", "--match", name, "--json").json
    assert (listed["name"], listed["state"], listed["coordinator"]) == (name, "Ongoing", 0)
    text = flintmq("transaction", "list", "--state", "ongoing", "--duration", "0s").out
    assert name in text
    assert text.startswith("TRANSACTIONAL ID")
    assert name not in flintmq("transaction", "list", "--duration", "1h").out
    producer.commit_transaction(PATIENCE_S)
    assert name not in flintmq("transaction", "list", "--duration", "0s").out
    assert name in flintmq("transaction", "list", "--state", "CompleteCommit").out
    assert "no transactional ids like that" in flintmq("transaction", "list", "--match", "nobody").error


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--state", "sleeping", "expected one of Ongoing"),
        ("--duration", "long", "expected a duration"),
        ("--match", "[", "not a regular expression"),
    ],
)
def test_a_filter_that_makes_no_sense_says_why(flintmq: Flintmq, option: str, value: str, words: str) -> None:
    ran = flintmq("transaction", "list", option, value, code=2)
    assert words in ran.error
    assert option in ran.error


def test_a_transaction_is_described_with_what_it_touches(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, name = names
    producer = open_transaction(shared_broker, topic, name)
    (found,) = flintmq("transaction", "describe", name, "--json").json
    assert (found["state"], found["timeout_ms"], found["producer_epoch"]) == ("Ongoing", 600_000, 0)
    assert found["duration_ms"] >= 0
    assert found["partitions"] == [{"topic": topic, "partition": partition} for partition in (0, 1)]
    text = flintmq("transaction", "describe", name).out
    assert f"{name}: Ongoing for " in text
    assert "times out after 10 min" in text
    producer.abort_transaction(PATIENCE_S)
    ran = flintmq("transaction", "describe", name)
    assert f"{name}: CompleteAbort, " in ran.out
    assert "No partition waits" in ran.error


@pytest.mark.parametrize("command", ["describe", "abort"])
def test_an_id_that_is_not_there_is_said_so(flintmq: Flintmq, command: str) -> None:
    assert "there is no transactional id nobody" in flintmq("transaction", command, "nobody", code=1).error


# ---- abort


def test_an_open_transaction_is_aborted_and_its_producer_fenced(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, name = names
    zombie = open_transaction(shared_broker, topic, name)
    ran = flintmq("transaction", "abort", name)
    assert ran.out == f"Aborted the transaction of {name}. Its producer is fenced.\n"
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    assert "has no open transaction" in flintmq("transaction", "abort", name, code=1).error
    heir = open_transaction(shared_broker, topic, name)
    heir.commit_transaction(PATIENCE_S)
    assert read_committed(shared_broker, topic, 1) == [b"open"]


def test_which_one_to_abort_has_to_be_said_in_one_way(flintmq: Flintmq) -> None:
    for args in (
        (),
        ("an-id", "--topic", "t"),
        ("--topic", "t"),
        ("an-id", "--topic", "t", "--partition", "0", "--start-offset", "0"),
        ("--topic", "t", "--partition", "0"),
    ):
        assert "say which with" in flintmq("transaction", "abort", *args, code=2).error


def test_what_its_coordinator_knows_is_not_aborted_behind_its_back(
    shared_broker: BrokerProcess, flintmq: Flintmq, names: tuple[str, str]
) -> None:
    topic, name = names
    producer = open_transaction(shared_broker, topic, name)
    place = ("--topic", topic, "--partition", "0")
    ran = flintmq("transaction", "abort", *place, "--start-offset", "0", code=1)
    assert f"flintmq transaction abort {name}" in ran.error
    ran = flintmq("transaction", "abort", *place, "--start-offset", "7", code=1)
    assert f"no transaction that began at offset 7 is open in {topic}-0" in ran.error
    ran = flintmq("transaction", "abort", "--topic", topic, "--partition", "5", "--start-offset", "0", code=1)
    assert "has no partition 5, only 0 to 1" in ran.error
    assert flintmq(
        "transaction", "find-hanging", "--topic", topic, "--max-transaction-timeout", "0"
    ).error.startswith("None hangs in 2 partitions")
    producer.commit_transaction(PATIENCE_S)


# ---- hanging


def test_a_transaction_that_nobody_knows_is_found_and_ended_partition_by_partition(
    broker: BrokerProcess,
) -> None:
    """As after the loss of `__transaction_state`: nobody will end it, and readers of committed records stand."""
    flintmq = command_at(broker)
    flintmq("topic", "create", "orders", "--partitions", "2")
    open_transaction(broker, "orders", "lost")
    flintmq("topic", "delete", "__transaction_state", "--yes")
    search = ("transaction", "find-hanging", "--max-transaction-timeout", "0")
    ran = flintmq(*search)
    assert "flintmq transaction abort --topic orders --partition 0 --start-offset 0" in ran.error
    assert [line.split()[:3] for line in ran.out.splitlines()[1:]] == [
        ["orders", "0", "0"],
        ["orders", "1", "0"],
    ]
    assert flintmq("transaction", "find-hanging").out == "", "it is younger than a quarter of an hour"
    aborted = flintmq(
        *("transaction", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0", "--json")
    ).json["aborted"]
    assert (aborted["topic"], aborted["partition"], aborted["start_offset"]) == ("orders", 0, 0)
    assert [one["partition"] for one in flintmq(*search, "--json").json] == [1]
    flintmq("transaction", "abort", "--topic", "orders", "--partition", "1", "--start-offset", "0")
    assert flintmq(*search, "--topic", "orders", "--json").json == []
    flintmq("produce", "orders", "after", "--partition", "0")
    assert read_committed(broker, "orders", 1) == [b"after"]
