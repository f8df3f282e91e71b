"""`topic compact`, `topic retain` and `log verify` against a real broker, with real clients (R3, S5)."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from flintmq.metrics import parse
from flintmq.protocol.maintenance import MaintenanceAction
from flintmq.protocol.messages import (
    DescribeTopicTaskRequest,
    DescribeTopicTaskResponse,
    MaintainTopicRequest,
    MaintainTopicResponse,
)
from support.broker.broker_process import BrokerProcess, StartBroker
from support.cli.command import Ran, run
from support.wire.wire import Wire

RECORDS, KEYS = 5_000, 100
TIMEOUT_S = 30.0


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("--set", "flint.rest.port=0")


def flintmq(broker: BrokerProcess, *args: str, code: int = 0) -> Ran:
    return run(*args, "-b", broker.address, code=code)


def produce(broker: BrokerProcess, topic: str, records: int = RECORDS, keys: int = KEYS) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5, "batch.num.messages": 100})
    for number in range(records):
        producer.produce(topic, key=b"key-%d" % (number % keys), value=b"value-%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def consume(broker: BrokerProcess, topic: str, offset: int = 0) -> dict[bytes, bytes]:
    """The last value of each key, as a client sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        found: dict[bytes, bytes] = {}
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            if error is not None:
                raise KafkaException(error)
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes)
            found[key] = value
    finally:
        consumer.close()


def segments(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted((broker.data_dir / f"{topic}-0").glob("*.log"))


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, 2)
        (byte,) = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([byte ^ 1]))


def metric(broker: BrokerProcess, name: str) -> float:
    (url,) = (word for word in broker.errors.split() if word.startswith("http://"))
    with urllib.request.urlopen(f"{url.rstrip('/')}/metrics", timeout=TIMEOUT_S) as answer:
        return parse(answer.read().decode()).total(name)


def test_compaction_leaves_each_key_s_last_value_and_says_what_went(broker: BrokerProcess) -> None:
    flintmq(broker, "topic", "create", "t", "--partitions", "2", "--config", "cleanup.policy=compact")
    produce(broker, "t")
    before = consume(broker, "t")
    ran = flintmq(broker, "topic", "compact", "t", "--json").json
    assert (ran["topic"], ran["action"]) == ("t", "compact")
    first, second = ran["partitions"]
    assert (first["state"], first["records_before"], first["records_after"]) == ("done", RECORDS, KEYS)
    assert first["bytes_before"] > 10 * first["bytes_after"] > 0
    assert (second["state"], second["records_before"]) == ("done", 0)
    assert consume(broker, "t") == before
    assert len(before) == KEYS
    assert metric(broker, "flintmq_compactions_total") >= 1
    assert metric(broker, "flintmq_compaction_bytes_total") >= first["bytes_before"]
    # The same records give the same result: there is nothing left to do.
    again = flintmq(broker, "topic", "compact", "t", "--partition", "0").out
    assert f"{KEYS} → {KEYS}" in again
    assert "t: 0 records went, 0 B freed." in again


def test_retention_lets_old_segments_go(broker: BrokerProcess) -> None:
    flintmq(
        *(broker, "topic", "create", "t", "--partitions", "1"),
        *("--config", "segment.bytes=20000", "--config", "retention.bytes=40000"),
    )
    produce(broker, "t")
    count = len(segments(broker, "t"))
    assert count > 4
    (part,) = flintmq(broker, "topic", "retain", "t", "--json").json["partitions"]
    assert part["state"] == "done"
    assert part["bytes_before"] > part["bytes_after"] >= 40000
    assert part["records_before"] == RECORDS > part["records_after"] > 0
    described = flintmq(broker, "topic", "describe", "t", "--json").json["partitions"][0]
    assert described["start"] == RECORDS - part["records_after"]
    assert described["bytes"] == part["bytes_after"]
    freed = part["bytes_before"] - part["bytes_after"]
    assert metric(broker, "flintmq_retention_bytes_total") == freed


