"""The data directory of a broker with something of everything, stopped cleanly or killed under load.

    make("broker-killed", kill=True)

Expected contents come from a broker that was started on a copy, after they were compared with what was acknowledged.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from flintmq.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceResponse,
)
from flintmq.records.record import build_batch
from support.broker.broker_process import BrokerProcess
from support.cli import command
from support.upgrade.archives import pack, write_expected
from support.upgrade.contents import TIMEOUT_S, contents
from support.upgrade.past_broker import PastBroker
from support.wire.transactions import WireProducer
from support.wire.wire import Wire, produce_request

TIME_MS = 1_700_000_000_000
GROUPS = ("members", "positions", "transactional")
TRANSACTION_TIMEOUT_MS = 900_000
KILL_AFTER = 200
"""Acknowledged records of the load at which the broker is killed."""

SETTINGS = ("offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3")
"""For a small archive: how many partitions internal topics get when they are created."""
TOPICS = {
    "plain": (2, {"segment.bytes": "2000", "index.interval.bytes": "200"}),
    "compressed": (1, {}),
    "compacted": (1, {"cleanup.policy": "compact", "segment.bytes": "600", "min.cleanable.dirty.ratio": "1"}),
    "transactional": (2, {}),
    "idempotent": (1, {}),
    "altered": (1, {"max.message.bytes": "5000", "segment.ms": "3600000"}),
    "deleted": (1, {}),
    "load": (1, {"segment.bytes": "4000"}),
}


def make(name: str, *, kill: bool) -> None:
    args = [word for one in SETTINGS for word in ("--set", one)]
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        broker = BrokerProcess(directory / "data", args).start()
        try:
            producers = _fill(broker.address)
            load = Load(broker.address)
            load.wait(KILL_AFTER)
            if kill:
                broker.kill()
            else:
                load.stop()
                assert broker.stop() == 0
            load.stop()
        finally:
            broker.close()
        stopped_ms = time.time_ns() // 1_000_000
        shutil.copytree(directory / "data", directory / "copy")
        with PastBroker(directory / "copy", stopped_ms) as reader:
            found = contents(reader.address, GROUPS)
        records = found["topics"]["load"]["partitions"]["0"]["records"]
        assert {one[0]: one[3] for one in records}.items() >= load.acknowledged.items()
        pack(name, directory, "data")
    write_expected(name, {"stopped_ms": stopped_ms, "producers": producers, **found})


def _fill(address: str) -> dict[str, Any]:
    """Write everything but the load, and return what the tests need to continue as the same producers."""
    admin = AdminClient({"bootstrap.servers": address})
    kept = {"retention.ms": "-1"}
    wanted = [
        NewTopic(name, partitions, 1, config={**kept, **configs})
        for name, (partitions, configs) in TOPICS.items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)
    _write_plain(address)
    _write_compacted(address)
    _change_configs(address, admin)
    _delete(address, admin)
    _commit_offsets(address)
    _finish_transactions(address)
    return {"idempotent": _write_idempotent(address), **_leave_transactions_open(address)}


def _write_plain(address: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = _producer(address, **{"compression.type": codec})
        for number in range(20):
            producer.produce(
                "compressed", f"{codec} {number} " + "x" * 100, partition=0, timestamp=TIME_MS + number
            )
        assert producer.flush(TIMEOUT_S) == 0
    producer = _producer(address, **{"batch.num.messages": 5})
    for number in range(120):
        value = None if number % 10 == 9 else f"value {number}" + "." * 40
        producer.produce(
            "plain",
            value,
            key=None if number % 7 == 0 else f"key {number % 11}",
            partition=number % 2,
            timestamp=TIME_MS + number * 1000,
            headers=[("number", str(number)), ("empty", None)] if number % 3 == 0 else None,
        )
        if number % 10 == 0:
            producer.flush(TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0
    admin = AdminClient({"bootstrap.servers": address})
    # In the middle of a batch: only the checkpoint of start offsets knows it.
    for future in admin.delete_records([confluent_kafka.TopicPartition("plain", 1, 33)]).values():
        future.result(TIMEOUT_S)


def _write_compacted(address: str) -> None:
    producer = _producer(address, **{"batch.num.messages": 4})
    for number in range(80):
        value = None if number == 75 else f"value {number}" + "." * 20
        producer.produce("compacted", value, key=f"key {number % 9}", timestamp=TIME_MS + number)
    assert producer.flush(TIMEOUT_S) == 0
    command.run("topic", "compact", "compacted", "-b", address)
    for number in range(80, 90):
        producer.produce("compacted", f"value {number}", key=f"key {number % 9}", timestamp=TIME_MS + number)
    assert producer.flush(TIMEOUT_S) == 0


def _change_configs(address: str, admin: AdminClient) -> None:
    def change(name: str, value: str | None) -> ConfigEntry:
        kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        return ConfigEntry(name, value, incremental_operation=kind)

    changes = [
        ConfigResource(
            ResourceType.TOPIC,
            "altered",
            incremental_configs=[
                change("max.message.bytes", "7000"),
                change("retention.bytes", "123456789"),
                change("segment.ms", None),
            ],
        ),
        ConfigResource(
            ResourceType.BROKER, "0", incremental_configs=[change("log.flush.interval.ms", "3600000")]
        ),
    ]
    for future in admin.incremental_alter_configs(changes).values():
        future.result(TIMEOUT_S)
    # librdkafka has no resource for the configs of all brokers.
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=int(ResourceType.BROKER.value),
                resource_name="",
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(
                        name="log.cleaner.delete.retention.ms", config_operation=0, value="7200000"
                    )
                ],
            )
        ]
    )
    with Wire(address) as wire:
        response = wire.ask(request, 1)
        assert isinstance(response, IncrementalAlterConfigsResponse)
        assert [one.error_code for one in response.responses] == [0]


def _delete(address: str, admin: AdminClient) -> None:
    producer = _producer(address)
    producer.produce("deleted", "deleted")
    assert producer.flush(TIMEOUT_S) == 0
    for future in admin.delete_topics(["deleted"]).values():
        future.result(TIMEOUT_S)


def _commit_offsets(address: str) -> None:
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "members",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe(["plain"])
    messages = member.consume(30, TIMEOUT_S)
    assert len(messages) == 30
    for message in messages:
        member.commit(message=message, asynchronous=False)
    member.close()
    alone = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "positions", "enable.auto.commit": False}
    )
    offsets = [
        confluent_kafka.TopicPartition("plain", 0, 17, metadata="some metadata"),
        confluent_kafka.TopicPartition("compacted", 0, 80),
    ]
    alone.commit(offsets=offsets, asynchronous=False)
    alone.close()


def _finish_transactions(address: str) -> None:
    producer = _producer(address, **{"transactional.id": "finished", "transaction.timeout.ms": 60_000})
    producer.init_transactions(TIMEOUT_S)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "transactional"})
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for index in range(2):
            for record in range(5):
                producer.produce(
                    "transactional",
                    f"{'committed' if commits else 'aborted'} {number} {record}",
                    partition=index,
                    timestamp=TIME_MS + record,
                )
        position = confluent_kafka.TopicPartition("plain", 0, 30 + number)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_S)
        # An abort would drop what is not sent yet.
        assert producer.flush(TIMEOUT_S) == 0
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    consumer.close()


def _write_idempotent(address: str) -> dict[str, int]:
    """Two batches of a producer that sends nothing else: the test sends the second again, and a third."""
    with Wire(address) as wire:
        made = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        assert isinstance(made, InitProducerIdResponse)
        producer = {"producer id": made.producer_id, "epoch": made.producer_epoch}
        for base in (0, 3):
            response = wire.ask(produce_request("idempotent", idempotent_batch(producer, base)), 9)
            assert isinstance(response, ProduceResponse)
            (one,) = response.responses[0].partition_responses
            assert (one.error_code, one.base_offset) == (0, base)
    return producer


def idempotent_batch(producer: dict[str, int], base: int) -> bytes:
    """Three records from this sequence on."""
    return build_batch(
        [(None, b"sequence %d" % number, TIME_MS + number, ()) for number in range(base, base + 3)],
        producer_id=producer["producer id"],
        producer_epoch=producer["epoch"],
        base_sequence=base,
    )


def _leave_transactions_open(address: str) -> dict[str, Any]:
    """One for its producer to commit, and one that its successor aborts."""
    with Wire(address) as wire:
        producer = WireProducer(wire, "open", timeout_ms=TRANSACTION_TIMEOUT_MS)
        assert not producer.init()
        assert not producer.produce("transactional", b"open 0", b"open 1")
        assert not producer.commit_offset("transactional", "plain", 40)
    left = _producer(
        address, **{"transactional.id": "left", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    )
    left.init_transactions(TIMEOUT_S)
    left.begin_transaction()
    left.produce("transactional", "left 0", partition=1, timestamp=TIME_MS)
    assert left.flush(TIMEOUT_S) == 0
    return {"open": {"producer id": producer.producer_id, "epoch": producer.epoch}}


class Load:
    """A producer that writes to the topic `load` until it is stopped."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[int, str] = {}
        self._stopping = threading.Event()
        self._enough = threading.Event()
        self._producer = _producer(address, **{"message.timeout.ms": 2000, "linger.ms": 1})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self, count: int) -> None:
        """Until this many records are acknowledged."""
        while len(self.acknowledged) < count:
            self._enough.clear()
            assert self._enough.wait(TIMEOUT_S)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set() and number < 2000:
            self._producer.produce(
                "load", f"load {number}", timestamp=TIME_MS + number, on_delivery=self._delivered
            )
            self._producer.poll(0.001)
            number += 1
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.offset()] = message.value().decode()
            self._enough.set()


def _producer(address: str, **options: Any) -> Any:
    return confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 5, **options})