def test_verification_names_damaged_offsets_which_are_refused_from_then_on(broker: BrokerProcess) -> None:
    flintmq(broker, "topic", "create", "t", "--partitions", "1", "--config", "segment.bytes=20000")
    produce(broker, "t")
    assert "t: all sound." in flintmq(broker, "log", "verify", "t").out
    assert flintmq(broker, "log", "verify", str(broker.data_dir)).out.endswith("1 log, all sound.\n")
    first, second = segments(broker, "t")[:2]
    damage(first)
    last = int(second.stem) - 1
    by_path = flintmq(broker, "log", "verify", str(broker.data_dir / "t-0"), "--json", code=1).json
    (damaged,) = by_path["logs"][0]["damaged"]
    assert damaged["last_offset"] == last
    by_topic = flintmq(broker, "log", "verify", "t", "--json", code=1).json["partitions"][0]
    assert by_topic["damaged"] == [damaged]
    assert by_topic["state"] == "done"
    described = flintmq(broker, "topic", "describe", "t", "--json").json["partitions"][0]
    assert described["damaged"] == [damaged]
    words = f"partition 0: damaged and refused: offsets {damaged['first_offset']}–{last}"
    assert words in flintmq(broker, "topic", "describe", "t").out
    assert metric(broker, "flintmq_corrupt_ranges") == 1
    # What lies behind it is served.
    assert consume(broker, "t", last + 1)


def test_a_log_that_compaction_gives_up_is_told_everywhere(broker: BrokerProcess) -> None:
    flintmq(broker, "topic", "create", "t", "--partitions", "1", "--config", "cleanup.policy=compact")
    produce(broker, "t", 100)
    damage(segments(broker, "t")[0])
    ran = flintmq(broker, "topic", "compact", "t", code=1)
    assert "failed: t-0 cannot be compacted" in ran.out
    assert "1 of 1 partition not compacted." in ran.out
    assert "partition 0: not compacted any more:" in flintmq(broker, "topic", "describe", "t").out
    assert metric(broker, "flintmq_uncleanable_partitions") == 1


def test_what_cannot_be_done_is_said(broker: BrokerProcess, tmp_path: Path) -> None:
    flintmq(broker, "topic", "create", "t", "--config", "cleanup.policy=delete")
    assert "this needs compact" in flintmq(broker, "topic", "compact", "t", code=1).error
    assert "there is no topic nowhere" in flintmq(broker, "topic", "retain", "nowhere", code=1).error
    assert "t-9" in flintmq(broker, "log", "verify", "t", "--partition", "9", code=1).error
    assert "no file or folder" in run("log", "verify", str(tmp_path / "gone"), code=1).error
    assert "say --topic" in run("log", "verify", str(tmp_path), code=1).error
    run("log", "verify", str(tmp_path), "--partition", "1", code=2)
    run("topic", "compact", "t", "-b", "127.0.0.1:1", code=3)


def test_files_are_verified_while_a_producer_writes_and_segments_come_and_go(broker: BrokerProcess) -> None:
    flintmq(
        *(broker, "topic", "create", "t", "--partitions", "1", "--config", "segment.bytes=20000"),
        *("--config", "cleanup.policy=compact,delete", "--config", "retention.bytes=100000"),
    )
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            produce(broker, "t", 500)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for action in ("compact", "retain", "compact"):
            flintmq(broker, "topic", action, "t")
            flintmq(broker, "log", "verify", str(broker.data_dir))
            flintmq(broker, "log", "verify", "t")
    finally:
        stop.set()
        writer.join()


def test_a_task_is_asked_about_over_the_wire_and_goes_on_without_its_client(broker: BrokerProcess) -> None:
    flintmq(broker, "topic", "create", "t", "--partitions", "1", "--config", "cleanup.policy=compact")
    produce(broker, "t")
    with Wire(broker.address) as wire:
        started = wire.ask(MaintainTopicRequest(name="t", action=MaintenanceAction.COMPACT), 0)
        assert isinstance(started, MaintainTopicResponse)
    with Wire(broker.address) as wire:
        answer = DescribeTopicTaskResponse()
        while not answer.is_over:
            asked = wire.ask(DescribeTopicTaskRequest(task_id=started.task_id, max_wait_ms=60_000), 0)
            assert isinstance(asked, DescribeTopicTaskResponse)
            assert asked.error_code == 0
            answer = asked
    assert answer.partitions[0].records_after == KEYS


def test_what_takes_long_says_how_far_it_is(start_broker: StartBroker) -> None:
    broker = start_broker("--set", "log.cleaner.io.max.bytes.per.second=60000")
    flintmq(broker, "topic", "create", "t", "--partitions", "1", "--config", "cleanup.policy=compact")
    produce(broker, "t")
    ran = flintmq(broker, "topic", "compact", "t", "--json")
    assert ran.json["partitions"][0]["records_after"] == KEYS
    assert "compacting t-0 (1 of 1)" in ran.error
    assert "\x1b" not in ran.error


def test_json_is_the_only_thing_on_standard_output(broker: BrokerProcess) -> None:
    flintmq(broker, "topic", "create", "t")
    ran = flintmq(broker, "log", "verify", "t", "--json")
    assert json.loads(ran.out)["action"] == "verify"
    assert ran.error == ""
